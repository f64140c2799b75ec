//! Contexts, which take memory of their own. The one before is current again when one is destroyed.

use std::ffi::{c_int, c_uint, c_void};

use super::Reach;
use super::entries::{Answer, Held, answered};

fn destroying(context: *mut c_void) -> Held {
    Held::by(move |reach| {
        ask!(reach, helper, c"cuCtxDestroy_v2", (*mut c_void), context);
    })
}

pub fn create_v1(reach: &Reach, _: u64) -> Answer {
    let mut context = std::ptr::null_mut();
    let code = ask!(reach, find, c"cuCtxCreate", (*mut *mut c_void, c_uint, c_int), &mut context, 0, 0);
    answered(code, || destroying(context))
}

pub fn create_v2(reach: &Reach, _: u64) -> Answer {
    let mut context = std::ptr::null_mut();
    let code = ask!(reach, find, c"cuCtxCreate_v2", (*mut *mut c_void, c_uint, c_int), &mut context, 0, 0);
    answered(code, || destroying(context))
}

/// With no execution affinity.
pub fn create_v3(reach: &Reach, _: u64) -> Answer {
    let (mut context, none) = (std::ptr::null_mut(), std::ptr::null());
    let code = ask!(
        reach,
        find,
        c"cuCtxCreate_v3",
        (*mut *mut c_void, *const c_void, c_int, c_uint, c_int),
        &mut context,
        none,
        0,
        0,
        0
    );
    answered(code, || destroying(context))
}

/// With no parameters.
pub fn create_v4(reach: &Reach, _: u64) -> Answer {
    let (mut context, none) = (std::ptr::null_mut(), std::ptr::null());
    let code = ask!(
        reach,
        find,
        c"cuCtxCreate_v4",
        (*mut *mut c_void, *const c_void, c_uint, c_int),
        &mut context,
        none,
        0,
        0
    );
    answered(code, || destroying(context))
}

/// `CU_LIMIT_MALLOC_HEAP_SIZE`, of which 8 MiB are part of every context.
const HEAP: c_int = 2;
const HEAP_AT_START: usize = 8 << 20;

/// The heap of kernels, by `bytes` more than at the start.
pub fn grow_heap(reach: &Reach, bytes: u64) -> Answer {
    let size = HEAP_AT_START.saturating_add(usize::try_from(bytes).unwrap_or(usize::MAX));
    let code = ask!(reach, find, c"cuCtxSetLimit", (c_int, usize), HEAP, size);
    answered(code, || {
        Held::by(|reach| {
            ask!(reach, helper, c"cuCtxSetLimit", (c_int, usize), HEAP, HEAP_AT_START);
        })
    })
}
