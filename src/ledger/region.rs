//! A ledger file that this process has joined.

use core::mem::size_of;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::ffi::{CStr, CString};
use std::sync::OnceLock;

use super::account::{Accounts, GpuIndex, claim, join};
use super::guard::{self, Guard};
use super::layout::{
    CHARGES, FILE_SIZE, GPUS, Gpu, Header, LABEL, OBJECT_TABLE, OBJECTS, Object, Preamble, SLOTS, Slot,
    gpu_offset, slot_offset,
};
use super::lost::Fault;
use super::owner::{self, NOBODY};
use super::place::{Opened, check_preamble, check_status};
use super::protocol::{self, Board};
use crate::sys::file::{File, Identity, Kept, Status};
use crate::sys::identity::Me;
use crate::sys::lock;
use crate::sys::mapping::Mapping;

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
        region.take_a_slot(&file)?;
        drop(file);
        region.keep_lock()?;
        region.sign();
        Ok(region)
    }

    /// Takes a slot by the lock on its first byte; behind a guard where a stranger's read lock is on it.
    #[inline(never)]
    fn take_a_slot(&mut self, file: &File) -> Result<(), Fault> {
        (self.slot, self.owner) = match self.lock_a_slot(file)? {
            Some(taken) => taken,
            None => self.take_a_slot_behind_a_guard(file)?,
        };
        Ok(())
    }

    fn lock_a_slot(&self, file: &File) -> Result<Option<(usize, u64)>, Fault> {
        let mine = guard::fresh_number(false);
        for slot in in_order(self) {
            let at = slot_offset(slot) as u64;
            if lock::try_lock(file, at).map_err(Fault::system("lock a slot"))? {
                if self.take_over(file, slot, mine).is_some() {
                    return Ok(Some((slot, mine)));
                }
                lock::unlock(file, at).map_err(Fault::system("unlock a slot"))?;
            } else if self.looks_free(slot)
                && !lock::is_locked(file, at).map_err(Fault::system("ask for locks"))?
            {
                break;
            }
        }
        Ok(None)
    }

    #[cold]
    fn take_a_slot_behind_a_guard(&self, file: &File) -> Result<(usize, u64), Fault> {
        let mine = self.guard()?.owner();
        let slot = in_order(self).find(|slot| self.take_over(file, *slot, mine).is_some());
        Ok((slot.ok_or(Fault::NoSlot)?, mine))
    }

    fn looks_free(&self, slot: usize) -> bool {
        self.slot_at(slot).owner.load(Ordering::Relaxed) == NOBODY
    }

    /// Makes a dead owner's slot `mine`; who had it before.
    pub fn take_over(&self, file: &File, slot: usize, mine: u64) -> Option<u64> {
        let is_alive = |owner| self.is_alive(file, slot, owner);
        owner::take_over(&self.slot_at(slot).owner, mine, is_alive)
    }

    /// Whether the owner of a slot is. What cannot be asked is taken to be alive.
    #[inline(never)]
    pub fn is_alive(&self, file: &File, slot: usize, owner: u64) -> bool {
        let open = |name: &CStr| File::open(&guard::beside(&self.path, name), libc::O_RDONLY);
        guard::is_alive(file, slot, owner, open).unwrap_or(true)
    }

    /// Our sign of life outside the file, made if need be.
    #[cold]
    pub fn guard(&self) -> Result<&Guard, Fault> {
        if let Some(guard) = self.guard.get() {
            return Ok(guard);
        }
        // Another thread may have made one meanwhile: then this one goes at once.
        let _ = self.guard.set(Guard::make(&self.path)?);
        self.guard.get().ok_or(Fault::Moving)
    }

    /// Sees that the lock is still there with the descriptor closed; keeps one where it is not (overlay).
    fn keep_lock(&mut self) -> Result<(), Fault> {
        let file = self.reopen().ok_or(Fault::Moving)?;
        if self.is_alive(&file, self.slot, self.owner) {
            return Ok(());
        }
        owner::leave(&self.own().owner, self.owner);
        self.take_a_slot(&file)?;
        self.keeper = Some(Kept::new(file).map_err(Fault::system("keep it open"))?);
        Ok(())
    }

    /// Clears what the slot's last owner left, and writes who has it now.
    fn sign(&self) {
        self.clear_slot(self.slot);
        self.write_who_we_are();
        self.header().high_water.fetch_max(self.slot as u32 + 1, Ordering::AcqRel);
    }

    /// Clears a slot that the caller has. What its last owner shared is others' first.
    pub fn clear_slot(&self, slot: usize) {
        self.drop_holds(slot);
        wipe(self.slot_at(slot));
    }

    #[inline(never)]
    fn write_who_we_are(&self) {
        let me = Me::look();
        let slot = self.own();
        slot.uid.store(me.uid, Ordering::Relaxed);
        slot.start.store(me.start, Ordering::Relaxed);
        slot.pid_namespace.store(me.pid_namespace, Ordering::Relaxed);
        store_bytes(&slot.comm, &me.comm);
        slot.pid.store(me.pid, Ordering::Release);
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

    /// Sees that nobody else could have our slot: that our number is in it, and the sign that we live is there.
    pub fn keeps_its_slot(&self) -> bool {
        (self.own().owner.load(Ordering::Relaxed) == self.owner || self.sign_again())
            && (!owner::is_guarded(self.owner) || self.guard.get().is_some_and(Guard::is_held))
            && (self.keeper.is_none() || self.is_kept())
    }

    /// Puts our number back where it has been overwritten, unless by somebody who lives.
    #[cold]
    fn sign_again(&self) -> bool {
        let Some(file) = self.reopen() else { return false };
        let mine = self.owner;
        // The lock on the slot is ours.
        let no_other = |owner| !owner::is_guarded(mine) && !owner::is_guarded(owner);
        let is_alive = |owner| !no_other(owner) && self.is_alive(&file, self.slot, owner);
        let back = owner::take_over(&self.own().owner, mine, is_alive).is_some();
        if back {
            self.write_who_we_are();
        }
        back
    }

    /// Whether the descriptor that keeps our lock has survived the program.
    fn is_kept(&self) -> bool {
        self.reopen().is_none_or(|file| self.is_alive(&file, self.slot, self.owner))
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

    /// Finds the file's entry of one of our GPUs, or makes it. False where the file has no room for it.
    pub fn know(&self, gpu: GpuIndex, uuid: [u8; 16]) -> bool {
        if self.column(gpu).is_some() {
            return true;
        }
        let entries = (0..GPUS).map(|column| {
            let entry = self.gpu_at(column);
            (&entry.key, &entry.uuid)
        });
        match (claim(entries, uuid), self.columns.get(gpu.at())) {
            (Some(column), Some(place)) => {
                place.store(column as u8 + 1, Ordering::Release);
                true
            }
            _ => false,
        }
    }

    /// The file's number of one of our GPUs.
    pub fn column(&self, gpu: GpuIndex) -> Option<usize> {
        let column = self.columns.get(gpu.at())?.load(Ordering::Acquire);
        usize::from(column).checked_sub(1)
    }

    /// Our word of a GPU, and its entry.
    pub fn own_word(&self, gpu: GpuIndex) -> Option<&AtomicU64> {
        self.own().words.get(self.column(gpu)?)
    }

    /// The shared entry of a GPU.
    pub fn gpu(&self, gpu: GpuIndex) -> Option<&Gpu> {
        self.column(gpu).map(|column| self.gpu_at(column))
    }

    /// All words of a GPU.
    pub fn board(&self, gpu: GpuIndex) -> Option<Column<'_>> {
        self.column(gpu).map(|column| Column { region: self, column })
    }

    /// Our slot's number.
    pub fn own_slot(&self) -> usize {
        self.slot
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
            self.clear_slot(self.slot);
            owner::leave(&self.own().owner, self.owner);
        }
    }
}

/// All slots: the free ones first, then those of which somebody has to say whether their owners are dead.
fn in_order(region: &Region) -> impl Iterator<Item = usize> + use<'_> {
    (0..2 * SLOTS)
        .map(|n| (n % SLOTS, n < SLOTS))
        .filter(|(slot, free)| region.looks_free(*slot) == *free)
        .map(|(slot, _)| slot)
}

/// Nothing used, no process.
fn wipe(slot: &Slot) {
    slot.pid.store(0, Ordering::Release);
    slot.in_flight.store(0, Ordering::Release);
    slot.asking.store(0, Ordering::Release);
    slot.waiting_since.store(0, Ordering::Release);
    for word in slot.words.iter().chain(&slot.estimated).chain(&slot.lazy) {
        if word.load(Ordering::Relaxed) != 0 {
            word.store(0, Ordering::Release);
        }
    }
}

fn load(value: &AtomicU64) -> u64 {
    value.load(Ordering::Acquire)
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

/// All words of one GPU.
pub(super) struct Column<'a> {
    region: &'a Region,
    column: usize,
}

impl Board for Column<'_> {
    fn slots(&self) -> usize {
        self.region.slots()
    }

    fn word(&self, slot: usize) -> &AtomicU64 {
        let words = &self.region.slot_at(slot).words;
        words.get(self.column).unwrap_or(&words[0])
    }

    fn in_flight(&self, slot: usize) -> &AtomicU32 {
        &self.region.slot_at(slot).in_flight
    }

    fn arbitrating(&self) -> &AtomicU32 {
        &self.region.gpu_at(self.column).arbitrating
    }

    fn objects(&self) -> u64 {
        self.region.objects_charged(self.column)
    }
}

impl Column<'_> {
    /// The lock of this GPU's arbiter.
    pub fn arbiter(&self) -> u64 {
        gpu_offset(self.column) as u64
    }

    /// Whether a slot counts for anything here.
    pub fn holds(&self, slot: usize) -> bool {
        protocol::held(self.word(slot).load(Ordering::Acquire)) != 0
    }
}
