//! The functions that take device memory, and how each is asked for some.

use std::ffi::{c_int, c_uint, c_void};

use super::{Reach, arrays, code, contexts, graphs, memory};

/// What a function answered: memory that is held, or the driver's code. `None` where the route leads to no such function.
pub type Answer = Option<Result<Held, c_int>>;

/// Memory that was granted.
pub struct Held(Box<dyn FnOnce(&Reach)>);

/// For how much a function can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Any number of bytes.
    Any,
    /// What fits 32 bits, which may be less than a budget.
    Small,
    /// It takes what it takes.
    Own,
}

/// One function that takes device memory.
pub struct Entry {
    /// The exported symbol.
    pub symbol: &'static str,
    /// For how much it can be asked.
    pub size: Size,
    take: fn(&Reach, u64) -> Answer,
}

const fn any(symbol: &'static str, take: fn(&Reach, u64) -> Answer) -> Entry {
    Entry { symbol, size: Size::Any, take }
}
const fn small(symbol: &'static str, take: fn(&Reach, u64) -> Answer) -> Entry {
    Entry { symbol, size: Size::Small, take }
}
const fn own(symbol: &'static str, take: fn(&Reach, u64) -> Answer) -> Entry {
    Entry { symbol, size: Size::Own, take }
}

/// All that are tried.
pub const ENTRIES: &[Entry] = &[
    any("cuMemAlloc_v2", memory::alloc),
    any("cuMemAllocPitch_v2", memory::alloc_pitch),
    any("cuMemAllocManaged", memory::alloc_managed),
    any("cuMemAllocAsync", memory::alloc_async),
    any("cuMemAllocAsync_ptsz", memory::alloc_async_ptsz),
    any("cuMemAllocFromPoolAsync", memory::alloc_from_pool),
    any("cuMemAllocFromPoolAsync_ptsz", memory::alloc_from_pool_ptsz),
    any("cuMemCreate", memory::create),
    any("cuArrayCreate_v2", arrays::array),
    any("cuArray3DCreate_v2", arrays::array_3d),
    any("cuMipmappedArrayCreate", arrays::mipmapped_array),
    any("cuCtxSetLimit", contexts::grow_heap),
    any("cuGraphLaunch", graphs::launch),
    any("cuGraphLaunch_ptsz", graphs::launch_ptsz),
    small("cuMemAlloc", memory::alloc_v1),
    small("cuMemAllocPitch", memory::alloc_pitch_v1),
    small("cuArrayCreate", arrays::array_v1),
    small("cuArray3DCreate", arrays::array_3d_v1),
    // The compiler sets bounds to variables that may be less than a budget.
    small("cuModuleLoad", code::load_file),
    small("cuModuleLoadData", code::load_data),
    small("cuModuleLoadDataEx", code::load_data_ex),
    own("cuCtxCreate", contexts::create_v1),
    own("cuCtxCreate_v2", contexts::create_v2),
    own("cuCtxCreate_v3", contexts::create_v3),
    own("cuCtxCreate_v4", contexts::create_v4),
];

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

    pub(super) fn by(give_back: impl FnOnce(&Reach) + 'static) -> Held {
        Held(Box::new(give_back))
    }
}

/// `code` with what was granted, if it was.
pub fn answered(code: Option<c_int>, held: impl FnOnce() -> Held) -> Answer {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hook::Hook;

    #[test]
    fn every_hooked_function_that_takes_memory_is_tried() {
        // These take what others of the list have asked for already: a graph before its launch, the primary context at
        // the start of every trial. The last wants a format that only the maker's tools write.
        const OTHERWISE: [&str; 4] =
            ["cuGraphUpload", "cuGraphUpload_ptsz", "cuDevicePrimaryCtxRetain", "cuModuleLoadFatBinary"];
        for hook in Hook::ALL.iter().filter(|hook| hook.effect().starts_with("takes ")) {
            let symbol = hook.info().symbol.to_str().unwrap();
            let tried = ENTRIES.iter().any(|entry| entry.symbol == symbol);
            assert!(tried || OTHERWISE.contains(&symbol), "{symbol}: {}", hook.effect());
        }
    }
}
