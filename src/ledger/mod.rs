//! Who holds what: one file per container, mapped by all its processes.

mod account;
pub mod layout;
pub mod protocol;
mod sync;

use core::sync::atomic::{AtomicBool, Ordering};
use std::fmt;

use crate::config::StatePlace;
use account::Accounts;
pub use account::GpuIndex;
use protocol::{UNIT, units};

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// Bytes to charge: what the driver will take. Counted in units of 4 KiB, rounded up.
    pub bytes: u64,
    /// Bytes that were asked for. The request is also admitted where only the difference to `bytes` overshoots.
    pub at_least: u64,
}

impl Want {
    /// A request that takes exactly what it asks for.
    pub const fn exactly(bytes: u64) -> Want {
        Want { bytes, at_least: bytes }
    }
}

/// Why a request was not admitted, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Refusal {
    /// What the request would have charged.
    pub bytes: u64,
    /// The limit it met.
    pub limit: u64,
    /// What the whole container used.
    pub used: u64,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes do not fit: {} of {} are in use", self.bytes, self.used, self.limit)
    }
}

impl std::error::Error for Refusal {}

/// Why this process does not share its ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharingLost {
    reason: String,
}

impl fmt::Display for SharingLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for SharingLost {}

/// The budget of a container as one of its processes sees it.
pub struct Ledger {
    accounts: Accounts,
    lost: Option<SharingLost>,
    told: AtomicBool,
}

impl Ledger {
    /// Joins the container's ledger, or keeps a private one where that cannot be had; see [`Ledger::sharing`].
    pub fn attach(_place: &StatePlace, _label: Option<&str>) -> Ledger {
        Ledger {
            accounts: Accounts::new(),
            lost: Some(SharingLost { reason: "the ledger is not mapped yet".to_owned() }),
            told: AtomicBool::new(false),
        }
    }

    /// Whether the budget is shared with the container's other processes.
    pub fn sharing(&self) -> Result<(), &SharingLost> {
        self.lost.as_ref().map_or(Ok(()), Err)
    }

    /// Why sharing is off: said once, to the first that asks after it happened.
    pub fn newly_lost(&self) -> Option<&SharingLost> {
        self.lost.as_ref().filter(|_| !self.told.swap(true, Ordering::Relaxed))
    }

    /// The GPU with this UUID. `None` once there are more of them than a ledger has room for.
    pub fn gpu(&self, uuid: [u8; 16]) -> Option<GpuIndex> {
        self.accounts.find(uuid)
    }

    /// Charges a request, if all processes together stay within `limit` bytes (`u64::MAX`: no limit, only counted).
    pub fn reserve(&self, gpu: GpuIndex, want: Want, limit: u64) -> Result<(), Refusal> {
        let refusal = |used| Refusal { bytes: want.bytes, limit, used };
        let account = self.accounts.of(gpu);
        let cap = limit.saturating_add(want.bytes.saturating_sub(want.at_least)) / UNIT;
        let n = units(want.bytes).ok_or_else(|| refusal(self.used(gpu)))?;
        account.add(n, cap).map(drop).ok_or_else(|| refusal(self.used(gpu)))
    }

    /// Takes a charge back, all or part of it. Never below nothing.
    pub fn give_back(&self, gpu: GpuIndex, bytes: u64) {
        self.accounts.of(gpu).subtract(units(bytes).unwrap_or(u32::MAX));
    }

    /// Charges without asking, for what is there already.
    pub fn force(&self, gpu: GpuIndex, bytes: u64) {
        self.accounts.of(gpu).add(units(bytes).unwrap_or(u32::MAX), u64::MAX);
    }

    /// Bytes that the whole container uses.
    pub fn used(&self, gpu: GpuIndex) -> u64 {
        self.own_used(gpu)
    }

    /// Bytes that this process uses.
    pub fn own_used(&self, gpu: GpuIndex) -> u64 {
        self.accounts.of(gpu).used().saturating_mul(UNIT)
    }

    /// What has to be done now and then; call it before every request. Nearly always it only reads a clock.
    pub fn housekeeping(&self) -> Option<&SharingLost> {
        self.newly_lost()
    }

    /// Bytes that a context takes on this GPU, as far as anybody here has learned.
    pub fn context_cost(&self, gpu: GpuIndex) -> Option<u64> {
        Some(self.accounts.of(gpu).context_cost.load(Ordering::Relaxed)).filter(|cost| *cost != 0)
    }

    /// Remembers a context's cost in bytes; the smallest seen stays.
    pub fn learn_context_cost(&self, gpu: GpuIndex, bytes: u64) {
        let _ =
            self.accounts.of(gpu).context_cost.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |known| {
                (bytes != 0 && (known == 0 || bytes < known)).then_some(bytes)
            });
    }
}
