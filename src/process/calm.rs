//! Moments at which the card can be looked at: what the driver takes without saying so shows there only while nothing else
//! of this process is on its way.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::policy;
use crate::sys::clock;

use super::moments::Moments;

/// See the module. Thread-safe.
pub struct Calm {
    /// Until when, in milliseconds of the coarse clock, costs are put right at every request; 0 once that is over, and
    /// without end before the first context.
    young: AtomicU64,
    /// Moments since the last context was met at which somebody looked at the card with nothing else on its way.
    looks: Moments,
    /// Calls of this process on their way, as far as they began while costs are put right.
    calls: AtomicUsize,
    /// How many of them ever began.
    began: AtomicUsize,
}

impl Default for Calm {
    fn default() -> Calm {
        Calm {
            young: AtomicU64::new(u64::MAX),
            looks: Moments::default(),
            calls: AtomicUsize::new(0),
            began: AtomicUsize::new(0),
        }
    }
}

/// A call on its way that may have charged what the card does not hold yet, or the other way round.
pub struct OnItsWay<'calm>(&'calm AtomicUsize);

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// For how long after a context was met its cost is put right at the least.
const YOUNG_MS: u64 = 1000;
/// For how long after that, in a process that is never calm.
const PATIENCE_MS: u64 = 30_000;
/// Looks at the card in calm moments that are enough: beside other processes, a cost is seen so often before it is believed.
const CALM_LOOKS: u32 = policy::MOMENTS + 1;

impl Calm {
    /// A context was met: its cost is to be put right from now on.
    pub fn met(&self) {
        // What was made at the same moment may not have been counted yet: these looks are not the last.
        self.looks.forget();
        self.young.store(clock::coarse_millis() + YOUNG_MS, Ordering::Relaxed);
    }

    /// Somebody has looked in a calm moment.
    pub fn looked(&self) {
        self.looks.note();
    }

    /// Has calls counted for the next while, and this one, which may have begun before, for as long as the answer lives
    /// unless it is `counted` already.
    pub fn watch(&self, counted: bool) -> Option<OnItsWay<'_>> {
        self.young.fetch_max(clock::coarse_millis() + YOUNG_MS, Ordering::Relaxed);
        (!counted).then(|| self.count())
    }

    /// What `look` sees, if no call but the one that asks was on its way meanwhile.
    pub fn alone<T>(&self, look: impl FnOnce() -> Option<T>) -> Option<T> {
        let now = || (self.calls.load(Ordering::SeqCst), self.began.load(Ordering::SeqCst));
        let before = now();
        let seen = (before.0 <= 1).then(look).flatten();
        seen.filter(|_| now() == before)
    }

    /// Whether a context was met so lately that its cost may still be put right: for a second, and for as long after that
    /// as no calm moment was found for a look, within bounds.
    #[inline]
    pub fn are_young(&self, now: u64) -> bool {
        let until = self.young.load(Ordering::Relaxed);
        if until == 0 || now < until {
            return until != 0;
        }
        let unseen = self.looks.count() < CALM_LOOKS && now < until.saturating_add(PATIENCE_MS);
        if !unseen {
            let _ = self.young.compare_exchange(until, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        unseen
    }

    /// Counts a call for as long as the answer lives, while costs are put right.
    #[inline]
    pub fn on_its_way(&self) -> Option<OnItsWay<'_>> {
        (self.young.load(Ordering::Relaxed) != 0).then(|| self.count())
    }

    fn count(&self) -> OnItsWay<'_> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.began.fetch_add(1, Ordering::SeqCst);
        OnItsWay(&self.calls)
    }
}
