//! Calls about many ranges of managed memory at once: as for one, plain memory is an invalid value there, and so is lazy.

use super::*;

/// Whether any of the ranges begins in lazy memory.
///
/// # Safety
/// `addresses` is NULL or what the driver itself would read `count` of.
unsafe fn any_lazy(call: &Call, addresses: *const CUdeviceptr, count: usize) -> bool {
    let lazy = &call.process.lazy;
    !addresses.is_null()
        && !lazy.is_empty()
        // SAFETY: passed on from the caller.
        && (0..count).any(|at| lazy.at(unsafe { addresses.add(at).read_unaligned() }).is_some())
}

type Prefetch = unsafe extern "C" fn(
    *mut CUdeviceptr,
    *mut usize,
    usize,
    *mut CUmemLocation,
    *mut usize,
    usize,
    u64,
    CUstream,
) -> Code;

/// `cuMemPrefetchBatchAsync` and `cuMemDiscardAndPrefetchBatchAsync`.
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn prefetch(
    call: &Call,
    next: Prefetch,
    addresses: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    places: *mut CUmemLocation,
    firsts: *mut usize,
    place_count: usize,
    flags: u64,
    stream: CUstream,
) -> Code {
    // SAFETY: lazy memory was made, so there is a driver that is up and reads the list.
    if unsafe { any_lazy(call, addresses, count) } {
        return cuda::INVALID_VALUE;
    }
    // SAFETY: the caller's own arguments.
    unsafe { next(addresses, sizes, count, places, firsts, place_count, flags, stream) }
}

type Discard = unsafe extern "C" fn(*mut CUdeviceptr, *mut usize, usize, u64, CUstream) -> Code;

/// `cuMemDiscardBatchAsync`.
pub(super) unsafe fn discard(
    call: &Call,
    next: Discard,
    addresses: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    flags: u64,
    stream: CUstream,
) -> Code {
    // SAFETY: as in `prefetch`.
    if unsafe { any_lazy(call, addresses, count) } {
        return cuda::INVALID_VALUE;
    }
    // SAFETY: the caller's own arguments.
    unsafe { next(addresses, sizes, count, flags, stream) }
}
