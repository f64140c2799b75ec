//! Arrays and mipmaps: memory in a layout that only the driver knows, charged by the tiles it is laid out in.

use super::*;
use crate::gate;
use crate::policy;
use crate::process::belongings::Belonging;
use crate::process::contexts::ContextId;

/// An array as its descriptor asks for it.
struct Shape {
    width: u64,
    height: u64,
    depth: u64,
    format: c_int,
    channels: u64,
    levels: u64,
    flags: c_uint,
}

/// `CUDA_ARRAY3D_SPARSE` and `CUDA_ARRAY3D_DEFERRED_MAPPING`: memory comes later, from `cuMemCreate`.
const WITHOUT_MEMORY: c_uint = 0x40 | 0x80;

/// `CUDA_ARRAY3D_LAYERED` and `CUDA_ARRAY3D_CUBEMAP`: all levels have as many layers.
const LAYERS: c_uint = 0x01 | 0x04;

impl Shape {
    /// `None` where the driver gives the array no memory of its own.
    fn bytes(&self) -> Option<u64> {
        let element = self.channels.saturating_mul(channel_bytes(self.format));
        (self.flags & WITHOUT_MEMORY == 0).then(|| {
            policy::array_bytes(
                [self.width, self.height, self.depth],
                self.flags & LAYERS != 0,
                element,
                self.levels,
            )
        })
    }
}

/// `CUarray_format`: bytes of a channel. Formats of several planes and block-compressed ones take less than one
/// channel of 16 bytes.
fn channel_bytes(format: c_int) -> u64 {
    match format {
        0x01 | 0x08 | 0xc0..=0xc2 | 0xc6..=0xc8 => 1,
        0x02 | 0x09 | 0x10 | 0xc3..=0xc5 | 0xc9..=0xcb => 2,
        0x03 | 0x0a | 0x20 | 0x50 => 4,
        0xb0 => 2,
        _ => 16,
    }
}

/// The way of a request for an array.
///
/// # Safety
/// Where `ask` answers success it wrote `array`.
unsafe fn granted(
    call: &Call,
    shape: Option<Shape>,
    array: *mut *mut c_void,
    mut ask: impl FnMut() -> Code,
) -> Code {
    // SAFETY: as promised to us.
    unsafe { granted_by(call, shape, array, &mut ask) }
}

#[inline(never)]
unsafe fn granted_by(
    call: &Call,
    shape: Option<Shape>,
    array: *mut *mut c_void,
    ask: &mut dyn FnMut() -> Code,
) -> Code {
    let (Some(shape), Some(place)) = (shape.filter(|_| !array.is_null()), call.place()) else { return ask() };
    let charge = match shape.bytes().map(|bytes| gate::reserve(call.process, place.gpu, bytes)).transpose() {
        Ok(charge) => charge,
        Err(code) => return code,
    };
    let code = match &charge {
        Some(charge) => charge.ask(ask),
        None => ask(),
    };
    if code == SUCCESS {
        let bytes = charge.map_or(0, |charge| {
            let bytes = charge.bytes();
            charge.hand_over();
            bytes
        });
        // SAFETY: the driver has just written it.
        let handle = unsafe { *array } as usize;
        gone(call, call.process.arrays.insert(handle, bytes, place));
        forget_if_gone(call, handle, place.context);
    }
    code
}

/// An array is gone if its context is, and with that it was not forgotten, as it was not there yet.
fn forget_if_gone(call: &Call, array: usize, context: ContextId) {
    if !call.process.contexts.is_alive(context) {
        gone(call, call.process.arrays.take_of(array, context));
    }
}

/// An array is gone: what it was charged goes back, and what was mapped into it is let go.
fn gone(call: &Call, array: Option<Belonging>) {
    let Some(array) = array else { return };
    call.process.give_back(array.gpu, array.bytes);
    gate::gone(call.process, call.process.physical.holder_gone(array.name));
    // The driver has waited for what streams had to do with it.
    call.process.leaving.settle(call.process);
}

/// A plain array as [`Shape`], from either version of the descriptor.
macro_rules! plain_shape {
    ($descriptor:expr) => {
        $descriptor.as_ref().map(|d| Shape {
            width: d.width as u64,
            height: d.height as u64,
            depth: 0,
            format: d.format,
            channels: u64::from(d.num_channels),
            levels: 1,
            flags: 0,
        })
    };
}

/// A three-dimensional or layered array as [`Shape`], from either version of the descriptor.
macro_rules! deep_shape {
    ($descriptor:expr, $levels:expr) => {
        $descriptor.as_ref().map(|d| Shape {
            width: d.width as u64,
            height: d.height as u64,
            depth: d.depth as u64,
            format: d.format,
            channels: u64::from(d.num_channels),
            levels: $levels,
            flags: d.flags,
        })
    };
}

type Create = unsafe extern "C" fn(*mut CUarray, *const CUDA_ARRAY_DESCRIPTOR) -> Code;

/// `cuArrayCreate`.
pub(super) unsafe fn create(
    call: &Call,
    next: Create,
    array: *mut CUarray,
    descriptor: *const CUDA_ARRAY_DESCRIPTOR,
) -> Code {
    // SAFETY: the caller's own arguments; the descriptor is NULL or what the driver itself would read.
    unsafe { granted(call, plain_shape!(descriptor), array, || next(array, descriptor)) }
}

type CreateV1 = unsafe extern "C" fn(*mut CUarray, *const CUDA_ARRAY_DESCRIPTOR_v1) -> Code;

/// `cuArrayCreate` of the 32-bit interface.
pub(super) unsafe fn create_v1(
    call: &Call,
    next: CreateV1,
    array: *mut CUarray,
    descriptor: *const CUDA_ARRAY_DESCRIPTOR_v1,
) -> Code {
    // SAFETY: as in `create`.
    unsafe { granted(call, plain_shape!(descriptor), array, || next(array, descriptor)) }
}

type Create3d = unsafe extern "C" fn(*mut CUarray, *const CUDA_ARRAY3D_DESCRIPTOR) -> Code;

/// `cuArray3DCreate`.
pub(super) unsafe fn create_3d(
    call: &Call,
    next: Create3d,
    array: *mut CUarray,
    descriptor: *const CUDA_ARRAY3D_DESCRIPTOR,
) -> Code {
    // SAFETY: as in `create`.
    unsafe { granted(call, deep_shape!(descriptor, 1), array, || next(array, descriptor)) }
}

type Create3dV1 = unsafe extern "C" fn(*mut CUarray, *const CUDA_ARRAY3D_DESCRIPTOR_v1) -> Code;

/// `cuArray3DCreate` of the 32-bit interface.
pub(super) unsafe fn create_3d_v1(
    call: &Call,
    next: Create3dV1,
    array: *mut CUarray,
    descriptor: *const CUDA_ARRAY3D_DESCRIPTOR_v1,
) -> Code {
    // SAFETY: as in `create`.
    unsafe { granted(call, deep_shape!(descriptor, 1), array, || next(array, descriptor)) }
}

type CreateMipmapped =
    unsafe extern "C" fn(*mut CUmipmappedArray, *const CUDA_ARRAY3D_DESCRIPTOR, c_uint) -> Code;

/// `cuMipmappedArrayCreate`.
pub(super) unsafe fn create_mipmapped(
    call: &Call,
    next: CreateMipmapped,
    array: *mut CUmipmappedArray,
    descriptor: *const CUDA_ARRAY3D_DESCRIPTOR,
    levels: c_uint,
) -> Code {
    // SAFETY: as in `create`.
    unsafe {
        granted(call, deep_shape!(descriptor, u64::from(levels)), array, || next(array, descriptor, levels))
    }
}

type Destroy = unsafe extern "C" fn(*mut c_void) -> Code;

/// `cuArrayDestroy`.
pub(super) unsafe fn destroy(call: &Call, next: Destroy, array: CUarray) -> Code {
    let arrays = &call.process.arrays;
    let held = arrays.take(array as usize);
    // SAFETY: the caller's own argument.
    let code = unsafe { next(array) };
    match held {
        Some(held) if code != SUCCESS => {
            arrays.put_back(array as usize, held);
            forget_if_gone(call, array as usize, held.context);
        }
        held => gone(call, held),
    }
    code
}

/// `cuMipmappedArrayDestroy`.
pub(super) unsafe fn destroy_mipmapped(call: &Call, next: Destroy, array: CUmipmappedArray) -> Code {
    // SAFETY: passed on.
    unsafe { destroy(call, next, array) }
}
