//! A ledger file that this process has joined.

mod column;
mod slot;

use core::mem::size_of;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::ffi::CString;
use std::sync::OnceLock;

use super::account::{Accounts, join};
use super::guard::Guard;
use super::layout::{
    CHARGES, FILE_SIZE, GPUS, Gpu, Header, LABEL, OBJECT_TABLE, OBJECTS, Object, Preamble, SLOTS, Slot,
    gpu_offset, slot_offset,
};
use super::lost::Fault;
use super::owner::NOBODY;
use super::place::{Opened, check_preamble, check_status};
use crate::sys::file::{File, Identity, Kept, Status};
use crate::sys::mapping::Mapping;

pub(super) use column::Column;

/// The mapped file, and our slot in it.
///
/// The slot is ours for as long as our number is in it, and that counts for as long as the lock on the slot's first byte is
/// there, or that on our guard. The lock is held by the mapping: nothing a program does to its descriptors releases it, a forked
/// child does not have it, and it goes with the process.
pub(super) struct Region {
    map: Mapping,
    slot: usize,
    owner: u64,
    /// Where strangers' read locks keep us from the locks in the file, our sign of life outside it.
    guard: OnceLock<Guard>,
    path: CString,
    identity: Identity,
    allocated: bool,
    /// Holds the lock where the file system does not let the mapping hold it.
    keeper: Option<Kept>,
    /// The file's number of each GPU, plus one; 0 while unknown.
    columns: [AtomicU8; GPUS],
}

/// What the check of a region found.
pub(super) enum Check {
    /// All is well, or cannot be judged from here.
    Sound,
    /// Another file has its name, or none has, or somebody else could have our slot.
    Gone,
    /// It is not a ledger any more.
    Broken(Fault),
}

impl Region {
    /// Maps an opened ledger and takes a slot in it.
    pub fn join(opened: Opened) -> Result<Region, Fault> {
        let Opened { file, path, identity, allocated } = opened;
        let map = Mapping::shared(&file, FILE_SIZE).map_err(Fault::system("map it out of reach of forks"))?;
        let columns = [const { AtomicU8::new(0) }; GPUS];
        let (owner, guard) = (NOBODY, OnceLock::new());
        let mut region =
            Region { map, slot: SLOTS, owner, guard, path, identity, allocated, keeper: None, columns };
        region.move_in(file)?;
        Ok(region)
    }

    /// Writes the container's name into the head.
    pub fn label(&self, label: &str) {
        let mut cut = label.len().min(LABEL - 1);
        while !label.is_char_boundary(cut) {
            cut -= 1;
        }
        store_bytes(&self.header().label, label.get(..cut).unwrap_or_default().as_bytes());
    }

    /// A descriptor of its own on the file, while that still has its name.
    pub fn reopen(&self) -> Option<File> {
        let file = File::open(&self.path, libc::O_RDWR).ok()?;
        (file.status().ok()?.identity == self.identity).then_some(file)
    }

    /// Which file this is.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Where it is.
    pub fn path(&self) -> &CString {
        &self.path
    }

    /// Looks for signs that others do not share this file with us any more. Looks at the file's size from outside before
    /// touching the mapping: beyond the end of a file that was cut it would raise SIGBUS.
    pub fn check(&self, accounts: &Accounts) -> Check {
        let status = match Status::of_path(&self.path) {
            Ok(status) => status,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Check::Gone,
            // Rights that were given up hide the path, not the file.
            Err(_) => return Check::Sound,
        };
        if status.identity != self.identity {
            return Check::Gone;
        }
        let found = || {
            check_status(&status, self.allocated)?;
            check_preamble(Some(self.preamble()))?;
            let uuid_of = |gpu: &Gpu| join([load(&gpu.uuid[0]), load(&gpu.uuid[1])]);
            let moved = accounts.known().any(|(gpu, uuid, _)| {
                self.column(gpu).is_some_and(|column| uuid_of(self.gpu_at(column)) != uuid)
            });
            if moved { Err(Fault::Damaged("its table of GPUs")) } else { Ok(()) }
        };
        match found() {
            Err(fault) => Check::Broken(fault),
            Ok(()) if !self.keeps_its_slot() => Check::Gone,
            Ok(()) => Check::Sound,
        }
    }

    fn preamble(&self) -> Preamble {
        let header = self.header();
        Preamble {
            magic: header.magic.load(Ordering::Relaxed),
            version: header.version.load(Ordering::Relaxed),
            gpus: header.gpus.load(Ordering::Relaxed),
            slots: header.slots.load(Ordering::Relaxed),
            slot_size: header.slot_size.load(Ordering::Relaxed),
            file_size: header.file_size.load(Ordering::Relaxed),
        }
    }

    /// Leaves the file behind: threads that still look there find zeros, and our slot is free.
    pub fn abandon(&self) {
        self.map.detach();
        if let Some(keeper) = &self.keeper {
            keeper.close();
        }
        if let Some(guard) = self.guard.get() {
            guard.abandon();
        }
    }

    /// Slots that have ever been taken.
    pub fn slots(&self) -> usize {
        let high_water = self.header().high_water.load(Ordering::Acquire) as usize;
        high_water.max(self.slot + 1).min(SLOTS)
    }

    pub fn header(&self) -> &Header {
        // SAFETY: the mapping is FILE_SIZE bytes, page aligned, lives as long as `self`, and starts with a header; all of a
        // header are atomics, valid for any bits and for being changed by others.
        unsafe { self.map.base().cast::<Header>().as_ref() }
    }

    /// Our slot's number.
    pub fn own_slot(&self) -> usize {
        self.slot
    }

    fn own(&self) -> &Slot {
        self.slot_at(self.slot)
    }

    /// A slot; one beyond the last is the last.
    pub fn slot_at(&self, slot: usize) -> &Slot {
        let offset = slot_offset(slot.min(SLOTS - 1));
        debug_assert!(offset + size_of::<Slot>() <= FILE_SIZE);
        // SAFETY: the offset is that of a whole slot inside the mapping, aligned as slots are (asserted in `layout`); see
        // `header` for the rest.
        unsafe { self.map.base().add(offset).cast::<Slot>().as_ref() }
    }

    /// An object's entry; one beyond the last is the last.
    pub fn object_at(&self, at: usize) -> &Object {
        let offset = OBJECT_TABLE + at.min(OBJECTS - 1) * size_of::<Object>();
        // SAFETY: the offset is that of a whole object inside the mapping, aligned as objects are (asserted in `layout`); see
        // `header` for the rest.
        unsafe { self.map.base().add(offset).cast::<Object>().as_ref() }
    }

    /// The charge of the object there.
    pub fn charge_at(&self, at: usize) -> &AtomicU64 {
        let offset = CHARGES + at.min(OBJECTS - 1) * size_of::<AtomicU64>();
        // SAFETY: the offset is that of a whole word inside the mapping, aligned; see `header` for the rest.
        unsafe { self.map.base().add(offset).cast::<AtomicU64>().as_ref() }
    }

    /// The file's entry of one of its GPUs, by its number there.
    pub fn gpu_at(&self, column: usize) -> &Gpu {
        let offset = gpu_offset(column.min(GPUS - 1));
        // SAFETY: the offset is that of a whole entry inside the mapping, aligned as entries are; see `header` for the rest.
        unsafe { self.map.base().add(offset).cast::<Gpu>().as_ref() }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // Nothing of ours is left for others to sweep.
        if self.slot < SLOTS && matches!(self.check(&Accounts::new()), Check::Sound) {
            self.move_out();
        }
    }
}

/// Bytes into words, NUL padded.
#[inline(never)]
fn store_bytes(words: &[AtomicU64], bytes: &[u8]) {
    let mut chunks = bytes.chunks(8);
    for word in words {
        let mut padded = [0; 8];
        let chunk = chunks.next().unwrap_or_default();
        if let Some(place) = padded.get_mut(..chunk.len()) {
            place.copy_from_slice(chunk);
        }
        word.store(u64::from_ne_bytes(padded), Ordering::Relaxed);
    }
}

fn load(value: &AtomicU64) -> u64 {
    value.load(Ordering::Acquire)
}
