//! Graphs: their allocation nodes take memory when they are launched, from a pool that the driver keeps for the graphs of
//! each device, and are charged by what that holds.

use super::capture::{is_captured, per_thread};
use super::*;
use crate::gate::{self, Charge};
use crate::process::graphs::Plan;

/// The way of all that makes a graph ready. `uploads` where that takes its memory at once.
fn made(
    call: &Call,
    exec: *mut CUgraphExec,
    graph: CUgraph,
    uploads: bool,
    mut ask: impl FnMut() -> Code,
) -> Code {
    let process = call.process;
    let plan =
        call.api().map(|api| process.graphs.plan(process, call.driver, api, graph)).unwrap_or_default();
    let code = if uploads { with_memory(call, &plan, &mut ask) } else { ask() };
    // SAFETY: the driver wrote it, if it answered success.
    if let (SUCCESS, Some(exec)) = (code, unsafe { exec.as_ref() }) {
        process.graphs.ready(*exec as usize, plan);
    }
    code
}

type Instantiate =
    unsafe extern "C" fn(*mut CUgraphExec, CUgraph, *mut CUgraphNode, *mut c_char, usize) -> Code;

/// `cuGraphInstantiate`, first and second version.
pub(super) unsafe fn instantiate(
    call: &Call,
    next: Instantiate,
    exec: *mut CUgraphExec,
    graph: CUgraph,
    error: *mut CUgraphNode,
    log: *mut c_char,
    size: usize,
) -> Code {
    // SAFETY: the caller's own arguments.
    made(call, exec, graph, false, || unsafe { next(exec, graph, error, log, size) })
}

type InstantiateWithFlags = unsafe extern "C" fn(*mut CUgraphExec, CUgraph, u64) -> Code;

/// `cuGraphInstantiateWithFlags`. Its flag for uploading is for `cuGraphInstantiateWithParams` alone.
pub(super) unsafe fn instantiate_with_flags(
    call: &Call,
    next: InstantiateWithFlags,
    exec: *mut CUgraphExec,
    graph: CUgraph,
    flags: u64,
) -> Code {
    // SAFETY: the caller's own arguments.
    made(call, exec, graph, false, || unsafe { next(exec, graph, flags) })
}

type InstantiateWithParams =
    unsafe extern "C" fn(*mut CUgraphExec, CUgraph, *mut CUDA_GRAPH_INSTANTIATE_PARAMS) -> Code;

/// `cuGraphInstantiateWithParams`.
pub(super) unsafe fn instantiate_with_params(
    call: &Call,
    next: InstantiateWithParams,
    exec: *mut CUgraphExec,
    graph: CUgraph,
    parameters: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
) -> Code {
    // SAFETY: NULL, or what the driver itself would read.
    let flags = unsafe { parameters.as_ref() }.map_or(0, |parameters| parameters.flags);
    // SAFETY: the caller's own arguments.
    made(call, exec, graph, flags & INSTANTIATE_UPLOAD != 0, || unsafe { next(exec, graph, parameters) })
}

type Launch = unsafe extern "C" fn(CUgraphExec, CUstream) -> Code;

/// `cuGraphLaunch`.
pub(super) unsafe fn launch(call: &Call, next: Launch, exec: CUgraphExec, stream: CUstream) -> Code {
    // SAFETY: the caller's own arguments.
    given(call, exec, stream, true, || unsafe { next(exec, stream) })
}

/// `cuGraphLaunch`, where no stream is the thread's own.
pub(super) unsafe fn launch_ptsz(call: &Call, next: Launch, exec: CUgraphExec, stream: CUstream) -> Code {
    // SAFETY: the caller's own arguments.
    given(call, exec, per_thread(stream), true, || unsafe { next(exec, stream) })
}

/// `cuGraphUpload`: takes the memory, and does nothing yet.
pub(super) unsafe fn upload(call: &Call, next: Launch, exec: CUgraphExec, stream: CUstream) -> Code {
    // SAFETY: the caller's own arguments.
    given(call, exec, stream, false, || unsafe { next(exec, stream) })
}

/// `cuGraphUpload`, where no stream is the thread's own.
pub(super) unsafe fn upload_ptsz(call: &Call, next: Launch, exec: CUgraphExec, stream: CUstream) -> Code {
    // SAFETY: the caller's own arguments.
    given(call, exec, per_thread(stream), false, || unsafe { next(exec, stream) })
}

#[inline]
fn given(
    call: &Call,
    exec: CUgraphExec,
    stream: CUstream,
    runs: bool,
    mut ask: impl FnMut() -> Code,
) -> Code {
    match call.process.graphs.plan_of(exec as usize) {
        // Into a capture, it becomes a part of another graph.
        Some(plan) if !is_captured(call, stream) => {
            let code = with_memory(call, &plan, &mut ask);
            if code == SUCCESS && runs {
                call.process.graphs.launched(&plan);
            }
            code
        }
        _ => ask(),
    }
}

/// Reserves what a graph may take, asks the driver, and charges what the graphs' memory then is.
#[inline(never)]
fn with_memory(call: &Call, plan: &Plan, ask: &mut dyn FnMut() -> Code) -> Code {
    let process = call.process;
    let mut charges: Vec<Charge> = Vec::with_capacity(plan.needs.len());
    for need in &plan.needs {
        let Some(pool) = process.pools.of_graphs(call.driver, need.device, need.gpu) else {
            return cuda::OUT_OF_MEMORY;
        };
        let bytes = process.graphs.takes(plan, need);
        // What the graphs hold and do not use is used first.
        let growth = || process.pools.growth(process, pool, bytes).min(bytes);
        let charge = gate::reserve_with(process, need.gpu, bytes, |round| match round {
            0 => Some(growth()),
            1 if process.pools.trim(process, need.gpu) => Some(growth()),
            _ => None,
        });
        match charge {
            Ok(charge) => charges.push(charge),
            Err(code) => return code,
        }
    }
    let code = match charges.first() {
        Some(charge) => charge.ask(ask),
        None => ask(),
    };
    if code != SUCCESS {
        process.graphs.not_launched(plan);
    }
    for (need, charge) in plan.needs.iter().zip(charges) {
        let Some(pool) = process.pools.of_graphs(call.driver, need.device, need.gpu) else { continue };
        // Also where the driver refused: it may have taken a part of it. Where it does not say, all of it stays charged
        // until it does after a success, and nothing after a failure.
        let settled = process.pools.settle(process, pool, charge.bytes());
        if settled.is_err() {
            process.pools.suspect(pool);
        }
        if settled.is_ok() || code == SUCCESS && process.pools.take_over(pool, charge.bytes()) {
            charge.hand_over();
        }
    }
    code
}

type DestroyExec = unsafe extern "C" fn(CUgraphExec) -> Code;

/// `cuGraphExecDestroy`. What the graph allocated and did not free stays until the program frees it.
pub(super) unsafe fn destroy_exec(call: &Call, next: DestroyExec, exec: CUgraphExec) -> Code {
    let plan = call.process.graphs.take(exec as usize);
    // SAFETY: the caller's own argument.
    let code = unsafe { next(exec) };
    if let (Some(plan), true) = (plan, code != SUCCESS) {
        call.process.graphs.ready(exec as usize, plan);
    }
    code
}

type Trim = unsafe extern "C" fn(CUdevice) -> Code;

/// `cuDeviceGraphMemTrim`.
pub(super) unsafe fn trim(call: &Call, next: Trim, device: CUdevice) -> Code {
    // SAFETY: the caller's own argument.
    let code = unsafe { next(device) };
    let process = call.process;
    let gpu = process.gpus.by_device(process, call.driver, device);
    if let Some(pool) = gpu.and_then(|gpu| process.pools.of_graphs(call.driver, device, gpu)) {
        // Where the driver does not say, the charge stays.
        let _ = process.pools.settle(process, pool, 0);
    }
    code
}
