//! Plain, pitched and managed memory.

use super::*;
use crate::gate;
use crate::process::allocations::{Owner, Record};

type Alloc = unsafe extern "C" fn(*mut CUdeviceptr, usize) -> Code;

/// `cuMemAlloc`.
pub(super) unsafe fn alloc(call: &Call, next: Alloc, address: *mut CUdeviceptr, bytes: usize) -> Code {
    // SAFETY: the caller's own arguments.
    let ask = || unsafe { next(address, bytes) };
    // SAFETY: read after the driver wrote it.
    granted(call, (!address.is_null()).then_some(bytes as u64), false, ask, || unsafe {
        (*address, bytes as u64)
    })
}

type AllocV1 = unsafe extern "C" fn(*mut CUdeviceptr_v1, c_uint) -> Code;

/// `cuMemAlloc` of the 32-bit interface.
pub(super) unsafe fn alloc_v1(
    call: &Call,
    next: AllocV1,
    address: *mut CUdeviceptr_v1,
    bytes: c_uint,
) -> Code {
    // SAFETY: the caller's own arguments.
    let ask = || unsafe { next(address, bytes) };
    let size = u64::from(bytes);
    // SAFETY: read after the driver wrote it.
    granted(call, (!address.is_null()).then_some(size), false, ask, || unsafe { (u64::from(*address), size) })
}

type AllocManaged = unsafe extern "C" fn(*mut CUdeviceptr, usize, c_uint) -> Code;

/// `cuMemAllocManaged`: charged in full, since the GPU may come to hold all of it.
pub(super) unsafe fn alloc_managed(
    call: &Call,
    next: AllocManaged,
    address: *mut CUdeviceptr,
    bytes: usize,
    flags: c_uint,
) -> Code {
    // SAFETY: the caller's own arguments.
    let ask = || unsafe { next(address, bytes, flags) };
    let wanted = (!address.is_null()).then_some(bytes as u64);
    // SAFETY: read after the driver wrote it.
    granted(call, wanted, true, ask, || unsafe { (*address, bytes as u64) })
}

/// Rows of a pitched allocation are padded to this at the least; the driver says what they really take.
const PITCH: u64 = 512;

fn pitched(width: u64, height: u64) -> u64 {
    width.checked_next_multiple_of(PITCH).and_then(|row| row.checked_mul(height)).unwrap_or(u64::MAX)
}

type AllocPitch = unsafe extern "C" fn(*mut CUdeviceptr, *mut usize, usize, usize, c_uint) -> Code;

/// `cuMemAllocPitch`.
pub(super) unsafe fn alloc_pitch(
    call: &Call,
    next: AllocPitch,
    address: *mut CUdeviceptr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: c_uint,
) -> Code {
    // SAFETY: the caller's own arguments.
    let ask = || unsafe { next(address, pitch, width, height, element) };
    let valid = !address.is_null() && !pitch.is_null();
    // SAFETY: read after the driver wrote them.
    granted(call, valid.then(|| pitched(width as u64, height as u64)), false, ask, || unsafe {
        (*address, (*pitch as u64).saturating_mul(height as u64))
    })
}

type AllocPitchV1 = unsafe extern "C" fn(*mut CUdeviceptr_v1, *mut c_uint, c_uint, c_uint, c_uint) -> Code;

/// `cuMemAllocPitch` of the 32-bit interface.
pub(super) unsafe fn alloc_pitch_v1(
    call: &Call,
    next: AllocPitchV1,
    address: *mut CUdeviceptr_v1,
    pitch: *mut c_uint,
    width: c_uint,
    height: c_uint,
    element: c_uint,
) -> Code {
    // SAFETY: the caller's own arguments.
    let ask = || unsafe { next(address, pitch, width, height, element) };
    let valid = !address.is_null() && !pitch.is_null();
    // SAFETY: read after the driver wrote them.
    granted(call, valid.then(|| pitched(u64::from(width), u64::from(height))), false, ask, || unsafe {
        (u64::from(*address), u64::from(*pitch) * u64::from(height))
    })
}

/// The way of every request for addresses: reserve, ask the driver, record what it gave.
///
/// The card may come to hold less than is charged where that is `estimated`. `bytes` is `None` where an output is NULL.
/// That, a size of 0 and a thread without a context get the driver's own answer.
#[inline]
fn granted(
    call: &Call,
    bytes: Option<u64>,
    estimated: bool,
    ask: impl FnOnce() -> Code,
    given: impl FnOnce() -> (u64, u64),
) -> Code {
    let (Some(bytes), Some(place)) = (bytes.filter(|bytes| *bytes > 0), call.place()) else { return ask() };
    let charge = match gate::reserve(call.process, place.gpu, bytes) {
        Ok(charge) => charge,
        Err(code) => return code,
    };
    let code = ask();
    if code == SUCCESS {
        let (address, bytes) = given();
        let record = Record { bytes, owner: Owner::Context(place.context), estimated };
        let taken = call.process.allocations.insert(address, record);
        charge.settle(taken);
        if let Some(index) = place.gpu.ledger.filter(|_| estimated) {
            call.process.ledger().more_estimated(index, taken);
        }
    }
    code
}

type Free = unsafe extern "C" fn(CUdeviceptr) -> Code;

/// `cuMemFree`.
pub(super) unsafe fn free(call: &Call, next: Free, address: CUdeviceptr) -> Code {
    // SAFETY: the caller's own argument.
    freed(call, address, || unsafe { next(address) })
}

type FreeV1 = unsafe extern "C" fn(CUdeviceptr_v1) -> Code;

/// `cuMemFree` of the 32-bit interface.
pub(super) unsafe fn free_v1(call: &Call, next: FreeV1, address: CUdeviceptr_v1) -> Code {
    // SAFETY: the caller's own argument.
    freed(call, u64::from(address), || unsafe { next(address) })
}

/// The way of every free: the driver decides, and what it freed is given back. An address that is not ours goes to
/// the driver untouched.
#[inline]
pub(super) fn freed(call: &Call, address: u64, ask: impl FnOnce() -> Code) -> Code {
    let process = call.process;
    let Some(taken) = process.allocations.take(address) else { return ask() };
    let code = ask();
    if code == SUCCESS {
        gate::freed(process, taken);
    } else {
        gate::not_freed(process, address, taken);
    }
    code
}
