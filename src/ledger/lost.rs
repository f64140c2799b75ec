//! Why a process keeps to itself.

use std::ffi::CStr;
use std::fmt;
use std::io;

/// Why this process does not share its ledger with the container's others. It is still held to the whole limit on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharingLost {
    place: String,
    fault: Fault,
}

/// What is wrong with the place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The kernel's error at a step.
    System(&'static str, i32),
    NotAFile,
    Size {
        found: u64,
        expected: u64,
    },
    NotAllocated,
    NotALedger,
    Version {
        found: u32,
        expected: u32,
    },
    Damaged(&'static str),
    NoSlot,
    TooManyGpus,
    Moving,
}

impl Fault {
    pub fn at(self, place: &CStr) -> SharingLost {
        SharingLost { place: place.to_string_lossy().into_owned(), fault: self }
    }

    /// The kernel's error at a step.
    pub fn system(step: &'static str) -> impl FnOnce(io::Error) -> Fault {
        move |error| Fault::System(step, error.raw_os_error().unwrap_or(0))
    }
}

impl SharingLost {
    /// The path that is not usable.
    pub fn place(&self) -> &str {
        &self.place
    }
}

impl fmt::Display for SharingLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = &self.place;
        match self.fault {
            Fault::System(step, 0) => write!(f, "{place}: cannot {step}"),
            Fault::System(step, code) => {
                write!(f, "{place}: cannot {step}: {}", io::Error::from_raw_os_error(code))
            }
            Fault::NotAFile => write!(f, "{place} is not a regular file; remove it"),
            Fault::Size { found, expected } => {
                write!(f, "{place} has {found} bytes where a ledger has {expected}; remove it")
            }
            Fault::NotAllocated => {
                write!(f, "{place} has holes, so that a full disk could end programs; remove it")
            }
            Fault::NotALedger => write!(f, "{place} is not a ledger; remove it"),
            Fault::Version { found, expected } => {
                write!(
                    f,
                    "{place} is a ledger of version {found}, this is version {expected}; use one version of cuquota in a container"
                )
            }
            Fault::Damaged(what) => write!(f, "{place}: {what} has been overwritten; remove it"),
            Fault::NoSlot => write!(f, "{place}: all {} slots are taken", super::layout::SLOTS),
            Fault::TooManyGpus => write!(f, "{place}: has no room for another GPU; remove it"),
            Fault::Moving => write!(f, "{place} is replaced again and again"),
        }
    }
}

impl std::error::Error for SharingLost {}
