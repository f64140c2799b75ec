//! Taking back what the dead held.

use core::sync::atomic::Ordering;

use super::layout::slot_offset;
use super::region::{Region, wipe};
use crate::sys::file::File;
use crate::sys::lock;

impl Region {
    /// Frees the slots among `suspects` whose owners are dead; whether any of them was. `file` must be a description of its own, so
    /// that our own lock shows as well.
    ///
    /// An owner that can be killed cannot be asked, so the kernel is: a slot whose lock is free has no owner. It is wiped under
    /// that lock, so that nobody takes it meanwhile; a process that does come just then takes another.
    pub fn sweep(&self, file: &File, mut suspect: impl FnMut(usize) -> bool) -> bool {
        let mut found = false;
        for slot in 0..self.slots() {
            let at = slot_offset(slot) as u64;
            if slot == self.own_slot() || !suspect(slot) || lock::is_locked(file, at).unwrap_or(true) {
                continue;
            }
            if lock::try_lock(file, at).unwrap_or(false) {
                wipe(self.slot_at(slot));
                let _ = lock::unlock(file, at);
                found = true;
            } else {
                found |= self.disown(file, slot);
            }
        }
        found
    }

    /// Takes away what a dead owner held whose slot cannot be locked, since somebody who can only read the file, such as a
    /// neighbour, has a read lock on it. Whoever takes the slot meanwhile has other words.
    fn disown(&self, file: &File, slot: usize) -> bool {
        let words = &self.slot_at(slot).words;
        let seen = words.each_ref().map(|word| word.load(Ordering::Acquire));
        !lock::is_locked(file, slot_offset(slot) as u64).unwrap_or(true)
            && words.iter().zip(seen).fold(false, |any, (word, seen)| {
                let taken =
                    seen != 0 && word.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
                any | taken
            })
    }

    /// Frees all slots of dead owners.
    pub fn sweep_all(&self) -> bool {
        let suspect = |slot: usize| {
            let slot = self.slot_at(slot);
            slot.pid.load(Ordering::Relaxed) != 0 || slot.words.iter().any(|w| w.load(Ordering::Relaxed) != 0)
        };
        self.reopen().is_some_and(|file| self.sweep(&file, suspect))
    }
}
