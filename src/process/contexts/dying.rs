//! The end of contexts: each is marked before the driver is asked to destroy it, and what is recorded in it is forgotten when that
//! is done. Meanwhile the driver may give its handle, and the addresses in it, to others.

use std::sync::atomic::Ordering;

use crate::abi::{CUcontext, CUdevice};
use crate::driver::Driver;
use crate::gate;

use super::{Before, ContextId, Contexts, Entry, Life, Process, forget_last};

/// Contexts on their way out, by id, and what may go with them.
#[must_use]
pub struct Dying {
    ids: Vec<ContextId>,
    before: Before,
}

impl Contexts {
    /// Whether a context is gone: until its memory is forgotten, the driver may give the same addresses and handles anew.
    #[inline]
    pub fn is_any_gone(&self) -> bool {
        self.any_gone.load(Ordering::Relaxed)
    }

    /// `context` is about to be destroyed. That is said before the driver is asked, which may give its handle to a new context
    /// at once. Followed by [`Self::ended`].
    pub fn destroying(&self, process: &Process, driver: usize, context: CUcontext) -> Dying {
        let before = Before::look(process, driver);
        self.mark_leaving(before, |entry| entry.is(context as usize, driver))
    }

    /// The driver has answered: `gone` says whether they are.
    pub fn ended(&self, process: &Process, dying: Dying, gone: bool) {
        if gone { self.destroyed(process, dying) } else { self.not_destroyed(dying) }
    }

    /// They were destroyed: their charge goes, and that of everything in them.
    fn destroyed(&self, process: &Process, Dying { ids, before }: Dying) {
        let mut gone: Vec<Entry> = Vec::new();
        for entry in self.lock().iter_mut() {
            if entry.life == Life::Leaving && ids.contains(&entry.id) {
                entry.life = Life::Gone;
                gone.push(*entry);
            }
        }
        // What another thread remembered meanwhile is void, too.
        forget_last();
        gone.iter().for_each(|entry| self.bury(process, entry, &before));
        for entry in &gone {
            // Until now, for the frees that were on their way.
            if let Some(first) = self.first.get(usize::from(entry.id.0)) {
                first.store(core::ptr::null_mut(), Ordering::Release);
            }
        }
        self.lock().retain(|entry| entry.life != Life::Gone || !ids.contains(&entry.id));
    }

    /// Forgets a context that turns out to be gone.
    #[cold]
    #[inline(never)]
    pub(super) fn forget(&self, process: &Process, driver: usize, context: ContextId) {
        let dying = self.mark_leaving(Before::look(process, driver), |entry| entry.id == context);
        self.destroyed(process, dying);
    }

    /// The driver refused to destroy them.
    fn not_destroyed(&self, Dying { ids, .. }: Dying) {
        for entry in self.lock().iter_mut() {
            if entry.life == Life::Leaving && ids.contains(&entry.id) {
                entry.life = Life::There;
            }
        }
    }

    /// A primary context is about to be released or reset, perhaps for good: [`Self::primary_released`] follows.
    pub fn primary_releasing(&self, process: &Process, driver: usize) -> Before {
        self.any_gone.store(true, Ordering::SeqCst);
        Before::look(process, driver)
    }

    /// The primary context of `device` was released or reset. It goes with the last reference only, and the
    /// driver says whether that was it.
    pub fn primary_released(&self, process: &Process, driver: usize, device: CUdevice, before: Before) {
        let (Some(api), Some(gpu)) = (Driver::get(driver), process.gpus.by_device(process, driver, device))
        else {
            return;
        };
        let (mut flags, mut active) = (0, 0);
        // SAFETY: the outputs are live locals of the types that the driver fills.
        if unsafe { api.primary_state(device, &mut flags, &mut active) }.is_ok() && active == 0 {
            let dying = self.mark_leaving(before, |entry| entry.is_primary(driver, gpu));
            self.destroyed(process, dying);
        }
    }

    fn mark_leaving(&self, before: Before, which: impl Fn(&Entry) -> bool) -> Dying {
        self.any_gone.store(true, Ordering::SeqCst);
        let mut ids = Vec::new();
        for entry in self.lock().iter_mut().filter(|entry| entry.is_there()) {
            if which(entry) {
                entry.life = Life::Leaving;
                ids.push(entry.id);
            }
        }
        forget_last();
        Dying { ids, before }
    }

    /// Forgets what is recorded in a context.
    fn bury(&self, process: &Process, entry: &Entry, before: &Before) {
        process.lazy.drop_context(process, entry.id);
        process.leaving.drop_contexts(process);
        let closing = process.sharing.drop_context(process, entry.id);
        let memory = process.allocations.drop_context(entry.id);
        let arrays = process.arrays.drop_context(entry.id);
        for array in &arrays {
            gate::gone(process, process.physical.holder_gone(array.name));
        }
        let arrays: u64 = arrays.iter().map(|array| array.bytes).sum();
        let estimates: u64 = process.estimates.drop_context(entry.id).iter().map(|held| held.bytes).sum();
        let code = process.code.drop_context(entry.id);
        if let Some(index) = entry.gpu.ledger {
            process.ledger().give_back(index, memory.bytes + arrays + estimates + code);
            process.ledger().less_estimated(index, memory.estimated + estimates);
            process.ledger().context_gone(index, entry.cost);
        }
        drop(closing);
        process.graphs.context_gone();
        process.captures.context_gone(entry.id);
        // Streams of one card's contexts may have memory of pools on another.
        if !self.lock().iter().any(Entry::is_there) {
            process.pools.drop_doomed(process);
        }
        before.forget_gone(process);
        process.pools.refresh(process, entry.driver);
    }
}
