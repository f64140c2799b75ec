//! What a program sees of its GPU.

use super::*;
use crate::policy::{self, Memory};
use crate::process::gpus::Gpu;

/// What the container holds on `gpu`.
fn used(call: &Call, gpu: &Gpu) -> u64 {
    call.process.tend();
    call.process.catch_up(call.driver);
    gpu.ledger.map_or(0, |index| call.process.ledger().used(index))
}

/// What of a card's physical memory the container's programs see.
pub(super) fn visible(call: &Call, gpu: &Gpu, physical: Memory) -> Memory {
    let used = used(call, gpu);
    let left = call.process.left_beside(gpu, physical.free);
    policy::visible(Memory { free: physical.free.min(left), ..physical }, gpu.limit(), used)
}

type MemGetInfo = unsafe extern "C" fn(*mut usize, *mut usize) -> Code;

/// `cuMemGetInfo`. Either output may be NULL: the driver decides what it makes of that.
pub(super) unsafe fn mem_get_info(
    call: &Call,
    next: MemGetInfo,
    free: *mut usize,
    total: *mut usize,
) -> Code {
    if !call.process.budget.permits() {
        return cuda::NOT_PERMITTED;
    }
    let (mut physical_free, mut physical_total) = (0, 0);
    let or_null = |wanted: *mut usize, local: &mut usize| {
        if wanted.is_null() { core::ptr::null_mut() } else { core::ptr::from_mut(local) }
    };
    // SAFETY: NULL where the caller passed NULL, and live locals otherwise.
    let code = unsafe { next(or_null(free, &mut physical_free), or_null(total, &mut physical_total)) };
    if code != SUCCESS {
        return code;
    }
    let physical = Memory {
        total: if total.is_null() { u64::MAX } else { physical_total as u64 },
        free: if free.is_null() { u64::MAX } else { physical_free as u64 },
    };
    let seen = match call.place() {
        Some(place) => {
            visible(call, place.gpu, Memory { total: physical.total.min(place.gpu.physical()), ..physical })
        }
        None => physical,
    };
    // SAFETY: the caller's outputs, which the driver's function would have written; NULL ones are left out.
    unsafe {
        if let Some(free) = free.as_mut() {
            *free = seen.free as usize;
        }
        if let Some(total) = total.as_mut() {
            *total = seen.total as usize;
        }
    }
    SUCCESS
}

type MemGetInfoV1 = unsafe extern "C" fn(*mut c_uint, *mut c_uint) -> Code;

/// `cuMemGetInfo` of the 32-bit interface.
pub(super) unsafe fn mem_get_info_v1(
    call: &Call,
    next: MemGetInfoV1,
    free: *mut c_uint,
    total: *mut c_uint,
) -> Code {
    if !call.process.budget.permits() {
        return cuda::NOT_PERMITTED;
    }
    let (mut physical_free, mut physical_total) = (0, 0);
    let or_null = |wanted: *mut c_uint, local: &mut c_uint| {
        if wanted.is_null() { core::ptr::null_mut() } else { core::ptr::from_mut(local) }
    };
    // SAFETY: NULL where the caller passed NULL, and live locals otherwise.
    let code = unsafe { next(or_null(free, &mut physical_free), or_null(total, &mut physical_total)) };
    if code != SUCCESS {
        return code;
    }
    if let Some(place) = call.place() {
        let physical = Memory { total: place.gpu.physical(), free: u64::MAX };
        let seen = visible(call, place.gpu, physical);
        physical_free = physical_free.min(saturate(seen.free));
        physical_total = physical_total.min(saturate(seen.total));
    }
    // SAFETY: the caller's outputs, which the driver's function would have written; NULL ones are left out.
    unsafe {
        if let Some(free) = free.as_mut() {
            *free = physical_free;
        }
        if let Some(total) = total.as_mut() {
            *total = physical_total;
        }
    }
    SUCCESS
}

fn saturate(bytes: u64) -> c_uint {
    c_uint::try_from(bytes).unwrap_or(c_uint::MAX)
}

type DeviceTotalMem = unsafe extern "C" fn(*mut usize, CUdevice) -> Code;

/// `cuDeviceTotalMem`.
pub(super) unsafe fn device_total_mem(
    call: &Call,
    next: DeviceTotalMem,
    bytes: *mut usize,
    device: CUdevice,
) -> Code {
    // SAFETY: the caller's own arguments.
    let asked = || unsafe { next(bytes, device) };
    let total = |total: usize, limit: u64| (total as u64).min(limit) as usize;
    // SAFETY: the driver has just written it.
    unsafe { limited_total(call, device, asked, bytes, total) }
}

type DeviceTotalMemV1 = unsafe extern "C" fn(*mut c_uint, CUdevice) -> Code;

/// `cuDeviceTotalMem` of the 32-bit interface.
pub(super) unsafe fn device_total_mem_v1(
    call: &Call,
    next: DeviceTotalMemV1,
    bytes: *mut c_uint,
    device: CUdevice,
) -> Code {
    // SAFETY: the caller's own arguments.
    let asked = || unsafe { next(bytes, device) };
    let total = |total: c_uint, limit: u64| total.min(saturate(limit));
    // SAFETY: the driver has just written it.
    unsafe { limited_total(call, device, asked, bytes, total) }
}

/// # Safety
/// Where `asked` answers success, `bytes` can be read and written.
unsafe fn limited_total<T: Copy>(
    call: &Call,
    device: CUdevice,
    asked: impl FnOnce() -> Code,
    bytes: *mut T,
    limited: impl Fn(T, u64) -> T,
) -> Code {
    if !call.process.budget.permits() {
        return cuda::NOT_PERMITTED;
    }
    let code = asked();
    if code == SUCCESS
        && let Some(gpu) = call.process.gpus.by_device(call.process, call.driver, device)
    {
        call.process.tend();
        // SAFETY: the driver wrote it, as it answered success.
        unsafe { *bytes = limited(*bytes, gpu.limit()) };
    }
    code
}
