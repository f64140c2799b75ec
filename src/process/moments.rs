//! How often something was seen that has to last before it is believed.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::policy::BETWEEN_MOMENTS;
use crate::sys::clock;

/// Moments at which it was seen, [`BETWEEN_MOMENTS`] apart at least. Thread-safe: of those that see it at once one counts.
#[derive(Default)]
pub struct Moments {
    count: AtomicU32,
    /// In milliseconds of the coarse clock.
    last: AtomicU64,
}

impl Moments {
    /// It is seen now.
    pub fn note(&self) {
        let (now, last) = (clock::coarse_millis(), self.last.load(Ordering::Relaxed));
        let swap = || self.last.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed);
        if now.saturating_sub(last) >= BETWEEN_MOMENTS && swap().is_ok() {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// At how many moments it was seen.
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// What was seen counts for nothing any more.
    pub fn forget(&self) {
        self.count.store(0, Ordering::Relaxed);
        self.last.store(0, Ordering::Relaxed);
    }
}
