//! How a region comes by its slot, and keeps it.

use core::sync::atomic::Ordering;
use std::ffi::CStr;

use super::{Region, store_bytes};
use crate::ledger::guard::{self, Guard};
use crate::ledger::layout::{SLOTS, Slot, slot_offset};
use crate::ledger::lost::Fault;
use crate::ledger::owner::{self, NOBODY};
use crate::sys::file::{File, Kept};
use crate::sys::identity::Me;
use crate::sys::lock;

impl Region {
    /// Takes a slot in the file, and closes that.
    pub(super) fn move_in(&mut self, file: File) -> Result<(), Fault> {
        self.take_a_slot(&file)?;
        drop(file);
        self.keep_lock()?;
        self.sign();
        Ok(())
    }

    /// Gives the slot up, with nothing left in it.
    pub(super) fn move_out(&self) {
        self.clear_slot(self.slot);
        owner::leave(&self.own().owner, self.owner);
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
