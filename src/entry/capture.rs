//! Stream capture: while one is open, some questions to the driver would invalidate it, so it is known that one is.

use super::*;

type BeginV1 = unsafe extern "C" fn(CUstream) -> Code;

/// `cuStreamBeginCapture` before modes.
pub(super) unsafe fn begin_v1(call: &Call, next: BeginV1, stream: CUstream) -> Code {
    // SAFETY: the caller's own arguments.
    begun(call, stream, &mut || unsafe { next(stream) })
}

/// `cuStreamBeginCapture` before modes, where no stream is the thread's own.
pub(super) unsafe fn begin_v1_ptsz(call: &Call, next: BeginV1, stream: CUstream) -> Code {
    // SAFETY: the caller's own arguments.
    begun(call, per_thread(stream), &mut || unsafe { next(stream) })
}

type Begin = unsafe extern "C" fn(CUstream, c_int) -> Code;

/// `cuStreamBeginCapture`.
pub(super) unsafe fn begin(call: &Call, next: Begin, stream: CUstream, mode: c_int) -> Code {
    // SAFETY: the caller's own arguments.
    begun(call, stream, &mut || unsafe { next(stream, mode) })
}

/// `cuStreamBeginCapture`, where no stream is the thread's own.
pub(super) unsafe fn begin_ptsz(call: &Call, next: Begin, stream: CUstream, mode: c_int) -> Code {
    // SAFETY: the caller's own arguments.
    begun(call, per_thread(stream), &mut || unsafe { next(stream, mode) })
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
    begun(call, stream, &mut || unsafe { next(stream, graph, dependencies, edges, count, mode) })
}

/// `cuStreamBeginCaptureToGraph`, where no stream is the thread's own.
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn begin_to_graph_ptsz(
    call: &Call,
    next: BeginToGraph,
    stream: CUstream,
    graph: CUgraph,
    dependencies: *const c_void,
    edges: *const c_void,
    count: usize,
    mode: c_int,
) -> Code {
    let own = per_thread(stream);
    // SAFETY: the caller's own arguments.
    begun(call, own, &mut || unsafe { next(stream, graph, dependencies, edges, count, mode) })
}

/// Known before the driver is asked: another thread may ask a question at any moment after that.
#[inline(never)]
fn begun(call: &Call, stream: CUstream, ask: &mut dyn FnMut() -> Code) -> Code {
    let captures = &call.process.captures;
    captures.begun(stream as usize, pool::place_of(call, stream).map(|place| place.context));
    let code = ask();
    if code != SUCCESS {
        captures.ended(stream as usize);
    }
    code
}

type End = unsafe extern "C" fn(CUstream, *mut CUgraph) -> Code;

/// `cuStreamEndCapture`. A capture that was invalidated ends with an error.
pub(super) unsafe fn end(call: &Call, next: End, stream: CUstream, graph: *mut CUgraph) -> Code {
    // SAFETY: the caller's own arguments.
    ended(call, stream, &mut || unsafe { next(stream, graph) })
}

/// `cuStreamEndCapture`, where no stream is the thread's own.
pub(super) unsafe fn end_ptsz(call: &Call, next: End, stream: CUstream, graph: *mut CUgraph) -> Code {
    // SAFETY: the caller's own arguments.
    ended(call, per_thread(stream), &mut || unsafe { next(stream, graph) })
}

#[inline(never)]
fn ended(call: &Call, stream: CUstream, ask: &mut dyn FnMut() -> Code) -> Code {
    let was_open = is_captured(call, stream);
    let code = ask();
    if was_open && !is_captured(call, stream) {
        call.process.captures.ended(stream as usize);
    }
    code
}

type Destroy = unsafe extern "C" fn(CUstream) -> Code;

/// `cuStreamDestroy`: with a stream goes the capture that was begun on it.
pub(super) unsafe fn destroy(call: &Call, next: Destroy, stream: CUstream) -> Code {
    let captures = &call.process.captures;
    // Before the driver is asked, which may give its handle to a new stream at once.
    let captured = if captures.are_open() { captures.ended(stream as usize) } else { None };
    // SAFETY: the caller's own argument.
    let code = unsafe { next(stream) };
    if let (Some(context), true) = (captured, code != SUCCESS) {
        captures.begun(stream as usize, context);
    }
    code
}

/// What the per-thread variants of functions mean by a stream.
pub(super) fn per_thread(stream: CUstream) -> CUstream {
    if stream.is_null() { PER_THREAD_STREAM } else { stream }
}

/// Whether `stream` is being captured. Asks the driver only while a capture is open somewhere.
pub(super) fn is_captured(call: &Call, stream: CUstream) -> bool {
    if !call.process.captures.are_open() {
        return false;
    }
    let mut status = CAPTURE_STATUS_NONE;
    let Some(api) = call.api() else { return false };
    // SAFETY: the caller's stream; the output is a live local of the type that the driver fills.
    unsafe { api.stream_is_capturing(stream, &mut status) }.is_ok() && status != CAPTURE_STATUS_NONE
}
