//! Waiting until nobody does a thing any more that nobody begins anew.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::sys::clock;

/// Returns when `busy` is 0, or after a second: a driver's answer takes less, and a thread that was to count down may be gone.
pub(super) fn wait(busy: &AtomicU32) {
    let since = Instant::now();
    while busy.load(Ordering::SeqCst) > 0 && since.elapsed() < AT_MOST {
        clock::nap(BETWEEN_LOOKS);
    }
}

const AT_MOST: Duration = Duration::from_secs(1);
const BETWEEN_LOOKS: Duration = Duration::from_micros(20);
