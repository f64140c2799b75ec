//! Plain, pitched and managed memory.

use super::*;
use crate::gate::{self, Charge};
use crate::process::allocations::{Owner, Record};

type Alloc = unsafe extern "C" fn(*mut CUdeviceptr, usize) -> Code;

/// `cuMemAlloc`.
pub(super) unsafe fn alloc(call: &Call, next: Alloc, address: *mut CUdeviceptr, bytes: usize) -> Code {
    let ask = |place: Option<&Place>| {
        let lazy = place.filter(|place| lazy::is_wanted(call, place, bytes as u64));
        match lazy.and_then(|place| lazy::make(call, place, bytes as u64)) {
            Some(given) => {
                // SAFETY: not NULL where there is a place.
                unsafe { *address = given };
                Answer { code: SUCCESS, estimated: true }
            }
            // SAFETY: the caller's own arguments.
            None => Answer::exact(unsafe { next(address, bytes) }),
        }
    };
    // SAFETY: read after it was written.
    granted(call, (!address.is_null()).then_some(bytes as u64), ask, || unsafe { (*address, bytes as u64) })
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
    let ask = |_: Option<&Place>| Answer::exact(unsafe { next(address, bytes) });
    let size = u64::from(bytes);
    // SAFETY: read after the driver wrote it.
    granted(call, (!address.is_null()).then_some(size), ask, || unsafe { (u64::from(*address), size) })
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
    let ask = |_: Option<&Place>| Answer { code: unsafe { next(address, bytes, flags) }, estimated: true };
    let wanted = (!address.is_null()).then_some(bytes as u64);
    // SAFETY: read after the driver wrote it.
    granted(call, wanted, ask, || unsafe { (*address, bytes as u64) })
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
    let ask = |place: Option<&Place>| {
        let lazy = place.filter(|place| lazy::is_wanted(call, place, pitched(width as u64, height as u64)));
        let made = lazy.and_then(|place| {
            // What a row takes, one row says; the driver judges the arguments by the way.
            let (mut row, mut taken) = (0, 0);
            // SAFETY: the outputs are live locals of the types that the driver fills.
            let code = unsafe { next(&mut row, &mut taken, width, 1, element) };
            if code != SUCCESS {
                return None;
            }
            // SAFETY: the row was given above, and nobody else has it.
            unsafe { call.api()?.mem_free(row) }.ok()?;
            Some((lazy::make(call, place, (taken as u64).checked_mul(height as u64)?)?, taken))
        });
        match made {
            Some((given, taken)) => {
                // SAFETY: neither is NULL where there is a place.
                unsafe { (*address, *pitch) = (given, taken) };
                Answer { code: SUCCESS, estimated: true }
            }
            // SAFETY: the caller's own arguments.
            None => Answer::exact(unsafe { next(address, pitch, width, height, element) }),
        }
    };
    let valid = !address.is_null() && !pitch.is_null();
    // SAFETY: read after the driver wrote them.
    granted(call, valid.then(|| pitched(width as u64, height as u64)), ask, || unsafe {
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
    let ask = |_: Option<&Place>| Answer::exact(unsafe { next(address, pitch, width, height, element) });
    let valid = !address.is_null() && !pitch.is_null();
    // SAFETY: read after the driver wrote them.
    granted(call, valid.then(|| pitched(u64::from(width), u64::from(height))), ask, || unsafe {
        (u64::from(*address), u64::from(*pitch) * u64::from(height))
    })
}

/// What a request was answered.
struct Answer {
    code: Code,
    /// Whether the card may come to hold less than is charged.
    estimated: bool,
}

impl Answer {
    fn exact(code: Code) -> Answer {
        Answer { code, estimated: false }
    }
}

/// The way of every request for addresses: reserve, ask the driver, record what it gave.
///
/// `ask` is told where the request lands, if it is ours to charge. `bytes` is `None` where an output is NULL. That, a
/// size of 0 and a thread without a context get the driver's own answer.
#[inline]
fn granted(
    call: &Call,
    bytes: Option<u64>,
    mut ask: impl FnMut(Option<&Place>) -> Answer,
    given: impl FnOnce() -> (u64, u64),
) -> Code {
    let (Some(bytes), Some(place)) = (bytes.filter(|bytes| *bytes > 0), call.place()) else {
        return ask(None).code;
    };
    let charge = match gate::reserve(call.process, place.gpu, bytes) {
        Ok(charge) => charge,
        Err(code) => return code,
    };
    let mut estimated = false;
    let code = charge.ask(|| {
        let answer = ask(Some(&place));
        estimated = answer.estimated;
        answer.code
    });
    if code == SUCCESS {
        let (address, bytes) = given();
        record(call, &place, charge, address, bytes, estimated);
    }
    code
}

/// Records what the driver has given. Here once for all requests.
#[inline(never)]
fn record(call: &Call, place: &Place, charge: Charge, address: u64, bytes: u64, estimated: bool) {
    let record = Record { bytes, owner: Owner::Context(place.context), estimated };
    if call.process.contexts.is_any_gone()
        && !gate::replaced(call.process, place.gpu, address, Some(place.context))
    {
        return;
    }
    let taken = call.process.allocations.insert(address, record);
    charge.settle(taken);
    if let Some(index) = place.gpu.ledger.filter(|_| estimated) {
        call.process.ledger().more_estimated(index, taken);
    }
    if call.process.contexts.is_any_gone_since(call.thread) {
        gate::forget_if_gone(call.process, address, place.context, Some(place.gpu));
    }
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
    if call.process.sharing.is_any() {
        let mut ask = Some(ask);
        return share::freed(call, address, &mut || ask.take().map_or(cuda::UNKNOWN, |ask| ask()));
    }
    freed_here(call, address, ask)
}

/// As [`freed`], of what no other process can have.
#[inline]
pub(super) fn freed_here(call: &Call, address: u64, ask: impl FnOnce() -> Code) -> Code {
    let process = call.process;
    let Some(taken) = process.allocations.take(address) else {
        let code = ask();
        if code == SUCCESS {
            process.graphs.freed(address);
        }
        return code;
    };
    let gpu = gate::card_of(process, taken);
    let lazy = if taken.record.estimated { process.lazy.take(process, address) } else { None };
    let code = ask();
    if code == SUCCESS {
        gate::freed(process, taken, gpu);
    } else {
        if let Some(piece) = lazy {
            process.lazy.insert(process, address, piece);
        }
        gate::not_freed(process, address, taken, gpu);
    }
    code
}
