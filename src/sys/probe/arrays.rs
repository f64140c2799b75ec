//! Arrays, whose layout is the driver's own.

use std::ffi::{c_int, c_uint, c_void};

use super::Reach;
use super::entries::{Answer, Held, answered};
use crate::abi::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_DESCRIPTOR_v1, CUDA_ARRAY3D_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR_v1,
};

/// A row of an array.
const ROW: u64 = 1 << 20;

/// `CU_AD_FORMAT_FLOAT`; four channels of it are 16 bytes an element.
const FLOAT: c_int = 0x20;

pub fn array(reach: &Reach, bytes: u64) -> Answer {
    let descriptor = CUDA_ARRAY_DESCRIPTOR {
        width: ROW as usize / 16,
        height: bytes.div_ceil(ROW) as usize,
        format: FLOAT,
        num_channels: 4,
    };
    let mut array = std::ptr::null_mut();
    let code = ask!(
        reach,
        find,
        c"cuArrayCreate_v2",
        (*mut *mut c_void, *const CUDA_ARRAY_DESCRIPTOR),
        &mut array,
        &descriptor
    );
    answered(code, || destroying(array))
}

/// An array of layers that are 4 MiB each.
fn box_of(bytes: u64) -> CUDA_ARRAY3D_DESCRIPTOR {
    const LAYER: u64 = 4 << 20;
    CUDA_ARRAY3D_DESCRIPTOR {
        width: 4096,
        height: 64,
        depth: bytes.div_ceil(LAYER) as usize,
        format: FLOAT,
        num_channels: 4,
        flags: 0,
    }
}

pub fn array_3d(reach: &Reach, bytes: u64) -> Answer {
    let mut array = std::ptr::null_mut();
    let code = ask!(
        reach,
        find,
        c"cuArray3DCreate_v2",
        (*mut *mut c_void, *const CUDA_ARRAY3D_DESCRIPTOR),
        &mut array,
        &box_of(bytes)
    );
    answered(code, || destroying(array))
}

pub fn mipmapped_array(reach: &Reach, bytes: u64) -> Answer {
    let mut array = std::ptr::null_mut();
    let code = ask!(
        reach,
        find,
        c"cuMipmappedArrayCreate",
        (*mut *mut c_void, *const CUDA_ARRAY3D_DESCRIPTOR, c_uint),
        &mut array,
        &box_of(bytes),
        1
    );
    answered(code, || {
        Held::by(move |reach| {
            ask!(reach, find, c"cuMipmappedArrayDestroy", (*mut c_void), array);
        })
    })
}

fn destroying(array: *mut c_void) -> Held {
    Held::by(move |reach| {
        ask!(reach, find, c"cuArrayDestroy", (*mut c_void), array);
    })
}

/// The forms of before CUDA 3.2.
pub fn array_v1(reach: &Reach, bytes: u64) -> Answer {
    let descriptor = CUDA_ARRAY_DESCRIPTOR_v1 {
        width: ROW as c_uint / 16,
        height: bytes.div_ceil(ROW) as c_uint,
        format: FLOAT,
        num_channels: 4,
    };
    let mut array = std::ptr::null_mut();
    let code = ask!(
        reach,
        find,
        c"cuArrayCreate",
        (*mut *mut c_void, *const CUDA_ARRAY_DESCRIPTOR_v1),
        &mut array,
        &descriptor
    );
    answered(code, || destroying(array))
}

pub fn array_3d_v1(reach: &Reach, bytes: u64) -> Answer {
    let large = box_of(bytes);
    let descriptor = CUDA_ARRAY3D_DESCRIPTOR_v1 {
        width: large.width as c_uint,
        height: large.height as c_uint,
        depth: large.depth as c_uint,
        format: FLOAT,
        num_channels: 4,
        flags: 0,
    };
    let mut array = std::ptr::null_mut();
    let code = ask!(
        reach,
        find,
        c"cuArray3DCreate",
        (*mut *mut c_void, *const CUDA_ARRAY3D_DESCRIPTOR_v1),
        &mut array,
        &descriptor
    );
    answered(code, || destroying(array))
}
