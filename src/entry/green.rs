//! Green contexts, which keep the primary context of their device and stand in its place.

use super::*;

type Create = unsafe extern "C" fn(*mut CUgreenCtx, *mut c_void, CUdevice, c_uint) -> Code;

/// `cuGreenCtxCreate`: the first to keep the primary context makes it. What a green context takes beside that nobody says, and
/// nothing is charged for it.
pub(super) unsafe fn create(
    call: &Call,
    next: Create,
    green: *mut CUgreenCtx,
    descriptor: *mut c_void,
    device: CUdevice,
    flags: c_uint,
) -> Code {
    // SAFETY: the caller's own arguments.
    let mut ask = || unsafe { next(green, descriptor, device, flags) };
    let met = || {
        if !green.is_null() {
            // SAFETY: the driver has just written it.
            call.process.contexts.green_made(call.process, call.driver, unsafe { *green }, device);
        }
    };
    context::making(call, false, device, &mut ask, &met)
}

type Destroy = unsafe extern "C" fn(CUgreenCtx) -> Code;

/// `cuGreenCtxDestroy`.
pub(super) unsafe fn destroy(call: &Call, next: Destroy, green: CUgreenCtx) -> Code {
    let contexts = &call.process.contexts;
    let leaving = contexts.green_leaving(call.driver, green);
    let before = contexts.primary_releasing(call.process, call.driver);
    // SAFETY: the caller's own argument.
    let code = unsafe { next(green) };
    match leaving {
        Some(leaving) if code == SUCCESS => {
            contexts.primary_released(call.process, call.driver, leaving.device, before);
        }
        Some(leaving) => contexts.green_stays(leaving),
        None => {}
    }
    code
}

type StandIn = unsafe extern "C" fn(*mut CUcontext, CUgreenCtx) -> Code;

/// `cuCtxFromGreenCtx`.
pub(super) unsafe fn stand_in(
    call: &Call,
    next: StandIn,
    context: *mut CUcontext,
    green: CUgreenCtx,
) -> Code {
    // SAFETY: the caller's own arguments.
    let code = unsafe { next(context, green) };
    if code == SUCCESS && !context.is_null() {
        // SAFETY: the driver has just written it.
        call.process.contexts.green_stands(call.driver, green, unsafe { *context });
    }
    code
}
