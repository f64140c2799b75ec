//! Stream capture: while one is open, some questions to the driver would invalidate it, so it is known that one is.

use core::sync::atomic::Ordering;

use super::*;

type BeginV1 = unsafe extern "C" fn(CUstream) -> Code;

/// `cuStreamBeginCapture` before modes.
pub(super) unsafe fn begin_v1(call: &Call, next: BeginV1, stream: CUstream) -> Code {
    // SAFETY: the caller's own arguments.
    begun(call, || unsafe { next(stream) })
}

type Begin = unsafe extern "C" fn(CUstream, c_int) -> Code;

/// `cuStreamBeginCapture`.
pub(super) unsafe fn begin(call: &Call, next: Begin, stream: CUstream, mode: c_int) -> Code {
    // SAFETY: the caller's own arguments.
    begun(call, || unsafe { next(stream, mode) })
}

type BeginToGraph =
    unsafe extern "C" fn(CUstream, CUgraph, *const c_void, *const c_void, usize, c_int) -> Code;

/// `cuStreamBeginCaptureToGraph`.
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn begin_to_graph(
    call: &Call,
    next: BeginToGraph,
    stream: CUstream,
    graph: CUgraph,
    dependencies: *const c_void,
    edges: *const c_void,
    count: usize,
    mode: c_int,
) -> Code {
    // SAFETY: the caller's own arguments.
    begun(call, || unsafe { next(stream, graph, dependencies, edges, count, mode) })
}

/// Counted before the driver is asked: another thread may ask a question at any moment after that.
fn begun(call: &Call, ask: impl FnOnce() -> Code) -> Code {
    let captures = &call.process.captures;
    captures.fetch_add(1, Ordering::SeqCst);
    let code = ask();
    if code != SUCCESS {
        captures.fetch_sub(1, Ordering::SeqCst);
    }
    code
}

type End = unsafe extern "C" fn(CUstream, *mut CUgraph) -> Code;

/// `cuStreamEndCapture`. A capture that was invalidated ends with an error.
pub(super) unsafe fn end(call: &Call, next: End, stream: CUstream, graph: *mut CUgraph) -> Code {
    let was_open = is_captured(call, stream);
    // SAFETY: the caller's own arguments.
    let code = unsafe { next(stream, graph) };
    if was_open && !is_captured(call, stream) {
        let one_less = |captures: usize| captures.checked_sub(1);
        let _ = call.process.captures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less);
    }
    code
}

/// What the per-thread variants of functions mean by a stream.
pub(super) fn per_thread(stream: CUstream) -> CUstream {
    if stream.is_null() { PER_THREAD_STREAM } else { stream }
}

/// Whether `stream` is being captured. Asks the driver only while a capture is open somewhere.
pub(super) fn is_captured(call: &Call, stream: CUstream) -> bool {
    if call.process.captures.load(Ordering::SeqCst) == 0 {
        return false;
    }
    let mut status = CAPTURE_STATUS_NONE;
    let Some(api) = call.api() else { return false };
    // SAFETY: the caller's stream; the output is a live local of the type that the driver fills.
    unsafe { api.stream_is_capturing(stream, &mut status) }.is_ok() && status != CAPTURE_STATUS_NONE
}
