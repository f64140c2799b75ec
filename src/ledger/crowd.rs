//! Requests in a container that has neighbours on the card.

use core::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::account::GpuIndex;
use super::beside::{Asking, Attempts, Bounds, Next, Outcome, Seen, Sight, asking, begun, judge};
use super::layout::Slot;
use super::membership::Ledger;
use super::neighbour::{Place, earliest, place_of};
use super::peers::{Card, Neighbours};
use super::protocol::{self, UNIT, total};
use super::region::Region;
use super::{Refusal, Want};
use crate::policy;
use crate::sys::clock::nap;

/// How long a request tries while others are being decided. Only somebody stopped or hostile makes it that long.
const FOR_NEIGHBOURS: Duration = Duration::from_millis(100);
/// How long it stands back for those ahead of it. They need microseconds.
const STANDING_BACK: Duration = Duration::from_millis(10);

/// The container's part in a card that it shares with neighbours. Bytes.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    /// The most that it may hold; `u64::MAX` is no limit.
    pub limit: u64,
    /// What is kept for it.
    pub reserve: u64,
    /// The card.
    pub card: Card<'a>,
    /// What the card itself has free now, if that can be asked.
    pub free: &'a dyn Fn() -> Option<u64>,
}

/// Why a request was not admitted beside the neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Denial {
    /// It met the container's own limit.
    Limit(Refusal),
    /// It fits the limit, and the neighbours hold or are promised too much. They may give something back.
    Crowded {
        /// Since when a neighbour waits, in milliseconds since boot.
        waiting_since: Option<u64>,
    },
    /// What the neighbours are promised leaves no room for it, whatever they give back.
    Never,
}

impl Ledger {
    /// Whether there are neighbours to look at: if not, [`Ledger::admit`] is all there is to it.
    #[inline]
    pub fn has_peers(&self) -> bool {
        self.peers.present()
    }

    /// Looks whether there is a directory of neighbours now. To be called a few times a second.
    pub fn look_for_peers(&self) {
        if self.peers.refresh() {
            // Leases that were free before cost the neighbours now.
            for (gpu, _, _) in self.accounts.known() {
                if let Some(word) = self.region().and_then(|region| region.own_word(gpu)) {
                    protocol::reclaim(word);
                }
            }
        }
    }

    /// Tells the neighbours how much of a GPU is kept for this container, in bytes.
    pub fn tell_reserve(&self, gpu: GpuIndex, reserve: u64) {
        self.accounts.of(gpu).reserve.store(reserve, Ordering::Relaxed);
        if let Some(entry) = self.region().and_then(|region| region.gpu(gpu)) {
            entry.reserve.store(reserve, Ordering::Release);
        }
    }

    /// As [`Ledger::admit`], and what is beyond the container's reserve is admitted only where the neighbours leave it.
    ///
    /// Within the reserve no neighbour is looked at. Beyond it their files are read, some ten microseconds a neighbour; takes
    /// up to 100 ms where one of them is stopped in the middle of a request, or pretends to be.
    pub fn admit_beside(&self, gpu: GpuIndex, want: Want, part: Part<'_>) -> Result<(), Denial> {
        self.decide_beside(gpu, want, part, &|| self.attempt_beside(gpu, want, part))
    }

    /// As [`Ledger::admit_beside`], whatever the container's own limit.
    #[cold]
    pub fn force_beside(&self, gpu: GpuIndex, want: Want, part: Part<'_>) -> Result<(), Denial> {
        self.decide_beside(gpu, want, part, &|| self.attempt_by_force(gpu, want, part))
    }

    fn decide_beside(
        &self,
        gpu: GpuIndex,
        want: Want,
        part: Part<'_>,
        attempt: &dyn Fn() -> Result<(), Verdict>,
    ) -> Result<(), Denial> {
        let mut attempts = Attempts::default();
        let mut pause = Duration::from_micros(20);
        let mut swept = false;
        let mut first_denied = None;
        loop {
            let Err(verdict) = attempt() else { return Ok(()) };
            // Most are admitted at once, and need not know the time.
            let since = *first_denied.get_or_insert_with(Instant::now);
            let crowded = match verdict {
                // Somebody may have published what is about to be taken back.
                Verdict::Limit(refusal) => {
                    if !self.is_sibling_asking() || since.elapsed() > FOR_NEIGHBOURS {
                        return Err(Denial::Limit(refusal));
                    }
                    None
                }
                Verdict::Crowded(seen, neighbours) => Some((seen, neighbours)),
            };
            if let Some((seen, neighbours)) = crowded {
                match attempts.crowded(seen) {
                    // What a sibling held that has been killed is ours again.
                    Next::Refuse if !swept && self.region().is_some_and(Region::sweep_all) => {
                        (attempts, swept) = (Attempts::default(), true);
                    }
                    Next::Refuse => return Err(self.denial(gpu, want, part, neighbours)),
                    _ if since.elapsed() > FOR_NEIGHBOURS => {
                        return Err(self.denial(gpu, want, part, neighbours));
                    }
                    Next::StandBack => self.stand_back(gpu, part),
                    Next::Again => {}
                }
            }
            nap(pause);
            pause = (pause * 3 / 2).min(Duration::from_millis(2));
        }
    }

    fn attempt_beside(&self, gpu: GpuIndex, want: Want, part: Part<'_>) -> Result<(), Verdict> {
        let announced = self.own_slot().map(|slot| Asking::begin(&slot.asking));
        let mut crowded = None;
        let admitted = self.admit_if(gpu, want, part.limit, part.reserve, |region, n| {
            crowded = self.judge_beside(region, gpu, want, n, part);
            crowded.is_none()
        });
        drop(announced);
        match (admitted, crowded) {
            (Ok(()), _) => Ok(()),
            (Err(_), Some((seen, neighbours))) => Err(Verdict::Crowded(seen, neighbours)),
            (Err(refusal), None) => Err(Verdict::Limit(refusal)),
        }
    }

    fn attempt_by_force(&self, gpu: GpuIndex, want: Want, part: Part<'_>) -> Result<(), Verdict> {
        let announced = self.own_slot().map(|slot| Asking::begin(&slot.asking));
        self.force(gpu, want.bytes);
        let crowded = self.judge_beside(self.region(), gpu, want, 0, part);
        if crowded.is_some() {
            self.give_back(gpu, want.bytes);
        }
        drop(announced);
        crowded.map_or(Ok(()), |(seen, neighbours)| Err(Verdict::Crowded(seen, neighbours)))
    }

    /// What stands in the way of a request for `n` units that its own container has admitted.
    fn judge_beside(
        &self,
        region: Option<&Region>,
        gpu: GpuIndex,
        want: Want,
        n: u32,
        part: Part<'_>,
    ) -> Option<(Seen, Neighbours)> {
        let overshoot = want.bytes.saturating_sub(want.at_least);
        let bounds = Bounds {
            reserve: part.reserve / UNIT,
            card: part.card.physical.saturating_add(overshoot) / UNIT,
        };
        let mut neighbours = Neighbours::default();
        let mut look = || {
            let siblings = self.siblings_begun();
            neighbours = self.look(gpu, part);
            let free = (part.free)().map(|free| free.saturating_add(overshoot));
            // What is hidden from the ledgers shows on the card.
            let hidden = free.is_some_and(|free| !policy::leaves_owed(want.bytes, free, neighbours.owed));
            Sight {
                promised: if hidden { u64::MAX } else { neighbours.promised.div_ceil(UNIT) },
                asking: neighbours.asking || self.is_sibling_asking(),
                ahead: neighbours.ahead || self.is_sibling_ahead(),
                begun: neighbours.begun.wrapping_add(siblings),
            }
        };
        let board = region.and_then(|region| region.board(gpu));
        let outcome = match board {
            Some(board) => judge(&board, bounds, look),
            // Nobody sees us; we see the others.
            None => {
                let own = self.accounts.of(gpu).used().saturating_add(u64::from(n));
                if own <= bounds.reserve {
                    return None;
                }
                let sight = look();
                if own.saturating_add(sight.promised) <= bounds.card {
                    return None;
                }
                Outcome::Crowded(Seen { own, sight })
            }
        };
        match outcome {
            Outcome::Fits => None,
            Outcome::Crowded(seen) => Some((seen, neighbours)),
        }
    }

    fn look(&self, gpu: GpuIndex, part: Part<'_>) -> Neighbours {
        self.peers.look(self.accounts.uuid(gpu), part.card, self.place())
    }

    /// Lets those be decided who are ahead.
    fn stand_back(&self, gpu: GpuIndex, part: Part<'_>) {
        let since = Instant::now();
        while since.elapsed() < STANDING_BACK && (self.is_sibling_ahead() || self.look(gpu, part).ahead) {
            nap(Duration::from_micros(100));
        }
    }

    #[cold]
    fn denial(&self, gpu: GpuIndex, want: Want, part: Part<'_>, neighbours: Neighbours) -> Denial {
        let own = self.used(gpu);
        let never =
            own.saturating_add(want.at_least).saturating_add(neighbours.reserved) > part.card.physical;
        if never {
            Denial::Never
        } else {
            let siblings = self.siblings().map(|(_, slot)| slot.waiting_since.load(Ordering::Relaxed));
            let waiting_since = siblings
                .filter(|since| *since != 0)
                .fold(neighbours.waiting_since, |first, since| earliest(first, Some(since)));
            Denial::Crowded { waiting_since }
        }
    }

    /// Bytes that the neighbours leave to this container on a card that has `free` free; `None` without neighbours.
    pub fn left_beside(&self, gpu: GpuIndex, part: Part<'_>, free: u64) -> Option<u64> {
        self.has_peers().then(|| {
            let neighbours = self.look(gpu, part);
            policy::left_beside(
                policy::Beside { physical: part.card.physical, reserve: part.reserve, used: self.used(gpu) },
                free,
                neighbours.promised,
                neighbours.owed,
            )
        })
    }

    /// Bytes that the neighbours use of a card, as they say; 0 without neighbours.
    pub fn used_beside(&self, gpu: GpuIndex, part: Part<'_>) -> u64 {
        if self.has_peers() { self.look(gpu, part).used } else { 0 }
    }

    /// Says to all that a request waits since then, in milliseconds since boot; to be repeated while it does.
    pub fn wait_since(&self, since: u64) {
        if let Some(slot) = self.own_slot() {
            let earlier = |seen| (seen == 0 || since < seen).then_some(since);
            let _ = slot.waiting_since.fetch_update(Ordering::Relaxed, Ordering::Relaxed, earlier);
        }
    }

    /// The request that waited since then does not any more.
    pub fn waited(&self, since: u64) {
        if let Some(slot) = self.own_slot() {
            let _ = slot.waiting_since.compare_exchange(since, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// What is given back is not to be kept as a lease: beyond the reserve it would cost the neighbours.
    pub(super) fn is_lease_costly(&self, gpu: GpuIndex) -> bool {
        self.has_peers()
            && self.region().and_then(|region| region.board(gpu)).is_some_and(|board| {
                total(&board).held > self.accounts.of(gpu).reserve.load(Ordering::Relaxed) / UNIT
            })
    }

    fn own_slot(&self) -> Option<&Slot> {
        self.region().map(|region| region.slot_at(region.own_slot()))
    }

    fn place(&self) -> Option<Place> {
        self.region().map(|region| place_of(region.identity(), region.own_slot()))
    }

    fn siblings(&self) -> impl Iterator<Item = (usize, &Slot)> {
        let region = self.region();
        let slots = region.map_or(0, Region::slots);
        (0..slots).filter_map(move |slot| {
            region.filter(|region| slot != region.own_slot()).map(|region| (slot, region.slot_at(slot)))
        })
    }

    fn siblings_begun(&self) -> u64 {
        self.siblings().fold(0, |sum, (_, slot)| sum.wrapping_add(begun(slot.asking.load(Ordering::Acquire))))
    }

    fn is_sibling_asking(&self) -> bool {
        let own = self.own_slot().is_some_and(|slot| asking(slot.asking.load(Ordering::Acquire)) > 1);
        own || self.siblings().any(|(_, slot)| asking(slot.asking.load(Ordering::Acquire)) != 0)
    }

    fn is_sibling_ahead(&self) -> bool {
        let own = self.region().map_or(0, Region::own_slot);
        self.siblings().any(|(at, slot)| at < own && asking(slot.asking.load(Ordering::Acquire)) != 0)
    }
}

/// How one attempt ended.
enum Verdict {
    Limit(Refusal),
    Crowded(Seen, Neighbours),
}
