//! The functions that take device memory, and how each is asked for some.

use std::ffi::{c_int, c_uint, c_void};

use super::Reach;
use crate::abi::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR, CUmemAllocationProp, CUmemLocation, LOCATION_DEVICE,
};

/// What a function answered: memory that is held, or the driver's code. `None` where the route leads to no such function.
type Answer = Option<Result<Held, c_int>>;

/// Memory that was granted.
pub struct Held(Box<dyn FnOnce(&Reach)>);

/// One function that takes device memory.
pub struct Entry {
    /// The exported symbol.
    pub symbol: &'static str,
    /// Whether it can be asked for any number of bytes; a context takes what it takes.
    pub sized: bool,
    take: fn(&Reach, u64) -> Answer,
}

/// All that are tried.
pub const ENTRIES: &[Entry] = &[
    Entry { symbol: "cuMemAlloc_v2", sized: true, take: alloc },
    Entry { symbol: "cuMemAllocPitch_v2", sized: true, take: alloc_pitch },
    Entry { symbol: "cuMemAllocManaged", sized: true, take: alloc_managed },
    Entry { symbol: "cuMemAllocAsync", sized: true, take: alloc_async },
    Entry { symbol: "cuMemAllocFromPoolAsync", sized: true, take: alloc_from_pool },
    Entry { symbol: "cuMemCreate", sized: true, take: create },
    Entry { symbol: "cuArrayCreate_v2", sized: true, take: array },
    Entry { symbol: "cuArray3DCreate_v2", sized: true, take: array_3d },
    Entry { symbol: "cuMipmappedArrayCreate", sized: true, take: mipmapped_array },
    Entry { symbol: "cuCtxCreate_v2", sized: false, take: context },
];

/// Calls the function of that name as this route finds it: `Some(code)`, or `None` where it finds none.
macro_rules! ask {
    ($reach:expr, $find:ident, $name:literal, ($($kind:ty),*), $($argument:expr),*) => {{
        let address = $reach.$find($name);
        (!address.is_null()).then(|| {
            // SAFETY: the driver's function of that name has this type.
            let function: unsafe extern "C" fn($($kind),*) -> c_int = unsafe { std::mem::transmute(address) };
            // SAFETY: every pointer among the arguments points to a local variable of the type that the function reads
            // or fills in before it returns, and every handle came from the driver and has not been given back.
            unsafe { function($($argument),*) }
        })
    }};
}

impl Entry {
    /// Asks for `bytes` on the first GPU, whose context is current.
    pub fn take(&self, reach: &Reach, bytes: u64) -> Answer {
        (self.take)(reach, bytes)
    }
}

impl Held {
    /// Gives it back.
    pub fn give_back(self, reach: &Reach) {
        (self.0)(reach);
        // What a pool holds beyond its threshold goes back then.
        ask!(reach, helper, c"cuCtxSynchronize", (),);
    }

    fn by(give_back: impl FnOnce(&Reach) + 'static) -> Held {
        Held(Box::new(give_back))
    }
}

/// `code` with what was granted, if it was.
fn answered(code: Option<c_int>, held: impl FnOnce() -> Held) -> Answer {
    code.map(|code| if code == 0 { Ok(held()) } else { Err(code) })
}

impl Reach {
    /// Initialises the driver and makes the first GPU's primary context current. Answers the GPU's UUID, or the first
    /// code that is none of success.
    pub fn start(&self) -> Result<[u8; 16], c_int> {
        const NOT_FOUND: c_int = 500;
        let done = |code: Option<c_int>| match code.unwrap_or(NOT_FOUND) {
            0 => Ok(()),
            code => Err(code),
        };
        done(ask!(self, find, c"cuInit", (c_uint), 0))?;
        let (mut device, mut uuid, mut context) = (0, [0; 16], std::ptr::null_mut());
        done(ask!(self, helper, c"cuDeviceGet", (*mut c_int, c_int), &mut device, 0))?;
        done(ask!(self, helper, c"cuDeviceGetUuid", (*mut u8, c_int), uuid.as_mut_ptr(), device))?;
        done(ask!(self, find, c"cuDevicePrimaryCtxRetain", (*mut *mut c_void, c_int), &mut context, device))?;
        done(ask!(self, helper, c"cuCtxSetCurrent", (*mut c_void), context))?;
        Ok(uuid)
    }

    /// The bytes of memory that this route says the GPU has.
    pub fn total(&self) -> Result<u64, c_int> {
        let (mut free, mut total) = (0usize, 0usize);
        match ask!(self, find, c"cuMemGetInfo_v2", (*mut usize, *mut usize), &mut free, &mut total) {
            Some(0) => Ok(total as u64),
            code => Err(code.unwrap_or(0)),
        }
    }
}

/// Gives an address back.
fn freeing(address: u64) -> Held {
    Held::by(move |reach| {
        ask!(reach, find, c"cuMemFree_v2", (u64), address);
    })
}

fn alloc(reach: &Reach, bytes: u64) -> Answer {
    let mut address = 0u64;
    let code = ask!(reach, find, c"cuMemAlloc_v2", (*mut u64, usize), &mut address, bytes as usize);
    answered(code, || freeing(address))
}

/// A row of arrays and pitched memory.
const ROW: u64 = 1 << 20;

fn alloc_pitch(reach: &Reach, bytes: u64) -> Answer {
    let (mut address, mut pitch) = (0u64, 0usize);
    let rows = bytes.div_ceil(ROW) as usize;
    let code = ask!(
        reach,
        find,
        c"cuMemAllocPitch_v2",
        (*mut u64, *mut usize, usize, usize, c_uint),
        &mut address,
        &mut pitch,
        ROW as usize,
        rows,
        16
    );
    answered(code, || freeing(address))
}

fn alloc_managed(reach: &Reach, bytes: u64) -> Answer {
    const ATTACH_GLOBAL: c_uint = 1;
    let mut address = 0u64;
    let code = ask!(
        reach,
        find,
        c"cuMemAllocManaged",
        (*mut u64, usize, c_uint),
        &mut address,
        bytes as usize,
        ATTACH_GLOBAL
    );
    answered(code, || freeing(address))
}

fn alloc_async(reach: &Reach, bytes: u64) -> Answer {
    let mut address = 0u64;
    let stream = std::ptr::null_mut();
    let code = ask!(
        reach,
        find,
        c"cuMemAllocAsync",
        (*mut u64, usize, *mut c_void),
        &mut address,
        bytes as usize,
        stream
    );
    answered(code, || freeing(address))
}

fn alloc_from_pool(reach: &Reach, bytes: u64) -> Answer {
    let (mut address, mut pool, stream) = (0u64, std::ptr::null_mut(), std::ptr::null_mut());
    match ask!(reach, helper, c"cuDeviceGetDefaultMemPool", (*mut *mut c_void, c_int), &mut pool, 0)? {
        0 => {}
        code => return Some(Err(code)),
    }
    let code = ask!(
        reach,
        find,
        c"cuMemAllocFromPoolAsync",
        (*mut u64, usize, *mut c_void, *mut c_void),
        &mut address,
        bytes as usize,
        pool,
        stream
    );
    answered(code, || freeing(address))
}

fn create(reach: &Reach, bytes: u64) -> Answer {
    const BLOCK: u64 = 2 << 20;
    const PINNED: c_int = 1;
    let properties = CUmemAllocationProp {
        kind: PINNED,
        requested_handle_types: 0,
        location: CUmemLocation { kind: LOCATION_DEVICE, id: 0 },
        win32_handle_metadata: std::ptr::null_mut(),
        alloc_flags: [0; 8],
    };
    let mut handle = 0u64;
    let code = ask!(
        reach,
        find,
        c"cuMemCreate",
        (*mut u64, usize, *const CUmemAllocationProp, u64),
        &mut handle,
        bytes.next_multiple_of(BLOCK) as usize,
        &properties,
        0
    );
    answered(code, || {
        Held::by(move |reach| {
            ask!(reach, find, c"cuMemRelease", (u64), handle);
        })
    })
}

/// `CU_AD_FORMAT_FLOAT`; four channels of it are 16 bytes an element.
const FLOAT: c_int = 0x20;

fn array(reach: &Reach, bytes: u64) -> Answer {
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

fn array_3d(reach: &Reach, bytes: u64) -> Answer {
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

fn mipmapped_array(reach: &Reach, bytes: u64) -> Answer {
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

fn context(reach: &Reach, _: u64) -> Answer {
    let mut context = std::ptr::null_mut();
    let code = ask!(reach, find, c"cuCtxCreate_v2", (*mut *mut c_void, c_uint, c_int), &mut context, 0, 0);
    answered(code, || {
        Held::by(move |reach| {
            // Destroying it makes the one before it current again.
            ask!(reach, find, c"cuCtxDestroy_v2", (*mut c_void), context);
        })
    })
}
