//! Memory that is backed on touch: making it in the place of plain memory, and answering about it as for plain memory.
//!
//! It is managed memory with the GPU as its preferred place. Wherever the driver would tell the two apart, the
//! program hears what it would hear of plain memory, save where that would be a promise nobody keeps: sharing by
//! `cuIpcGetMemHandle` is refused, and the attribute for it says so.

use super::*;
use crate::process::lazy::Piece;

/// Whether a request of `bytes` at `place` is to be backed on touch.
#[inline]
pub(super) fn is_wanted(call: &Call, place: &Place, bytes: u64) -> bool {
    bytes >= place.gpu.lazy_from() && !call.process.captures.are_open() && !call.process.lazy.is_stopped()
}

/// Makes `bytes` of such memory at `place`; `None` where the driver does not, and then plain memory may still be had.
pub(super) fn make(call: &Call, place: &Place, bytes: u64) -> Option<CUdeviceptr> {
    let made = try_make(call, place, bytes);
    if let Err(code) = made {
        log::say(
            Level::Info,
            format_args!("lazy memory is refused with {code}: {bytes} bytes are asked for as plain"),
        );
    }
    made.ok()
}

fn try_make(call: &Call, place: &Place, bytes: u64) -> Result<CUdeviceptr, Code> {
    let api = call.api().ok_or(cuda::NOT_FOUND)?;
    let (mut context, mut device, mut address) = (core::ptr::null_mut(), 0, 0);
    // SAFETY: the outputs of all three are live locals of the types that the driver fills.
    unsafe {
        api.ctx_get_current(&mut context)?;
        api.ctx_get_device(&mut device)?;
        api.mem_alloc_managed(&mut address, bytes as usize, ATTACH_GLOBAL)?;
    }
    let advised =
        [ADVISE_SET_PREFERRED_LOCATION, ADVISE_SET_ACCESSED_BY].into_iter().try_for_each(|advice| {
            // SAFETY: the range was given above, and nobody else has it yet.
            unsafe { api.mem_advise(address, bytes as usize, advice, device) }
        });
    if let Err(code) = advised {
        // SAFETY: as above.
        let _ = unsafe { api.mem_free(address) };
        return Err(code);
    }
    let context = call.process.contexts.lasting(call.process, call.driver, context);
    let piece = Piece::new(bytes, place.gpu, device, place.context, context, call.driver);
    call.process.lazy.insert(call.process, address, piece);
    Ok(address)
}

/// `cuMemFreeAsync` of such memory, which the driver takes only for plain memory: waits for the stream, then frees.
/// That may be done while a capture is open elsewhere, as the call it stands for may.
pub(super) fn free_async(call: &Call, address: CUdeviceptr, stream: CUstream) -> Code {
    let Some(api) = call.api() else { return cuda::NOT_FOUND };
    let free = || {
        // The default stream has one meaning or the other by the variant of the call; the context has both.
        let waited = match stream.is_null() {
            // SAFETY: takes nothing.
            true => unsafe { api.ctx_synchronize() },
            // SAFETY: the caller's stream, for the driver to judge.
            false => unsafe { api.stream_synchronize(stream) },
        };
        // SAFETY: memory of ours, which the caller gives up.
        let freed = waited.and_then(|()| unsafe { api.mem_free(address) });
        freed.err().unwrap_or(SUCCESS)
    };
    memory::freed(call, address, || api.relaxed(free).unwrap_or_else(free))
}

/// Corrects what the driver has just written about managed memory to what it would have written about plain.
///
/// # Safety
/// `value` points to what the driver fills for `attribute`.
unsafe fn correct(attribute: c_int, value: *mut c_void, piece: &Piece) {
    match attribute {
        // A boolean of a size that the interface leaves open: of a 1 the first byte is all.
        // SAFETY: the driver has just written at least that byte.
        POINTER_ATTRIBUTE_IS_MANAGED => unsafe { value.cast::<u8>().write(0) },
        // SAFETY: an `unsigned` by the interface.
        POINTER_ATTRIBUTE_MEMORY_TYPE => unsafe {
            value.cast::<c_uint>().write_unaligned(MEMORY_TYPE_DEVICE)
        },
        // SAFETY: an `int` by the interface.
        POINTER_ATTRIBUTE_DEVICE_ORDINAL => unsafe { value.cast::<c_int>().write_unaligned(piece.device) },
        _ => {}
    }
}

type PointerAttribute = unsafe extern "C" fn(*mut c_void, c_int, CUdeviceptr) -> Code;

/// `cuPointerGetAttribute`.
pub(super) unsafe fn pointer_attribute(
    call: &Call,
    next: PointerAttribute,
    value: *mut c_void,
    attribute: c_int,
    address: CUdeviceptr,
) -> Code {
    let piece = call.process.lazy.at(address);
    if piece.is_some() && attribute == POINTER_ATTRIBUTE_HOST_POINTER {
        return cuda::INVALID_VALUE;
    }
    // SAFETY: the caller's own arguments.
    let code = unsafe { next(value, attribute, address) };
    if let Some(piece) = piece.filter(|_| code == SUCCESS && !value.is_null()) {
        // SAFETY: the driver has just filled it.
        unsafe { correct(attribute, value, &piece) };
    }
    code
}

type PointerAttributes = unsafe extern "C" fn(c_uint, *mut c_int, *mut *mut c_void, CUdeviceptr) -> Code;

/// `cuPointerGetAttributes`, which answers what does not apply with zeros.
pub(super) unsafe fn pointer_attributes(
    call: &Call,
    next: PointerAttributes,
    count: c_uint,
    attributes: *mut c_int,
    values: *mut *mut c_void,
    address: CUdeviceptr,
) -> Code {
    let piece = call.process.lazy.at(address);
    // SAFETY: the caller's own arguments.
    let code = unsafe { next(count, attributes, values, address) };
    let Some(piece) = piece.filter(|_| code == SUCCESS && !attributes.is_null() && !values.is_null()) else {
        return code;
    };
    for at in 0..count as usize {
        // SAFETY: the driver has just read both arrays that far, and filled what the second points to.
        unsafe {
            let (attribute, value) = (*attributes.add(at), *values.add(at));
            if value.is_null() {
                continue;
            }
            if attribute == POINTER_ATTRIBUTE_HOST_POINTER {
                value.cast::<*mut c_void>().write_unaligned(core::ptr::null_mut());
            }
            correct(attribute, value, &piece);
        }
    }
    code
}

/// What is only for managed memory: plain memory is an invalid value there, and so is this.
fn for_managed(call: &Call, address: CUdeviceptr, ask: impl FnOnce() -> Code) -> Code {
    if call.process.lazy.at(address).is_some() { cuda::INVALID_VALUE } else { ask() }
}

type Prefetch = unsafe extern "C" fn(CUdeviceptr, usize, CUdevice, CUstream) -> Code;

/// `cuMemPrefetchAsync`.
pub(super) unsafe fn prefetch(
    call: &Call,
    next: Prefetch,
    address: CUdeviceptr,
    bytes: usize,
    device: CUdevice,
    stream: CUstream,
) -> Code {
    // SAFETY: the caller's own arguments.
    for_managed(call, address, || unsafe { next(address, bytes, device, stream) })
}

type PrefetchV2 = unsafe extern "C" fn(CUdeviceptr, usize, CUmemLocation, c_uint, CUstream) -> Code;

/// `cuMemPrefetchAsync` to any place.
pub(super) unsafe fn prefetch_v2(
    call: &Call,
    next: PrefetchV2,
    address: CUdeviceptr,
    bytes: usize,
    location: CUmemLocation,
    flags: c_uint,
    stream: CUstream,
) -> Code {
    // SAFETY: the caller's own arguments.
    for_managed(call, address, || unsafe { next(address, bytes, location, flags, stream) })
}

type Advise = unsafe extern "C" fn(CUdeviceptr, usize, c_int, CUdevice) -> Code;

/// `cuMemAdvise`.
pub(super) unsafe fn advise(
    call: &Call,
    next: Advise,
    address: CUdeviceptr,
    bytes: usize,
    advice: c_int,
    device: CUdevice,
) -> Code {
    // SAFETY: the caller's own arguments.
    for_managed(call, address, || unsafe { next(address, bytes, advice, device) })
}

type AdviseV2 = unsafe extern "C" fn(CUdeviceptr, usize, c_int, CUmemLocation) -> Code;

/// `cuMemAdvise` about any place.
pub(super) unsafe fn advise_v2(
    call: &Call,
    next: AdviseV2,
    address: CUdeviceptr,
    bytes: usize,
    advice: c_int,
    location: CUmemLocation,
) -> Code {
    // SAFETY: the caller's own arguments.
    for_managed(call, address, || unsafe { next(address, bytes, advice, location) })
}

type RangeAttribute = unsafe extern "C" fn(*mut c_void, usize, c_int, CUdeviceptr, usize) -> Code;

/// `cuMemRangeGetAttribute`.
pub(super) unsafe fn range_attribute(
    call: &Call,
    next: RangeAttribute,
    value: *mut c_void,
    size: usize,
    attribute: c_int,
    address: CUdeviceptr,
    bytes: usize,
) -> Code {
    // SAFETY: the caller's own arguments.
    for_managed(call, address, || unsafe { next(value, size, attribute, address, bytes) })
}

type RangeAttributes =
    unsafe extern "C" fn(*mut *mut c_void, *mut usize, *mut c_int, usize, CUdeviceptr, usize) -> Code;

/// `cuMemRangeGetAttributes`.
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn range_attributes(
    call: &Call,
    next: RangeAttributes,
    values: *mut *mut c_void,
    sizes: *mut usize,
    attributes: *mut c_int,
    count: usize,
    address: CUdeviceptr,
    bytes: usize,
) -> Code {
    // SAFETY: the caller's own arguments.
    for_managed(call, address, || unsafe { next(values, sizes, attributes, count, address, bytes) })
}

type Attach = unsafe extern "C" fn(CUstream, CUdeviceptr, usize, c_uint) -> Code;

/// `cuStreamAttachMemAsync`.
pub(super) unsafe fn attach(
    call: &Call,
    next: Attach,
    stream: CUstream,
    address: CUdeviceptr,
    bytes: usize,
    flags: c_uint,
) -> Code {
    // SAFETY: the caller's own arguments.
    for_managed(call, address, || unsafe { next(stream, address, bytes, flags) })
}

type IpcHandle = unsafe extern "C" fn(*mut c_void, CUdeviceptr) -> Code;

/// `cuIpcGetMemHandle`. The program holds the address already, and no plain memory can be put there: the driver
/// refuses, and what the program allocates from now on is plain.
pub(super) unsafe fn ipc_handle(
    call: &Call,
    next: IpcHandle,
    handle: *mut c_void,
    address: CUdeviceptr,
) -> Code {
    if call.process.lazy.at(address).is_some() && call.process.lazy.stop() {
        log::say(
            Level::Warn,
            format_args!(
                "lazy memory cannot be shared by cuIpcGetMemHandle; this process gets plain memory from now on \
                 (growth = \"hints\", or a larger lazy_from, gives it from the start)"
            ),
        );
    }
    // SAFETY: the caller's own arguments.
    let code = unsafe { next(handle, address) };
    if code == SUCCESS && !handle.is_null() {
        // SAFETY: the driver has just filled it.
        unsafe { share::ipc_exported(call, handle, address) };
    }
    code
}
