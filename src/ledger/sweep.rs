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
            if slot == self.own_slot()
                || !suspect(slot)
                || lock::is_locked(file, at).unwrap_or(true)
                || !lock::try_lock(file, at).unwrap_or(false)
            {
                continue;
            }
            wipe(self.slot_at(slot));
            let _ = lock::unlock(file, at);
            found = true;
        }
        found
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
