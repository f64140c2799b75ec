//! Arrays, whose layout is the driver's own.

use std::ffi::{c_int, c_uint, c_void};

use super::Reach;
use super::entries::{Answer, Held, answered};
use crate::abi::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_DESCRIPTOR_v1, CUDA_ARRAY3D_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR_v1,
};

/// `CU_AD_FORMAT_FLOAT`.
const FLOAT: c_int = 0x20;
/// Bytes of an element: four channels of it.
const ELEMENT: u64 = 16;

/// Has an array made by the function of that name, which takes this kind of descriptor.
macro_rules! made {
    ($reach:expr, $name:literal, $kind:ident, $descriptor:expr) => {{
        let (mut array, descriptor): (_, $kind) = (std::ptr::null_mut(), $descriptor);
        let code = ask!($reach, find, $name, (*mut *mut c_void, *const $kind), &mut array, &descriptor);
        answered(code, || destroying(array))
    }};
}

/// Width and height of an array of rows that are 1 MiB each.
fn rows_of(bytes: u64) -> (usize, usize) {
    const ROW: u64 = 1 << 20;
    ((ROW / ELEMENT) as usize, bytes.div_ceil(ROW) as usize)
}

/// An array of layers that are 4 MiB each.
fn box_of(bytes: u64) -> CUDA_ARRAY3D_DESCRIPTOR {
    const LAYER: u64 = 4 << 20;
    let depth = bytes.div_ceil(LAYER) as usize;
    CUDA_ARRAY3D_DESCRIPTOR { width: 4096, height: 64, depth, format: FLOAT, num_channels: 4, flags: 0 }
}

pub fn array(reach: &Reach, bytes: u64) -> Answer {
    let (width, height) = rows_of(bytes);
    let descriptor = CUDA_ARRAY_DESCRIPTOR { width, height, format: FLOAT, num_channels: 4 };
    made!(reach, c"cuArrayCreate_v2", CUDA_ARRAY_DESCRIPTOR, descriptor)
}

pub fn array_3d(reach: &Reach, bytes: u64) -> Answer {
    made!(reach, c"cuArray3DCreate_v2", CUDA_ARRAY3D_DESCRIPTOR, box_of(bytes))
}

/// The forms of before CUDA 3.2.
pub fn array_v1(reach: &Reach, bytes: u64) -> Answer {
    let (width, height) = rows_of(bytes);
    let (width, height) = (width as c_uint, height as c_uint);
    let descriptor = CUDA_ARRAY_DESCRIPTOR_v1 { width, height, format: FLOAT, num_channels: 4 };
    made!(reach, c"cuArrayCreate", CUDA_ARRAY_DESCRIPTOR_v1, descriptor)
}

pub fn array_3d_v1(reach: &Reach, bytes: u64) -> Answer {
    let wide = box_of(bytes);
    let descriptor = CUDA_ARRAY3D_DESCRIPTOR_v1 {
        width: wide.width as c_uint,
        height: wide.height as c_uint,
        depth: wide.depth as c_uint,
        format: wide.format,
        num_channels: wide.num_channels,
        flags: wide.flags,
    };
    made!(reach, c"cuArray3DCreate", CUDA_ARRAY3D_DESCRIPTOR_v1, descriptor)
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
