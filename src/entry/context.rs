//! Initialisation and contexts.

use super::*;
use crate::gate;
use crate::policy;
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
    mut ask: impl FnMut() -> Code,
) -> Code {
    // SAFETY: as promised to us.
    unsafe { made_by(call, created, context, device, &mut ask) }
}

#[inline(never)]
unsafe fn made_by(
    call: &Call,
    created: bool,
    context: *mut CUcontext,
    device: CUdevice,
    ask: &mut dyn FnMut() -> Code,
) -> Code {
    let met = || {
        if !context.is_null() {
            // SAFETY: the driver has just written it.
            call.process.contexts.made(call.process, call.driver, unsafe { *context }, created);
        }
    };
    making(call, created, device, ask, &met)
}

/// The way of every call that may make a context of `device`, `created` for itself or primary: where `ask` answers success, `met`
/// takes notice of it.
#[inline(never)]
pub(super) fn making(
    call: &Call,
    created: bool,
    device: CUdevice,
    ask: &mut dyn FnMut() -> Code,
    met: &dyn Fn(),
) -> Code {
    if !call.process.budget.permits() {
        return cuda::NOT_PERMITTED;
    }
    let charge = match gate::reserve_context(call.process, call.driver, device, created) {
        Ok(charge) => charge,
        Err(code) => return code,
    };
    let code = match &charge {
        Some(charge) => charge.ask(|| call.uncharged(&mut *ask)),
        None => call.uncharged(ask),
    };
    if code == SUCCESS {
        met();
    }
    // Until now, so that there is no moment at which the neighbours do not count it.
    drop(charge);
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

/// `cuCtxDestroy`.
pub(super) unsafe fn destroy(call: &Call, next: Destroy, context: CUcontext) -> Code {
    let contexts = &call.process.contexts;
    let dying = contexts.destroying(call.process, call.driver, context);
    // SAFETY: the caller's own argument.
    let code = unsafe { next(context) };
    contexts.ended(call.process, dying, code == SUCCESS);
    code
}

/// `cuCtxDetach`, which gives back one of the references that `cuCtxAttach` has taken: with the last of them the context goes.
pub(super) unsafe fn detach(call: &Call, next: Destroy, context: CUcontext) -> Code {
    let contexts = &call.process.contexts;
    let dying = contexts.destroying(call.process, call.driver, context);
    // SAFETY: the caller's own argument.
    let code = unsafe { next(context) };
    // SAFETY: a context that the driver has handed out; one that is gone is refused.
    let there = call.api().is_some_and(|api| unsafe { api.within(context, || ()) }.is_some());
    contexts.ended(call.process, dying, code == SUCCESS && !there);
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
    let before = call.process.contexts.primary_releasing(call.process, call.driver);
    // SAFETY: the caller's own argument.
    let code = unsafe { next(device) };
    if code == SUCCESS {
        call.process.contexts.primary_released(call.process, call.driver, device, before);
    }
    code
}

/// Tells limits, which have no handle, from what has one.
const NO_HANDLE: usize = 1 << (usize::BITS - 1);

type SetLimit = unsafe extern "C" fn(c_int, usize) -> Code;

/// `cuCtxSetLimit`: what stacks, the printf buffer and the heap of kernels take beyond their defaults, which are part of
/// what a context costs, is charged to the context. What several threads set at once is charged as the largest of it, until it
/// is set again.
pub(super) unsafe fn set_limit(call: &Call, next: SetLimit, limit: c_int, value: usize) -> Code {
    // SAFETY: the caller's own arguments.
    let ask = || unsafe { next(limit, value) };
    let Some((place, bytes)) =
        call.place().and_then(|place| Some((place, limit_bytes(call, place, limit, value)?)))
    else {
        return ask();
    };
    let (process, key) = (call.process, NO_HANDLE | usize::from(place.context.0) << 8 | limit as usize);
    let before = process.estimates.take(key).map_or(0, |held| held.bytes);
    let keep = |bytes| gate::keep_estimated(process, key, bytes, place);
    let charge = match gate::reserve(process, place.gpu, bytes.saturating_sub(before)) {
        Ok(charge) => charge,
        Err(code) => {
            keep(before);
            return code;
        }
    };
    let code = ask();
    if code != SUCCESS {
        keep(before);
        return code;
    }
    if let Some(index) = place.gpu.ledger {
        // The driver may take it as late as when a kernel needs it.
        process.ledger().more_estimated(index, charge.bytes());
    }
    charge.hand_over();
    keep(bytes);
    gate::give_back(process, Some(place.gpu), before.saturating_sub(bytes), true);
    code
}

/// What a limit takes beyond its default, in whole blocks; `None` for limits that take no memory.
fn limit_bytes(call: &Call, place: Place, limit: c_int, value: usize) -> Option<u64> {
    let (default, times) = match limit {
        LIMIT_STACK_SIZE => (1 << 10, threads_at_once(call, place)),
        LIMIT_PRINTF_FIFO_SIZE => (1 << 20, 1),
        LIMIT_MALLOC_HEAP_SIZE => (8 << 20, 1),
        _ => return None,
    };
    let extra = (value as u64).saturating_sub(default).checked_mul(times);
    Some(extra.map_or(u64::MAX, policy::blocks))
}

/// How many threads the card runs at the same time; each has a stack.
fn threads_at_once(call: &Call, place: Place) -> u64 {
    let Some(device) = call.process.gpus.device_of(call.driver, place.gpu) else { return 0 };
    let ask = |attribute| {
        let mut value = 0;
        // SAFETY: the output is a live local of the type that the driver fills.
        let asked = call.api().map(|api| unsafe { api.device_attribute(&mut value, attribute, device) });
        if asked == Some(Ok(())) { u64::try_from(value).unwrap_or(0) } else { 0 }
    };
    ask(ATTRIBUTE_MULTIPROCESSORS) * ask(ATTRIBUTE_THREADS_PER_MULTIPROCESSOR)
}
