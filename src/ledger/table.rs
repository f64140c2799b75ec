//! The table of memory that processes share, in the file.
//!
//! An entry is changed only by who has the table ([`Region::table`]), but for two things that can be done at any time: a
//! bit of one's own slot is taken away, and an object is counted for itself. Who is killed in between leaves an entry that counts
//! too much at most, until somebody sweeps.

use core::cell::OnceCell;
use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::layout::{OBJECTS, Object, SLOTS, u64_at};
use super::region::Region;
use crate::sys::clock::nap;
use crate::sys::file::File;
use crate::sys::mark;

/// A name that memory has between processes; not zeros.
pub type Key = [u64; 2];

/// An entry as it was when it was taken: the number means nothing when the entry has gone to another object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    at: usize,
    generation: u64,
}

/// What an object is: the file's number of its GPU, and its units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub column: usize,
    pub units: u32,
}

impl Size {
    const COLUMNS: u64 = 64;

    /// As a word.
    pub fn pack(self) -> u64 {
        (self.column as u64) << 32 | u64::from(self.units)
    }

    /// What a word says; `None` for nothing.
    pub fn unpack(word: u64) -> Option<Size> {
        let units = word as u32;
        (units != 0).then_some(Size { column: (word >> 32 & (Size::COLUMNS - 1)) as usize, units })
    }
}

/// The marks of open files, looked for at the first need.
type Open = OnceCell<Option<Vec<u64>>>;

/// The right to change the table, for as long as this lives.
pub(super) struct Table<'a> {
    region: &'a Region,
    ours: u64,
}

impl Region {
    /// Entries that have ever been taken.
    pub fn objects_end(&self) -> usize {
        (self.header().objects_end.load(Ordering::Acquire) as usize).min(OBJECTS)
    }

    /// Units of a GPU that are counted for themselves.
    pub fn objects_charged(&self, column: usize) -> u64 {
        let sizes = self.charges().filter_map(|charge| Size::unpack(charge.load(Ordering::Acquire)));
        sizes.filter(|size| size.column == column).map(|size| u64::from(size.units)).sum()
    }

    fn charges(&self) -> impl Iterator<Item = &AtomicU64> {
        (0..self.objects_end()).map(|at| self.charge_at(at))
    }

    fn entries(&self) -> impl Iterator<Item = (&Object, &AtomicU64)> {
        (0..self.objects_end()).map(|at| (self.object_at(at), self.charge_at(at)))
    }

    /// Waits for the table, at most this long. Whoever has it and is dead has lost it.
    pub fn table(&self, file: &File, patience: Duration) -> Option<Table<'_>> {
        let owner = &self.header().objects_owner;
        let ours = self.name_of(self.own_slot());
        let since = Instant::now();
        loop {
            let seen = owner.load(Ordering::Acquire);
            let free = seen == 0 || {
                let slot = ((seen & 0xFFFF) as usize).wrapping_sub(1);
                slot >= SLOTS || seen != self.name_of(slot) || self.is_dead(file, slot)
            };
            if free && owner.compare_exchange(seen, ours, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Some(Table { region: self, ours });
            }
            if since.elapsed() >= patience {
                return None;
            }
            nap(Duration::from_micros(50));
        }
    }

    fn name_of(&self, slot: usize) -> u64 {
        self.slot_at(slot).owner.load(Ordering::Relaxed) << 16 | (slot as u64 + 1)
    }

    fn is_dead(&self, file: &File, slot: usize) -> bool {
        !self.is_alive(file, slot, self.slot_at(slot).owner.load(Ordering::Acquire))
    }

    /// Whether this process has the table, or a thread of it that is no more.
    pub fn has_table(&self) -> bool {
        self.header().objects_owner.load(Ordering::Relaxed) == self.name_of(self.own_slot())
    }

    /// Takes the table from a thread of this process that has left it behind.
    pub fn free_table(&self) {
        let ours = self.name_of(self.own_slot());
        let _ = self.header().objects_owner.compare_exchange(ours, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// What a slot's word pays for is counted for itself from now on, if anybody else may hold it. To be done before the word is
    /// wiped.
    pub fn hand_over(&self, slot: usize) {
        for (object, charge) in self.entries() {
            if object.payer() == Some(slot) {
                count(object, charge);
            }
        }
    }

    /// This process pays for an object no more, and somebody else may hold it.
    pub fn no_longer_pays(&self, entry: Entry) {
        let object = self.object_at(entry.at);
        if object.generation.load(Ordering::Acquire) == entry.generation
            && object.payer() == Some(self.own_slot())
        {
            count(object, self.charge_at(entry.at));
        }
    }

    /// A slot holds nothing any more. Only for who has taken it over.
    pub fn drop_holds(&self, slot: usize) {
        self.hand_over(slot);
        for (object, _) in self.entries() {
            object.let_go(slot);
        }
    }

    /// Whether an entry is as its holder left it.
    pub fn holds(&self, entry: Entry, size: u64, pays: bool) -> bool {
        let (object, charge) = (self.object_at(entry.at), self.charge_at(entry.at));
        let payer = object.payer();
        object.generation.load(Ordering::Acquire) == entry.generation
            && object.size.load(Ordering::Acquire) == size
            && object.is_held_by(self.own_slot())
            && (payer == Some(self.own_slot())) == pays
            && payer.is_none() == (charge.load(Ordering::Acquire) == size)
    }

    /// How many objects this process is said to hold.
    pub fn held_objects(&self) -> usize {
        self.entries()
            .filter(|(object, _)| {
                object.size.load(Ordering::Acquire) != 0 && object.is_held_by(self.own_slot())
            })
            .count()
    }

    /// Takes the dead off all objects, and frees those that nobody holds; whether anything became free. `file` is a
    /// description of its own.
    pub fn sweep_objects(&self, file: &File) -> bool {
        let mut holders = [0u64; SLOTS / 64];
        let mut abandoned = false;
        for (object, charge) in self.entries() {
            if object.size.load(Ordering::Acquire) == 0 {
                abandoned |= charge.load(Ordering::Acquire) != 0;
                continue;
            }
            let held = object.holders();
            abandoned |= held == [0; SLOTS / 64];
            holders.iter_mut().zip(held).for_each(|(all, held)| *all |= held);
            if let Some(payer) = object.payer() {
                set(&mut holders, payer);
            }
        }
        let own = self.own_slot();
        let is_dead = |slot: &usize| *slot != own && self.is_dead(file, *slot);
        let mut dead: Vec<usize> = slots(holders).filter(is_dead).collect();
        if dead.is_empty() && !abandoned {
            return false;
        }
        let Some(table) = self.table(file, Duration::ZERO) else { return false };
        // Nobody can take hold of anything now, also not a new owner of such a slot.
        dead.retain(is_dead);
        let (mut found, open) = (false, Open::new());
        for at in 0..self.objects_end() {
            let (object, charge) = (self.object_at(at), self.charge_at(at));
            for slot in &dead {
                if object.payer() == Some(*slot) {
                    count(object, charge);
                }
                object.let_go(*slot);
            }
            found |= table.settle(at, &open);
        }
        found
    }
}

impl Table<'_> {
    /// Enters an object that this process holds, and pays for itself if `pays`; `None` where there is no room.
    pub fn enter(&self, key: Key, size: Size, mark: u64, pays: bool) -> Option<Entry> {
        let region = self.region;
        let at = (0..OBJECTS).find(|at| region.object_at(*at).size.load(Ordering::Acquire) == 0)?;
        let (object, charge) = (region.object_at(at), region.charge_at(at));
        charge.store(0, Ordering::Release);
        let generation = object.generation.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        for word in &object.holders {
            word.store(0, Ordering::Relaxed);
        }
        for (word, half) in object.key.iter().zip(key) {
            word.store(half, Ordering::Relaxed);
        }
        object.mark.store(mark, Ordering::Relaxed);
        object.take_hold(region.own_slot());
        object.payer.store(if pays { region.own_slot() as u64 + 1 } else { 0 }, Ordering::Relaxed);
        region.header().objects_end.fetch_max(at as u32 + 1, Ordering::AcqRel);
        object.size.store(size.pack(), Ordering::Release);
        if !pays {
            charge.store(size.pack(), Ordering::Release);
        }
        Some(Entry { at, generation })
    }

    /// Finds an object by its name.
    pub fn find(&self, key: Key) -> Option<(Entry, Size)> {
        let region = self.region;
        let named = |object: &Object| {
            object.key.iter().zip(key).all(|(word, half)| word.load(Ordering::Relaxed) == half)
        };
        (0..region.objects_end()).find_map(|at| {
            let object = region.object_at(at);
            let size = Size::unpack(object.size.load(Ordering::Acquire)).filter(|_| named(object))?;
            Some((Entry { at, generation: object.generation.load(Ordering::Acquire) }, size))
        })
    }

    /// What the object's open descriptors are marked with.
    pub fn mark(&self, entry: Entry) -> u64 {
        self.region.object_at(entry.at).mark.load(Ordering::Relaxed)
    }

    /// Nobody finds the object by its name any more.
    pub fn forget_name(&self, entry: Entry) {
        for word in &self.region.object_at(entry.at).key {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// One more holder of an object, which pays for it if `pays`.
    pub fn take_hold(&self, entry: Entry, pays: bool) {
        let (object, charge) = (self.region.object_at(entry.at), self.region.charge_at(entry.at));
        let own = self.region.own_slot();
        object.take_hold(own);
        if pays {
            object.payer.store(own as u64 + 1, Ordering::Release);
            charge.store(0, Ordering::Release);
        } else if object.payer() == Some(own) {
            count(object, charge);
        }
        if object.payer().is_none() {
            count(object, charge);
        }
    }

    /// This process holds an object no more. If it paid and others hold it, it is counted for itself from now on.
    pub fn leave(&self, entry: Entry) {
        let (object, charge) = (self.region.object_at(entry.at), self.region.charge_at(entry.at));
        if object.generation.load(Ordering::Acquire) != entry.generation {
            return;
        }
        let own = self.region.own_slot();
        if object.payer() == Some(own) {
            count(object, charge);
        }
        object.let_go(own);
        self.settle(entry.at, &Open::new());
    }

    /// Takes this process off all objects but these.
    pub fn leave_all_but(&self, mut kept: impl FnMut(Entry) -> bool) {
        for at in 0..self.region.objects_end() {
            let object = self.region.object_at(at);
            let entry = Entry { at, generation: object.generation.load(Ordering::Acquire) };
            if object.is_held_by(self.region.own_slot()) && !kept(entry) {
                self.leave(entry);
            }
        }
    }

    /// Frees an entry that nobody holds; whether it counted until now.
    fn settle(&self, at: usize, open: &Open) -> bool {
        let (object, charge) = (self.region.object_at(at), self.region.charge_at(at));
        let used = object.size.load(Ordering::Acquire) != 0;
        if used && (object.holders() != [0; SLOTS / 64] || object.is_on_its_way(open)) {
            // What nobody pays for counts.
            if object.payer().is_none() {
                count(object, charge);
            }
            return false;
        }
        object.size.store(0, Ordering::Release);
        charge.swap(0, Ordering::AcqRel) != 0
    }
}

impl Drop for Table<'_> {
    fn drop(&mut self) {
        let owner = &self.region.header().objects_owner;
        let _ = owner.compare_exchange(self.ours, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// An object is counted for itself from now on.
fn count(object: &Object, charge: &AtomicU64) {
    charge.store(object.size.load(Ordering::Acquire), Ordering::Release);
    object.payer.store(0, Ordering::Release);
}

impl Object {
    fn holders(&self) -> [u64; SLOTS / 64] {
        self.holders.each_ref().map(|word| word.load(Ordering::Acquire))
    }

    /// The slot whose word has it.
    fn payer(&self) -> Option<usize> {
        let slot = self.payer.load(Ordering::Acquire).checked_sub(1)?;
        usize::try_from(slot).ok().filter(|slot| *slot < SLOTS)
    }

    fn take_hold(&self, slot: usize) {
        if let Some(word) = self.holders.get(slot / 64) {
            word.fetch_or(1 << (slot % 64), Ordering::AcqRel);
        }
    }

    fn let_go(&self, slot: usize) {
        if let Some(word) = self.holders.get(slot / 64) {
            word.fetch_and(!(1 << (slot % 64)), Ordering::AcqRel);
        }
    }

    fn is_held_by(&self, slot: usize) -> bool {
        self.holders.get(slot / 64).is_some_and(|word| word.load(Ordering::Acquire) >> (slot % 64) & 1 != 0)
    }

    /// Whether a descriptor of it is open somewhere, from which anybody may still take hold of it.
    fn is_on_its_way(&self, open: &Open) -> bool {
        is_open(self.mark.load(Ordering::Relaxed), open)
    }
}

fn is_open(mark: u64, open: &Open) -> bool {
    let open = (mark != 0).then(|| open.get_or_init(mark::all_open));
    open.is_some_and(|open| open.as_ref().is_none_or(|open| open.contains(&mark)))
}

fn set(bits: &mut [u64; SLOTS / 64], slot: usize) {
    if let Some(word) = bits.get_mut(slot / 64) {
        *word |= 1 << (slot % 64);
    }
}

/// The slots whose bits are set.
pub(super) fn slots(bits: [u64; SLOTS / 64]) -> impl Iterator<Item = usize> {
    (0..SLOTS).filter(move |slot| bits[slot / 64] >> (slot % 64) & 1 != 0)
}

/// What of a copy of the table is to be counted for itself, as somebody sees it who can only read: what the dead paid for
/// is not in a word that counts, whether or not anybody has swept it. `is_alive` is asked once a slot.
#[inline(never)]
pub(super) fn counted(bytes: &[u8], is_alive: impl Fn(usize) -> bool) -> Vec<Size> {
    let open = Open::new();
    let mut known = [None; SLOTS];
    let mut lives =
        |slot: usize| known.get_mut(slot).is_some_and(|lives| *lives.get_or_insert_with(|| is_alive(slot)));
    let number = |at: usize| u64_at(bytes, at).unwrap_or(0);
    let tables = (0..bytes.len() / size_of::<Object>()).map(|at| at * size_of::<Object>());
    tables
        .filter_map(|at| {
            let size = Size::unpack(number(at + offset_of!(Object, size)))?;
            let payer = number(at + offset_of!(Object, payer)).checked_sub(1);
            if payer.and_then(|slot| usize::try_from(slot).ok()).is_some_and(&mut lives) {
                return None;
            }
            let mut words = [0; SLOTS / 64];
            for (n, word) in words.iter_mut().enumerate() {
                *word = number(at + offset_of!(Object, holders) + n * size_of::<u64>());
            }
            let mark = number(at + offset_of!(Object, mark));
            (slots(words).any(&mut lives) || is_open(mark, &open)).then_some(size)
        })
        .collect()
}
