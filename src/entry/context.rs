//! Initialisation and contexts.

use super::*;
use crate::gate;
use crate::process::bus::Visibility;

type Init = unsafe extern "C" fn(c_uint) -> Code;

/// `cuInit`: where the quota is refused, so is everything.
pub(super) unsafe fn init(call: &Call, next: Init, flags: c_uint) -> Code {
    if !call.process.budget.permits() {
        return cuda::NOT_PERMITTED;
    }
    // Which cards there are to this process is decided now.
    let visibility = Visibility::look();
    // SAFETY: the caller's own argument.
    let code = call.uncharged(|| unsafe { next(flags) });
    if code == SUCCESS {
        call.process.gpus.started(call.process, call.driver, visibility);
        // A beginning of a UUID in the quota file may turn out to fit several cards.
        if !call.process.budget.permits() {
            return cuda::NOT_PERMITTED;
        }
    }
    code
}

/// The way of every call that makes or hands out a context.
///
/// # Safety
/// Where `ask` answers success it wrote `context`.
unsafe fn made(
    call: &Call,
    created: bool,
    context: *mut CUcontext,
    device: CUdevice,
    ask: impl FnOnce() -> Code,
) -> Code {
    if !call.process.budget.permits() {
        return cuda::NOT_PERMITTED;
    }
    let charge = match gate::reserve_context(call.process, call.driver, device, created) {
        Ok(charge) => charge,
        Err(code) => return code,
    };
    let code = call.uncharged(ask);
    // Charged below for what it is, which can only be seen while nothing else is charged for it.
    drop(charge);
    if code == SUCCESS && !context.is_null() {
        // SAFETY: the driver has just written it.
        call.process.contexts.made(call.process, call.driver, unsafe { *context }, created);
    }
    code
}

type Create = unsafe extern "C" fn(*mut CUcontext, c_uint, CUdevice) -> Code;

/// `cuCtxCreate`, first and second version.
pub(super) unsafe fn create(
    call: &Call,
    next: Create,
    context: *mut CUcontext,
    flags: c_uint,
    device: CUdevice,
) -> Code {
    // SAFETY: the caller's own arguments.
    unsafe { made(call, true, context, device, || next(context, flags, device)) }
}

type CreateV3 = unsafe extern "C" fn(*mut CUcontext, *const c_void, c_int, c_uint, CUdevice) -> Code;

/// `cuCtxCreate` with execution affinities.
pub(super) unsafe fn create_v3(
    call: &Call,
    next: CreateV3,
    context: *mut CUcontext,
    affinity: *const c_void,
    count: c_int,
    flags: c_uint,
    device: CUdevice,
) -> Code {
    // SAFETY: the caller's own arguments.
    unsafe { made(call, true, context, device, || next(context, affinity, count, flags, device)) }
}

type CreateV4 = unsafe extern "C" fn(*mut CUcontext, *const c_void, c_uint, CUdevice) -> Code;

/// `cuCtxCreate` with parameters.
pub(super) unsafe fn create_v4(
    call: &Call,
    next: CreateV4,
    context: *mut CUcontext,
    parameters: *const c_void,
    flags: c_uint,
    device: CUdevice,
) -> Code {
    // SAFETY: the caller's own arguments.
    unsafe { made(call, true, context, device, || next(context, parameters, flags, device)) }
}

type Destroy = unsafe extern "C" fn(CUcontext) -> Code;

/// `cuCtxDestroy` and `cuCtxDetach`.
pub(super) unsafe fn destroy(call: &Call, next: Destroy, context: CUcontext) -> Code {
    // SAFETY: the caller's own argument.
    let code = unsafe { next(context) };
    if code == SUCCESS {
        call.process.contexts.destroyed(call.process, call.driver, context);
    }
    code
}

type RetainPrimary = unsafe extern "C" fn(*mut CUcontext, CUdevice) -> Code;

/// `cuDevicePrimaryCtxRetain`: the first reference makes the context.
pub(super) unsafe fn retain_primary(
    call: &Call,
    next: RetainPrimary,
    context: *mut CUcontext,
    device: CUdevice,
) -> Code {
    // SAFETY: the caller's own arguments.
    unsafe { made(call, false, context, device, || next(context, device)) }
}

type ReleasePrimary = unsafe extern "C" fn(CUdevice) -> Code;

/// `cuDevicePrimaryCtxRelease` and `cuDevicePrimaryCtxReset`.
pub(super) unsafe fn release_primary(call: &Call, next: ReleasePrimary, device: CUdevice) -> Code {
    // SAFETY: the caller's own argument.
    let code = unsafe { next(device) };
    if code == SUCCESS {
        call.process.contexts.primary_released(call.process, call.driver, device);
    }
    code
}
