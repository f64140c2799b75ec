//! This process among the containers that share its cards.

use core::time::Duration;
use std::time::Instant;

use crate::abi::{Code, cuda};
use crate::config::Quota;
use crate::ledger::{Card, Denial, GpuIndex, Part, Want};
use crate::sys::clock;

use super::Process;
use super::gpus::Gpu;

/// The naps of a request that waits: growing, and longer while somebody else has waited for longer.
const FIRST_NAP: Duration = Duration::from_millis(1);
const LONGEST_NAP: Duration = Duration::from_millis(10);
const OUT_OF_COURTESY: Duration = Duration::from_millis(60);
/// How often the driver is asked again although the card has the memory.
const MOST_IN_VAIN: u32 = 3;

impl Process {
    /// Charges a request, if container and neighbours leave room for it.
    #[inline]
    pub fn admit(&self, gpu: &Gpu, index: GpuIndex, want: Want) -> Result<(), Denial> {
        if self.ledger().has_peers() {
            self.beside(gpu, |part| self.ledger().admit_beside(index, want, part))
        } else {
            self.ledger().admit(index, want, gpu.limit()).map_err(Denial::Limit)
        }
    }

    /// As [`Process::admit`] where there are neighbours, whatever the container's own limit.
    #[cold]
    pub fn force_beside(&self, gpu: &Gpu, index: GpuIndex, want: Want) -> Result<(), Denial> {
        self.beside(gpu, |part| self.ledger().force_beside(index, want, part))
    }

    /// As [`Process::admit`], for a request that has been denied: waits for as long as the quota file allows, if a neighbour
    /// may give something back. Of those who wait the first goes first, roughly.
    #[cold]
    pub fn admit_later(&self, gpu: &Gpu, index: GpuIndex, want: Want, denial: Denial) -> Result<(), Denial> {
        let patience = self.budget.wait();
        if patience.is_zero() || !matches!(denial, Denial::Crowded { .. }) {
            return Err(denial);
        }
        let (started, since) = (Instant::now(), clock::coarse_millis().max(1));
        let mut nap = FIRST_NAP;
        let mut denial = denial;
        while let Denial::Crowded { waiting_since } = denial {
            let left = patience.saturating_sub(started.elapsed());
            if left.is_zero() {
                break;
            }
            self.ledger().wait_since(since);
            let behind = waiting_since.is_some_and(|first| first < since);
            clock::nap((if behind { nap + OUT_OF_COURTESY } else { nap }).min(left));
            nap = (nap * 3 / 2).min(LONGEST_NAP);
            self.tend();
            match self.admit(gpu, index, want) {
                Ok(()) => {
                    self.ledger().waited(since);
                    return Ok(());
                }
                Err(next) => denial = next,
            }
        }
        self.ledger().waited(since);
        Err(denial)
    }

    /// Asks the driver again for what is admitted and what it has just refused for want of memory: until a neighbour's that the
    /// neighbour does not count any more is back on the card, but no longer than a request may wait that has `waited` already.
    #[cold]
    pub fn ask_later(&self, gpu: &Gpu, bytes: u64, waited: Duration, ask: &mut dyn FnMut() -> Code) -> Code {
        let patience = self.budget.wait().saturating_sub(waited);
        let (started, since) = (Instant::now(), clock::coarse_millis().max(1));
        let (mut nap, mut in_vain) = (FIRST_NAP, 0);
        let mut code = cuda::OUT_OF_MEMORY;
        while code == cuda::OUT_OF_MEMORY && in_vain < MOST_IN_VAIN {
            let left = patience.saturating_sub(started.elapsed());
            if left.is_zero() {
                break;
            }
            self.ledger().wait_since(since);
            clock::nap(nap.min(left));
            nap = (nap * 3 / 2).min(LONGEST_NAP);
            self.tend();
            match self.contexts.physical_free(gpu) {
                Some(free) if free < bytes => continue,
                // It is there: whatever is in the way does not go by waiting.
                Some(_) => in_vain += 1,
                None => {}
            }
            code = ask();
        }
        self.ledger().waited(since);
        code
    }

    /// What of a card the neighbours leave to this container, where `free` bytes are free; all of it without neighbours.
    #[inline]
    pub fn left_beside(&self, gpu: &Gpu, free: u64) -> u64 {
        match gpu.ledger {
            Some(index) if self.ledger().has_peers() => {
                self.beside(gpu, |part| self.ledger().left_beside(index, part, free)).unwrap_or(free)
            }
            _ => free,
        }
    }

    /// Bytes that the neighbours say they use of a card.
    pub fn used_beside(&self, gpu: &Gpu) -> u64 {
        let index = gpu.ledger.filter(|_| self.ledger().has_peers());
        index.map_or(0, |index| self.beside(gpu, |part| self.ledger().used_beside(index, part)))
    }

    #[cold]
    fn beside<T>(&self, gpu: &Gpu, ask: impl FnOnce(Part<'_>) -> T) -> T {
        let promise = |quota: &Quota| gpu.promise_in(quota);
        let free = || self.contexts.physical_free(gpu);
        ask(Part {
            limit: gpu.limit(),
            reserve: gpu.reserve(),
            card: Card { physical: gpu.physical(), promise: &promise },
            free: &free,
        })
    }
}
