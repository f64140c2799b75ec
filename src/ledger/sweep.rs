//! Taking back what the dead held.

use core::sync::atomic::Ordering;

use super::layout::slot_offset;
use super::owner::NOBODY;
use super::region::Region;
use super::{guard, owner};
use crate::sys::file::File;
use crate::sys::lock;

impl Region {
    /// Frees the slots among `suspects` whose owners are dead; whether any of them was. `file` must be a description of its own, so
    /// that our own lock shows as well.
    ///
    /// An owner that can be killed cannot be asked, so the kernel is. A dead owner's slot is taken over like any other, cleared,
    /// and left; a process that comes just then takes another.
    pub fn sweep(&self, file: &File, mut suspect: impl FnMut(usize) -> bool) -> bool {
        let mut found = false;
        for slot in 0..self.slots() {
            let is_dead = || {
                let owner = self.slot_at(slot).owner.load(Ordering::Acquire);
                !self.is_alive(file, slot, owner)
            };
            if slot != self.own_slot() && suspect(slot) && is_dead() {
                found |= self.clear(file, slot);
            }
        }
        self.sweep_objects(file) || found
    }

    /// Clears a dead owner's slot: by the slot's own lock, or behind our guard where somebody who can only read the file, such as
    /// a neighbour, has a read lock there.
    fn clear(&self, file: &File, slot: usize) -> bool {
        let at = slot_offset(slot) as u64;
        if lock::try_lock(file, at).unwrap_or(false) {
            let found = self.clear_as(file, slot, guard::fresh_number(false));
            let _ = lock::unlock(file, at);
            return found;
        }
        // A process may have come meanwhile, or another that sweeps.
        !lock::is_locked(file, at).unwrap_or(true)
            && self.guard().is_ok_and(|guard| self.clear_as(file, slot, guard.owner()))
    }

    fn clear_as(&self, file: &File, slot: usize, mine: u64) -> bool {
        let Some(dead) = self.take_over(file, slot, mine) else { return false };
        self.clear_slot(slot);
        owner::leave(&self.slot_at(slot).owner, mine);
        if owner::is_guarded(dead) {
            guard::remove(&guard::beside(self.path(), &guard::name(dead)));
        }
        true
    }

    /// Frees all slots of dead owners.
    pub fn sweep_all(&self) -> bool {
        let suspect = |slot: usize| {
            let slot = self.slot_at(slot);
            slot.owner.load(Ordering::Relaxed) != NOBODY
                || slot.words.iter().any(|w| w.load(Ordering::Relaxed) != 0)
        };
        self.reopen().is_some_and(|file| self.sweep(&file, suspect))
    }
}
