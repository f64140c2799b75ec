//! What one process knows: its quota, its ledger and what it holds.
//!
//! A [`Process`] is made at the first hooked call and belongs to the process that made it. A forked child owns
//! nothing: it finds no `Process`, makes its own at its first hooked call, and never touches its parent's, whose
//! locks may be held by threads that the child does not have.

pub mod allocations;
pub mod belongings;
pub mod beside;
pub mod bound;
pub mod budget;
pub mod bus;
pub mod calm;
pub mod captures;
pub mod code;
mod context_cost;
pub mod contexts;
mod drain;
pub mod gpus;
pub mod graphs;
mod identity;
pub mod lazy;
pub mod leaving;
mod locks;
mod moments;
pub mod outlived;
pub mod physical;
pub mod pools;
pub mod sharing;
mod table;
pub mod thread;
pub mod weighing;

use std::sync::OnceLock;

use crate::ledger::Ledger;
use crate::log;
use crate::sys::clock;
use crate::sys::fork::ForkLocal;

use allocations::Allocations;
use belongings::Belongings;
use budget::Budget;
use captures::Captures;
use code::Code;
use contexts::Contexts;
use gpus::{Gpu, Gpus};
use graphs::Graphs;
use lazy::Lazy;
use leaving::Leaving;
use physical::Physical;
use pools::Pools;
use sharing::Sharing;

/// See the module.
pub struct Process {
    /// The quota file and whether it can be used.
    pub budget: Budget,
    /// The cards this process has met.
    pub gpus: Gpus,
    /// The contexts it holds.
    pub contexts: Contexts,
    /// Its addresses: plain, pitched and managed memory, and what it has from pools.
    pub allocations: Allocations,
    /// Its allocations that are backed on touch.
    pub lazy: Lazy,
    /// Its pools.
    pub pools: Pools,
    /// Its handles and mappings of the virtual memory interface.
    pub physical: Physical,
    /// What of that the driver lets go of in stream order.
    pub leaving: Leaving,
    /// Its graphs that take memory.
    pub graphs: Graphs,
    /// Its arrays.
    pub arrays: Belongings,
    /// What of its contexts is charged by estimate: what limits take beyond their defaults, and memory of other interfaces.
    pub estimates: Belongings,
    /// What it shares with other processes by address.
    pub sharing: Sharing,
    /// What its code takes.
    pub code: Code,
    /// Its captures.
    pub captures: Captures,
    ledger: OnceLock<Ledger>,
}

static CURRENT: ForkLocal<Process> = ForkLocal::new();

impl Process {
    /// This process, known from its first call on.
    #[inline]
    pub fn current() -> &'static Process {
        CURRENT.get_or_init(Process::new)
    }

    fn new() -> Process {
        contexts::forget_last();
        Process {
            budget: Budget::find(),
            gpus: Gpus::default(),
            contexts: Contexts::default(),
            allocations: Allocations::default(),
            lazy: Lazy::default(),
            pools: Pools::default(),
            physical: Physical::default(),
            leaving: Leaving::default(),
            graphs: Graphs::default(),
            arrays: Belongings::default(),
            estimates: Belongings::default(),
            sharing: Sharing::default(),
            code: Code::default(),
            captures: Captures::default(),
            ledger: OnceLock::new(),
        }
    }

    /// The container's ledger, joined at the first need of it.
    pub fn ledger(&self) -> &Ledger {
        self.ledger.get_or_init(|| Ledger::attach(&self.budget.state(), self.budget.label().as_deref()))
    }

    /// Bytes that were charged on `gpu` go back to the budget.
    pub fn give_back(&self, gpu: &Gpu, bytes: u64) {
        if let Some(index) = gpu.ledger {
            self.ledger().give_back(index, bytes);
        }
    }

    /// Charges less where the driver has let go of memory, which it does without a word: when it has waited, pools may hold less,
    /// and physical memory may be unmapped.
    #[inline(never)]
    pub fn catch_up(&self, driver: usize) {
        self.leaving.settle(self);
        self.pools.refresh(self, driver);
    }

    /// What is due from time to time; costs a glance at the clock. Called where memory is asked for or shown,
    /// outside all locks.
    #[inline]
    pub fn tend(&self) {
        let now = clock::coarse_millis();
        if let Some(lost) = self.ledger().housekeeping_at(now) {
            log::always(format_args!(
                "cuquota: the budget is not shared with the container's other processes, each is held to all of \
                 it: {lost}"
            ));
        }
        if self.budget.is_look_due(now) {
            self.look_around(now);
        } else if self.contexts.calm.are_young(now) {
            self.contexts.settle(self);
        }
    }

    #[cold]
    fn look_around(&self, now: u64) {
        if self.budget.refresh() {
            self.gpus.refresh_limits(self);
        }
        self.contexts.look_around(self, now);
        self.leaving.settle(self);
        if self.ledger().is_trim_due() {
            self.lazy.move_to_host(self);
        }
    }
}
