//! What is charged by estimate rather than by what the driver said: contexts, whose cost is learned, and managed memory,
//! of which the card holds what was touched.
//!
//! Each process tells how many contexts it has on a GPU and how much of its charge is estimated. So whoever looks at the
//! card can subtract what is known exactly and divide the rest among the contexts, also where several were made at once.

use core::sync::atomic::Ordering;

use super::account::GpuIndex;
use super::membership::Ledger;
use super::protocol::{UNIT, units};

/// One process's word for one GPU: 16 bits of contexts, 48 bits of units charged by estimate.
const CONTEXT: u64 = 1 << 48;

/// The container's contexts on a GPU, and its charge that is exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Census {
    /// Contexts of all processes.
    pub contexts: u64,
    /// Bytes charged for what the driver told the size of.
    pub exact: u64,
    /// Those of them that are this process's.
    pub own: u64,
}

impl Ledger {
    /// A context is up that is charged `cost` bytes, of which `paid` are charged by estimate already.
    pub fn context_made(&self, gpu: GpuIndex, cost: u64, paid: u64) {
        // In this order, so that whoever looks in between takes the cost of a context for more, and never for less.
        self.change(gpu, |word| word.wrapping_add(CONTEXT + estimated(cost)));
        self.settle(gpu, paid, cost);
        self.less_estimated(gpu, paid);
    }

    /// A context is gone that was charged `cost` bytes.
    pub fn context_gone(&self, gpu: GpuIndex, cost: u64) {
        self.change(gpu, |word| if word >= CONTEXT { word - CONTEXT } else { word });
        self.give_back(gpu, cost);
        self.less_estimated(gpu, cost);
    }

    /// So many bytes of the charge are more than the card may hold.
    pub fn more_estimated(&self, gpu: GpuIndex, bytes: u64) {
        self.change(gpu, |word| word.wrapping_add(estimated(bytes)));
    }

    /// So many bytes less.
    pub fn less_estimated(&self, gpu: GpuIndex, bytes: u64) {
        self.change(gpu, |word| word - estimated(bytes).min(word % CONTEXT));
    }

    /// What all processes of the container tell at this moment.
    pub fn census(&self, gpu: GpuIndex) -> Census {
        let own = self.accounts.of(gpu).estimated.load(Ordering::Acquire);
        let (mut contexts, mut units) = (own / CONTEXT, own % CONTEXT);
        let exact = |used: u64, units: u64| used.saturating_sub(units.saturating_mul(UNIT));
        let own = exact(self.own_used(gpu), units);
        if let Some((region, column)) = self.region().and_then(|region| Some((region, region.column(gpu)?))) {
            for slot in (0..region.slots()).filter(|slot| *slot != region.own_slot()) {
                let word =
                    region.slot_at(slot).estimated.get(column).map_or(0, |word| word.load(Ordering::Acquire));
                contexts += word / CONTEXT;
                units = units.saturating_add(word % CONTEXT);
            }
        }
        Census { contexts, exact: exact(self.used(gpu), units), own }
    }

    fn change(&self, gpu: GpuIndex, to: impl Fn(u64) -> u64) {
        let own = &self.accounts.of(gpu).estimated;
        let _ = own.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| Some(to(word)));
        self.tell_estimated(gpu);
    }

    /// Writes the process's own word where the others read it.
    pub(super) fn tell_estimated(&self, gpu: GpuIndex) {
        if let Some((region, column)) = self.region().and_then(|region| Some((region, region.column(gpu)?)))
            && let Some(word) = region.slot_at(region.own_slot()).estimated.get(column)
        {
            word.store(self.accounts.of(gpu).estimated.load(Ordering::Acquire), Ordering::Release);
        }
    }
}

fn estimated(bytes: u64) -> u64 {
    units(bytes).map_or(CONTEXT - 1, u64::from)
}
