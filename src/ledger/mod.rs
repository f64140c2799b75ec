//! Who holds what: one file per container, mapped by all its processes.
//!
//! A process [attaches](Ledger::attach) once and gets a slot. In it is one word a GPU: what it uses, and what it was granted.
//! Requests that its grant covers are one exchange on that word, however many processes there are; the rest publish what they
//! want and then look at everybody's words ([`protocol`]). Nothing is ever locked in a way that a killed or stopped process
//! could keep others waiting.
//!
//! **Who is alive** the kernel says. The first byte of a slot is locked by its owner with an open-file-description lock (or, where
//! strangers' read locks prevent that, a file of its own), and
//! the mapping of the file, made through the same description, keeps that alive when the descriptor is closed at once. So the lock
//! goes when the process does, in whatever way, or calls `exec`; a program that closes all its descriptors does not lose it, a
//! forked child (which does not get the mapping) does not keep it, and the program has no descriptor that it does not know. On an
//! overlay the mapping keeps another description (measured on Linux 6.18), so there a descriptor stays open after all, closed in
//! forked children; a new ledger is made elsewhere if possible.
//!
//! **Nothing in the file is trusted.** Each process has an account of its own, and never passes the limit by that. A file
//! that is no ledger, was cut or cannot be used ends sharing, not the limit ([`Ledger::sharing`]). Who may write the file (all
//! processes of the container) can make others wait or be refused; it cannot make them crash, with one exception: **cutting the
//! file while it is mapped** lets the next access raise SIGBUS. [`Ledger::housekeeping`], called before every request, looks
//! at the file's size first, but not more often than every 4 ms: a program that asks more often than that can be hit. Only a signal
//! handler, which this library does not install, could close that gap. A full disk cannot have this effect: the file's space is
//! set aside when it is made.
//!
//! **A forked child has no part in it.** What a process keeps in a [`ForkLocal`](crate::sys::fork::ForkLocal) is not there in the
//! child, which attaches anew at its first need. A descriptor that is open for a moment while another thread calls `fork` is
//! closed in the child, but not in that of a raw `clone`; that child keeps a lock alive if its parent is killed, until it calls
//! `exec` or ends.

mod account;
mod beside;
mod crowd;
mod estimated;
mod guard;
pub mod layout;
mod lazy;
mod lost;
mod membership;
mod neighbour;
mod objects;
mod owner;
mod peers;
mod place;
pub mod protocol;
mod region;
mod request;
mod snapshot;
mod sweep;
mod sync;
mod table;
mod upkeep;

use std::fmt;

pub use account::GpuIndex;
pub use crowd::{Denial, Part};
pub use estimated::Census;
pub use lazy::request_trim;
pub use lost::SharingLost;
pub use membership::Ledger;
pub use objects::{Closing, Opened, Shared};
pub use peers::{Card, Promise};
pub use place::find;
pub use snapshot::{GpuState, ProcessState, Snapshot};
pub use table::Key;

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
