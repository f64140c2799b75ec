//! Who holds what: one file per container, mapped by all its processes.

mod account;
mod estimated;
pub mod layout;
mod lost;
mod membership;
mod place;
pub mod protocol;
mod region;
mod request;
mod snapshot;
mod sweep;
mod sync;
mod upkeep;

use std::fmt;

pub use account::GpuIndex;
pub use estimated::Census;
pub use lost::SharingLost;
pub use membership::Ledger;
pub use place::find;
pub use snapshot::{GpuState, ProcessState, Snapshot};

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
