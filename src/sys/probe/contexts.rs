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
