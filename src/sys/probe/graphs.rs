//! Graphs with a node that allocates: their memory is taken by the launch.

use std::ffi::{c_int, c_void};

use super::Reach;
use super::entries::{Answer, Held, answered};
use super::memory::freeing;
use crate::abi::{CUDA_MEM_ALLOC_NODE_PARAMS, CUmemLocation, LOCATION_DEVICE};

pub fn launch(reach: &Reach, bytes: u64) -> Answer {
    launched(reach, bytes, |reach, exec| {
        ask!(reach, find, c"cuGraphLaunch", (*mut c_void, *mut c_void), exec, std::ptr::null_mut())
    })
}

pub fn launch_ptsz(reach: &Reach, bytes: u64) -> Answer {
    launched(reach, bytes, |reach, exec| {
        ask!(reach, find, c"cuGraphLaunch_ptsz", (*mut c_void, *mut c_void), exec, std::ptr::null_mut())
    })
}

/// Builds a graph that allocates `bytes`, and launches it. The driver may refuse at each step.
fn launched(reach: &Reach, bytes: u64, launch: impl FnOnce(&Reach, *mut c_void) -> Option<c_int>) -> Answer {
    let (mut graph, mut node, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: zeros are a valid value: no handle types, no access descriptors, no bytes.
    let mut request: CUDA_MEM_ALLOC_NODE_PARAMS = unsafe { std::mem::zeroed() };
    const PINNED: c_int = 1;
    request.pool.kind = PINNED;
    request.pool.location = CUmemLocation { kind: LOCATION_DEVICE, id: 0 };
    request.bytes = bytes as usize;
    let created = ask!(reach, helper, c"cuGraphCreate", (*mut *mut c_void, u32), &mut graph, 0)?;
    if created != 0 {
        return Some(Err(created));
    }
    let no_dependencies = std::ptr::null();
    let added = ask!(
        reach,
        helper,
        c"cuGraphAddMemAllocNode",
        (*mut *mut c_void, *mut c_void, *const *mut c_void, usize, *mut CUDA_MEM_ALLOC_NODE_PARAMS),
        &mut node,
        graph,
        no_dependencies,
        0,
        &mut request
    );
    let code = match added {
        Some(0) => match ask!(
            reach,
            helper,
            c"cuGraphInstantiateWithFlags",
            (*mut *mut c_void, *mut c_void, u64),
            &mut exec,
            graph,
            0
        ) {
            Some(0) => launch(reach, exec),
            code => code,
        },
        code => code,
    };
    let address = request.address;
    let cleared = move |reach: &Reach| {
        if !exec.is_null() {
            ask!(reach, helper, c"cuGraphExecDestroy", (*mut c_void), exec);
        }
        ask!(reach, helper, c"cuGraphDestroy", (*mut c_void), graph);
        ask!(reach, helper, c"cuDeviceGraphMemTrim", (c_int), 0);
    };
    if code != Some(0) {
        cleared(reach);
    }
    answered(code, || {
        Held::by(move |reach| {
            freeing(address).give_back(reach);
            cleared(reach);
        })
    })
}
