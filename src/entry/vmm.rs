//! Physical memory of the virtual memory interface. Address reservations take none and are not hooked.

use super::*;
use crate::gate;

type Create =
    unsafe extern "C" fn(*mut CUmemGenericAllocationHandle, usize, *const CUmemAllocationProp, u64) -> Code;

/// `cuMemCreate`: charged to the device named in the properties; memory of the host costs nothing.
pub(super) unsafe fn create(
    call: &Call,
    next: Create,
    handle: *mut CUmemGenericAllocationHandle,
    bytes: usize,
    properties: *const CUmemAllocationProp,
    flags: u64,
) -> Code {
    // SAFETY: the caller's own arguments.
    let ask = || unsafe { next(handle, bytes, properties, flags) };
    // SAFETY: NULL, or properties that the driver itself would read.
    let location = unsafe { properties.as_ref() }.map(|properties| properties.location);
    let device = location.filter(|location| location.kind == LOCATION_DEVICE).map(|location| location.id);
    let gpu = device.and_then(|device| call.process.gpus.by_device(call.process, call.driver, device));
    let Some(gpu) = gpu.filter(|_| !handle.is_null() && bytes > 0) else { return ask() };
    let charge = match gate::reserve(call.process, gpu, bytes as u64) {
        Ok(charge) => charge,
        Err(code) => return code,
    };
    let code = charge.ask(ask);
    if code == SUCCESS {
        // SAFETY: the driver has just written it.
        call.process.physical.created(unsafe { *handle }, gpu, charge.bytes());
        charge.hand_over();
    }
    code
}

type Release = unsafe extern "C" fn(CUmemGenericAllocationHandle) -> Code;

/// `cuMemRelease`.
pub(super) unsafe fn release(call: &Call, next: Release, handle: CUmemGenericAllocationHandle) -> Code {
    let physical = &call.process.physical;
    let reference = physical.release(handle);
    // SAFETY: the caller's own argument.
    let code = unsafe { next(handle) };
    if code == SUCCESS {
        gate::gone(call.process, physical.released(reference));
    } else {
        physical.put_back(reference);
    }
    code
}

type Map = unsafe extern "C" fn(CUdeviceptr, usize, usize, CUmemGenericAllocationHandle, u64) -> Code;

/// `cuMemMap`.
pub(super) unsafe fn map(
    call: &Call,
    next: Map,
    address: CUdeviceptr,
    bytes: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
    flags: u64,
) -> Code {
    let physical = &call.process.physical;
    let pin = physical.pin(handle);
    // SAFETY: the caller's own arguments.
    let code = unsafe { next(address, bytes, offset, handle, flags) };
    if let Some(pin) = pin {
        let mapped = code == SUCCESS;
        let gone = if mapped { physical.mapped(address, bytes as u64, pin) } else { physical.unpin(pin) };
        gate::gone(call.process, gone);
    }
    code
}

type Unmap = unsafe extern "C" fn(CUdeviceptr, usize) -> Code;

/// `cuMemUnmap`: of everything mapped in the range.
pub(super) unsafe fn unmap(call: &Call, next: Unmap, address: CUdeviceptr, bytes: usize) -> Code {
    let unmapping = call.process.physical.unmapping(address, bytes as u64);
    // SAFETY: the caller's own arguments.
    let code = unsafe { next(address, bytes) };
    if code == SUCCESS {
        gate::gone(call.process, call.process.physical.unmapped(unmapping));
    }
    code
}

type Retain = unsafe extern "C" fn(*mut CUmemGenericAllocationHandle, *mut c_void) -> Code;

/// `cuMemRetainAllocationHandle`: one more reference to what is mapped at an address.
pub(super) unsafe fn retain(
    call: &Call,
    next: Retain,
    handle: *mut CUmemGenericAllocationHandle,
    address: *mut c_void,
) -> Code {
    // SAFETY: the caller's own arguments.
    let code = unsafe { next(handle, address) };
    if code == SUCCESS && !handle.is_null() {
        // SAFETY: the driver has just written it.
        call.process.physical.retained(unsafe { *handle }, address as u64);
    }
    code
}
