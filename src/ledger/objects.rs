//! Memory that several processes may hold: counted once, until the last of them is gone.
//!
//! Who shares memory goes on paying for it in its own word, and enters it in the [table](super::table) by the name that the
//! driver gives it between processes. Who opens it takes hold of the entry and pays nothing. When the one that pays gives the memory
//! back, or whoever sweeps finds it dead, the entry is counted for itself before the word goes down; with its last holder it
//! is free. So nothing is asked for and nothing refused in all of this, and at every moment at least what is held is counted.
//!
//! Each process remembers what it holds, and puts the table right from that. Without a file it pays for what it opens.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::account::{GpuIndex, HANDING, join};
use super::membership::Ledger;
use super::protocol::{self, units};
use super::region::Region;
use super::table::{Entry, Key, Size, Table};

/// How long to wait for the table. Only somebody stopped in the middle of a change makes it that long.
const FOR_THE_TABLE: Duration = Duration::from_millis(400);
/// How often in a row the table has to be found in our hands before a thread is believed to have left it behind.
const TOO_LONG: u64 = 4;

/// Names an object that this process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shared(u64);

/// An object that was there to take hold of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// To be closed again.
    pub shared: Shared,
    /// Where it lies; `None` where that GPU has no room in this process.
    pub gpu: Option<GpuIndex>,
}

/// Memory that others may go on holding, and that is about to be given back by who paid for it. While this lives, nothing that
/// is given back becomes a lease.
#[must_use = "what was paid is to be given back while this lives"]
pub struct Closing<'ledger> {
    ledger: &'ledger Ledger,
    paid: Option<GpuIndex>,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let Some(gpu) = self.paid else { return };
        if let Some(word) = self.ledger.region().and_then(|region| region.own_word(gpu)) {
            protocol::reclaim(word);
        }
        self.ledger.accounts.of(gpu).tight.fetch_sub(HANDING, Ordering::AcqRel);
    }
}

/// What this process holds of one object.
struct Held {
    name: Shared,
    key: Key,
    gpu: GpuIndex,
    units: u32,
    mark: u64,
    /// Whether our own word has it.
    pays: bool,
    /// How often it was opened here; 0 is one that could not be closed yet.
    times: u32,
    /// Where it is in the file, once it is.
    entry: Option<Entry>,
}

/// What this process holds.
pub(super) struct Objects {
    held: Mutex<Vec<Held>>,
    any: AtomicBool,
    names: AtomicU64,
    times_in_hand: AtomicU64,
}

impl Objects {
    pub const fn new() -> Objects {
        Objects {
            held: Mutex::new(Vec::new()),
            any: AtomicBool::new(false),
            names: AtomicU64::new(0),
            times_in_hand: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger {
    /// Memory that this process pays for can be opened by others from now on, who find it as `key`. `mark` is what its open
    /// descriptors are [marked](crate::sys::mark) with, or 0. To be [closed](Ledger::close_shared) before it is given back.
    ///
    /// Takes some microseconds, and up to 400 ms where another process is stopped in the middle of the same.
    pub fn share(&self, gpu: GpuIndex, key: Key, bytes: u64, mark: u64) -> Shared {
        let mut held = self.objects.lock();
        let name = Shared(self.objects.names.fetch_add(1, Ordering::Relaxed));
        let units = units(bytes).unwrap_or(u32::MAX);
        let mut new = Held { name, key, gpu, units, mark, pays: true, times: 1, entry: None };
        self.with_table(|region, table| {
            // The driver gives such names to one piece of memory at a time: what had it before has it no more.
            if let Some((older, _)) = table.find(key) {
                table.forget_name(older);
            }
            new.entry = new.enter(region, table);
        });
        held.push(new);
        self.objects.any.store(true, Ordering::Release);
        name
    }

    /// Takes hold of what another process, or this one, shares as `key`; `None` where nobody of the container does, and then
    /// the memory is this process's to pay for.
    pub fn open_shared(&self, key: Key) -> Option<Opened> {
        let mut held = self.objects.lock();
        if let Some(own) = held.iter_mut().find(|held| held.key == key && held.times > 0) {
            own.times += 1;
            return Some(Opened { shared: own.name, gpu: Some(own.gpu) });
        }
        let (entry, size, gpu, mark) = self
            .with_table(|region, table| {
                let (entry, size) = table.find(key)?;
                let uuid = &region.gpu_at(size.column).uuid;
                let uuid = join([uuid[0].load(Ordering::Acquire), uuid[1].load(Ordering::Acquire)]);
                let gpu = self.gpu(uuid)?;
                table.take_hold(entry, false);
                Some((entry, size, gpu, table.mark(entry)))
            })
            .flatten()?;
        let name = Shared(self.objects.names.fetch_add(1, Ordering::Relaxed));
        let (units, entry) = (size.units, Some(entry));
        held.push(Held { name, key, gpu, units, mark, pays: false, times: 1, entry });
        self.objects.any.store(true, Ordering::Release);
        self.accounts.of(gpu).shared.fetch_add(u64::from(units), Ordering::AcqRel);
        Some(Opened { shared: name, gpu: Some(gpu) })
    }

    /// Undoes one [`Ledger::share`] or [`Ledger::open_shared`]. The last of them ends this process's part in the memory; others
    /// go on holding it. Who paid for it gives it back while the answer lives.
    pub fn close_shared(&self, shared: Shared) -> Closing<'_> {
        let mut held = self.objects.lock();
        let nothing = Closing { ledger: self, paid: None };
        let Some(at) = held.iter().position(|held| held.name == shared) else { return nothing };
        held[at].times = held[at].times.saturating_sub(1);
        if held[at].times > 0 {
            return nothing;
        }
        let (entry, pays, gpu) = (held[at].entry, held[at].pays, held[at].gpu);
        if pays {
            // What is counted for itself now is not to be spent again as a lease.
            self.accounts.of(gpu).tight.fetch_add(HANDING, Ordering::AcqRel);
        } else {
            self.forget_shared(&held[at]);
        }
        let left = self.with_table(|_, table| entry.map(|entry| table.leave(entry)));
        match (left, self.region()) {
            (None, Some(region)) => {
                // Who has the table does not let go of it. What is to be done at once can be done without.
                if let Some(entry) = entry {
                    region.no_longer_pays(entry);
                }
            }
            _ => {
                held.swap_remove(at);
            }
        }
        self.objects.any.store(!held.is_empty(), Ordering::Release);
        Closing { ledger: self, paid: pays.then_some(gpu) }
    }

    fn forget_shared(&self, held: &Held) {
        let less = |shared: u64| Some(shared.saturating_sub(u64::from(held.units)));
        let _ = self.accounts.of(held.gpu).shared.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less);
    }

    fn with_table<T>(&self, change: impl FnOnce(&Region, &Table<'_>) -> T) -> Option<T> {
        let region = self.region()?;
        let file = region.reopen()?;
        let table = region.table(&file, FOR_THE_TABLE)?;
        Some(change(region, &table))
    }

    /// Enters what this process holds into a file that it has just joined.
    pub(super) fn enter_objects(&self, region: &Region) {
        if self.objects.any.load(Ordering::Acquire) {
            self.enter_held(region, &mut self.objects.lock());
        }
    }

    fn enter_held(&self, region: &Region, held: &mut Vec<Held>) {
        let Some(file) = region.reopen() else { return };
        let Some(table) = region.table(&file, Duration::from_millis(20)) else { return };
        held.retain(|held| held.times > 0);
        for held in held.iter_mut() {
            held.entry = match table.find(held.key) {
                Some((entry, size)) if Some(size) == held.size(region) => {
                    table.take_hold(entry, held.pays);
                    Some(entry)
                }
                _ => held.enter(region, &table),
            };
        }
        table.leave_all_but(|entry| held.iter().any(|held| held.entry == Some(entry)));
    }

    /// What this process holds is right; what the table says of that may not be.
    pub(super) fn repair_objects(&self, region: &Region) {
        let times = &self.objects.times_in_hand;
        if !region.has_table() {
            times.store(0, Ordering::Relaxed);
        } else if times.fetch_add(1, Ordering::Relaxed) >= TOO_LONG {
            region.free_table();
        }
        if !self.objects.any.load(Ordering::Acquire) && region.objects_end() == 0 {
            return;
        }
        // A thread that is at it puts right what it does itself.
        let Ok(mut held) = self.objects.held.try_lock() else { return };
        let is_right = |held: &Held| {
            held.times > 0
                && held
                    .entry
                    .zip(held.size(region))
                    .is_some_and(|(entry, size)| region.holds(entry, size.pack(), held.pays))
        };
        if held.len() != region.held_objects() || !held.iter().all(is_right) {
            self.enter_held(region, &mut held);
        }
    }
}

impl Held {
    fn size(&self, region: &Region) -> Option<Size> {
        Some(Size { column: region.column(self.gpu)?, units: self.units }).filter(|size| size.units > 0)
    }

    fn enter(&self, region: &Region, table: &Table<'_>) -> Option<Entry> {
        table.enter(self.key, self.size(region)?, self.mark, self.pays)
    }
}
