//! Finds out what loading or unloading code takes: by what the card holds that nobody knows of, before and after.
//!
//! What is on its way elsewhere disturbs that: it is charged before the card holds it, and what comes and goes between two
//! looks at the ledger shows on the card alone. So looks have to agree, and what they do not agree on is not built upon: it is
//! given back as it was charged.

use core::time::Duration;

use crate::abi::CUcontext;
use crate::driver::Driver;
use crate::ledger::GpuIndex;
use crate::sys::clock;

use super::Process;
use super::calm::OnItsWay;
use super::code::{Moved, Owner};
use super::context_cost::Sight;
use super::contexts::Place;

/// A card that a call may load code to, or unload it from.
pub struct Spot {
    /// The context that what it takes is charged to.
    pub place: Place,
    /// That context, where it is not the current one.
    pub context: Option<CUcontext>,
}

/// A call on its way that loads or unloads code.
#[must_use]
pub struct Weighing<'process> {
    process: &'process Process,
    driver: &'static Driver,
    index: usize,
    spots: Vec<(Spot, GpuIndex)>,
    _watched: Option<OnItsWay<'process>>,
}

/// How often a card is looked at for one opinion, with naps between that grow up to the longest.
const LOOKS: usize = 8;
const FIRST_NAP: Duration = Duration::from_micros(50);
const LONGEST_NAP: Duration = Duration::from_micros(800);
/// How many looks have to agree where other processes use the card, too.
const AGREEING: usize = 3;
/// How often another thread may put the charge right first.
const MOST_ATTEMPTS: usize = 16;

/// What was seen on a card.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    /// Bytes that nobody has charged.
    unknown: i64,
    /// The container's contexts.
    contexts: u64,
}

impl<'process> Weighing<'process> {
    /// Looks at the cards of `spots`, before the driver is asked. `counted` tells whether the call is counted among those on
    /// their way.
    #[cold]
    pub fn begin(
        process: &'process Process,
        index: usize,
        spots: Vec<Spot>,
        counted: bool,
    ) -> Option<Weighing<'process>> {
        let driver = Driver::get(index)?;
        let spots = spots.into_iter().filter_map(|spot| Some((spot.place.gpu.ledger?, spot)));
        let spots: Vec<(Spot, GpuIndex)> = spots.map(|(ledger, spot)| (spot, ledger)).collect();
        let _watched = process.contexts.calm.watch(counted);
        let mut weighing = Weighing { process, driver, index, spots, _watched };
        weighing.spots.retain(|(spot, ledger)| {
            let Some((seen, sure)) = weigh(process, driver, index, spot, *ledger) else { return false };
            process.code.begin(spot.place.gpu, seen.unknown, seen.contexts, sure);
            true
        });
        Some(weighing)
    }

    /// Looks again, after the driver has loaded code for `owner` or unloaded some, and charges what that took or gives back
    /// what it gave, whatever the limit. The most bytes that were charged on any of the cards, and its place.
    pub fn settle(&self, owner: Owner) -> Option<(u64, Place)> {
        let grown =
            self.spots.iter().map(|(spot, ledger)| (self.settle_one(spot, *ledger, owner, true), spot.place));
        grown.filter(|(bytes, _)| *bytes > 0).max_by_key(|(bytes, _)| *bytes)
    }

    /// As [`Weighing::settle`], after `owner` was unloaded.
    pub fn unloaded(&self, owner: Owner) {
        for (spot, ledger) in &self.spots {
            self.settle_one(spot, *ledger, owner, false);
        }
        forget(self.process, owner);
    }

    fn settle_one(&self, spot: &Spot, ledger: GpuIndex, owner: Owner, grows: bool) -> u64 {
        let process = self.process;
        for _ in 0..MOST_ATTEMPTS {
            let Some(before) = process.code.before(spot.place.gpu) else { return 0 };
            let Some((seen, sure)) = weigh(process, self.driver, self.index, spot, ledger) else { return 0 };
            // Contexts of other processes that came or went meanwhile.
            let new = seen.contexts as i64 - before.contexts as i64;
            let cost = process.ledger().context_cost(ledger).unwrap_or(0);
            let moved = Moved {
                bytes: seen.unknown - before.base - new.saturating_mul(cost as i64),
                sure: sure && before.sure && new == 0,
                grows,
            };
            let mut grown = 0;
            let settled = process.code.settle(spot.place, owner, before, moved, |charge| match charge {
                0 => {}
                1.. => {
                    grown = charge.unsigned_abs();
                    process.ledger().force(ledger, grown);
                }
                _ => process.ledger().give_back(ledger, charge.unsigned_abs()),
            });
            if settled {
                if !process.contexts.is_alive(spot.place.context) {
                    // With its context it was not forgotten, as it was not there yet.
                    process.give_back(spot.place.gpu, process.code.drop_context(spot.place.context));
                }
                return grown;
            }
        }
        0
    }
}

/// A handle stands for nothing any more that it stood for.
pub fn forget(process: &Process, owner: Owner) {
    for (gpu, bytes) in process.code.unloaded(owner) {
        process.give_back(gpu, bytes);
    }
}

/// What is unknown on a card, and whether that is sure: seen in a moment without other calls of this process, and more than
/// once where other processes may have something on its way. Without such a moment, what was seen most often.
fn weigh(
    process: &Process,
    driver: &Driver,
    index: usize,
    spot: &Spot,
    ledger: GpuIndex,
) -> Option<(Seen, bool)> {
    let look = || {
        within(driver, spot, || {
            process.catch_up(index);
            let sight = (0..4).find_map(|_| Sight::of(process, driver, spot.place.gpu, ledger))?;
            Some(Seen { unknown: sight.unknown(), contexts: sight.contexts() })
        })
    };
    let solo =
        process.ledger().own_used(ledger) == process.ledger().used(ledger) && !process.ledger().has_peers();
    let enough = if solo { 1 } else { AGREEING };
    let mut looks: Vec<Seen> = Vec::with_capacity(LOOKS);
    let mut nap = FIRST_NAP;
    for at in 0..LOOKS {
        if at > 0 {
            clock::nap(nap);
            nap = (nap * 2).min(LONGEST_NAP);
        }
        let mut seen = None;
        let calm = process.contexts.calm.alone(|| {
            seen = look();
            seen
        });
        looks.extend(seen.or_else(look));
        if let Some(seen) = calm
            && looks.iter().filter(|look| **look == seen).count() >= enough
        {
            return Some((seen, true));
        }
    }
    let times = |seen: &&Seen| looks.iter().filter(|look| look == seen).count();
    looks.iter().max_by_key(times).map(|seen| (*seen, false))
}

impl Drop for Weighing<'_> {
    fn drop(&mut self) {
        for (spot, _) in &self.spots {
            self.process.code.end(spot.place.gpu);
        }
    }
}

/// Does something in a spot's context.
fn within<T: Default>(driver: &Driver, spot: &Spot, what: impl FnOnce() -> T) -> T {
    let Some(context) = spot.context else { return what() };
    // SAFETY: a context of this process that was not destroyed as far as is known; a stale one is refused.
    unsafe { driver.within(context, what) }.unwrap_or_default()
}
