//! Memory with an address, and physical memory.

use std::ffi::{c_int, c_uint, c_void};

use super::Reach;
use super::entries::{Answer, Held, answered};
use crate::abi::{CUmemAllocationProp, CUmemLocation, LOCATION_DEVICE};

/// Gives an address back.
pub fn freeing(address: u64) -> Held {
    Held::by(move |reach| {
        ask!(reach, find, c"cuMemFree_v2", (u64), address);
    })
}

pub fn alloc(reach: &Reach, bytes: u64) -> Answer {
    let mut address = 0u64;
    let code = ask!(reach, find, c"cuMemAlloc_v2", (*mut u64, usize), &mut address, bytes as usize);
    answered(code, || freeing(address))
}

/// A row of arrays and pitched memory.
const ROW: u64 = 1 << 20;

pub fn alloc_pitch(reach: &Reach, bytes: u64) -> Answer {
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

pub fn alloc_managed(reach: &Reach, bytes: u64) -> Answer {
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

/// Declares a function by each of the forms of an entry point, which differ in their default stream alone.
macro_rules! by_stream {
    ($($name:ident = $symbol:literal via $with:ident;)*) => {
        $(pub fn $name(reach: &Reach, bytes: u64) -> Answer {
            $with!(reach, bytes, $symbol)
        })*
    };
}

macro_rules! from_default_pool {
    ($reach:expr, $bytes:expr, $symbol:literal) => {{
        let mut address = 0u64;
        let stream: *mut c_void = std::ptr::null_mut();
        let bytes = $bytes as usize;
        let code = ask!($reach, find, $symbol, (*mut u64, usize, *mut c_void), &mut address, bytes, stream);
        answered(code, || freeing(address))
    }};
}

macro_rules! from_pool {
    ($reach:expr, $bytes:expr, $symbol:literal) => {{
        let (mut address, mut pool) = (0u64, std::ptr::null_mut());
        let stream: *mut c_void = std::ptr::null_mut();
        match ask!($reach, helper, c"cuDeviceGetDefaultMemPool", (*mut *mut c_void, c_int), &mut pool, 0)? {
            0 => {}
            code => return Some(Err(code)),
        }
        let code = ask!(
            $reach,
            find,
            $symbol,
            (*mut u64, usize, *mut c_void, *mut c_void),
            &mut address,
            $bytes as usize,
            pool,
            stream
        );
        answered(code, || freeing(address))
    }};
}

by_stream! {
    alloc_async = c"cuMemAllocAsync" via from_default_pool;
    alloc_async_ptsz = c"cuMemAllocAsync_ptsz" via from_default_pool;
    alloc_from_pool = c"cuMemAllocFromPoolAsync" via from_pool;
    alloc_from_pool_ptsz = c"cuMemAllocFromPoolAsync_ptsz" via from_pool;
}

pub fn create(reach: &Reach, bytes: u64) -> Answer {
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

/// The forms of before CUDA 3.2, with sizes and addresses of 32 bits.
pub fn alloc_v1(reach: &Reach, bytes: u64) -> Answer {
    let mut address = 0u32;
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    let code = ask!(reach, find, c"cuMemAlloc", (*mut u32, c_uint), &mut address, bytes);
    answered(code, || freeing(u64::from(address)))
}

pub fn alloc_pitch_v1(reach: &Reach, bytes: u64) -> Answer {
    let (mut address, mut pitch) = (0u32, 0u32);
    let rows = bytes.div_ceil(ROW) as c_uint;
    let code = ask!(
        reach,
        find,
        c"cuMemAllocPitch",
        (*mut u32, *mut c_uint, c_uint, c_uint, c_uint),
        &mut address,
        &mut pitch,
        ROW as c_uint,
        rows,
        16
    );
    answered(code, || freeing(u64::from(address)))
}
