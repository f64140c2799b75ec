//! Where the quota file and the state of a container lie.

use std::path::{Path, PathBuf};

/// Where the ledger of this container is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatePlace {
    /// The first of [`StatePlace::DEFAULTS`] that can be used.
    Default,
    /// This directory and no other (`CUQUOTA_STATE`, where an environment variable counts at all).
    Explicit(PathBuf),
}

impl StatePlace {
    /// The directories tried in this order when nothing else was said.
    pub const DEFAULTS: [&'static str; 3] = ["/run/cuquota", "/tmp/cuquota", "/dev/shm/cuquota"];

    /// The directories to try, best first; never empty.
    pub fn candidates(&self) -> impl Iterator<Item = &Path> {
        let (defaults, explicit): (&[&str], _) = match self {
            StatePlace::Default => (&Self::DEFAULTS, None),
            StatePlace::Explicit(dir) => (&[], Some(dir.as_path())),
        };
        defaults.iter().map(Path::new).chain(explicit)
    }
}
