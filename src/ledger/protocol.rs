//! How processes share one budget without a lock: the words, and what may be done to them.
//!
//! Every process has one word a GPU: what it *uses* and what it was *granted*, so that `used <= granted`. The
//! difference is a lease: the process may take it without looking at anybody else. What others count against the
//! limit is the larger of the two.
//!
//! **Growing is publish, then check.** A request first makes itself visible (it raises both halves of its own word,
//! so that no thread can spend what is not yet admitted), then sums everybody. Within the limit it is admitted, over it
//! is taken back. Between the two stands a sequentially consistent fence. Of any set of requests that were
//! admitted at the same time, the one whose fence came last saw all the others; it would have backed out
//! had they not fitted together. So at no instant is more admitted than the limit, whoever is killed or stopped where.
//!
//! **Anybody may end an idle lease**: lowering another word's granted half to its used half takes nothing that is in
//! use, and the owner's next attempt to spend the lease fails on the changed word.
//!
//! **Progress.** Two requests of which one fits can each see the other and both back out. So whoever failed goes to the
//! arbiter (one at a time, see [`Referee`]), announces itself, and decides when nobody else is between publishing and
//! checking.
//!
//! Amounts here are in units of [`UNIT`] bytes. Nothing in a word is trusted: whatever bits are found, no operation
//! wraps, and halves that contradict each other count as the larger.

use super::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Bytes in one unit of a word's halves.
pub const UNIT: u64 = 4096;

/// The most units that one request may ask for; more is refused without being tried.
pub const MAX_REQUEST: u32 = 1 << 31;

/// Units for `bytes`, rounded up; `None` where one request may not ask for that much.
pub const fn units(bytes: u64) -> Option<u32> {
    let units = bytes.div_ceil(UNIT);
    if units <= MAX_REQUEST as u64 { Some(units as u32) } else { None }
}

/// A word with these halves.
pub const fn pack(granted: u32, used: u32) -> u64 {
    (granted as u64) << 32 | used as u64
}

/// Units the owner may use without asking.
pub const fn granted(word: u64) -> u32 {
    (word >> 32) as u32
}

/// Units the owner uses.
pub const fn used(word: u64) -> u32 {
    word as u32
}

/// Units that others have to count: the larger half.
pub const fn held(word: u64) -> u32 {
    if granted(word) > used(word) { granted(word) } else { used(word) }
}

/// The words of one GPU, one a slot, and what goes with them.
pub trait Board {
    /// Slots that may be in use: all that can be are below it.
    fn slots(&self) -> usize;
    /// The word of a slot.
    fn word(&self, slot: usize) -> &AtomicU64;
    /// How many threads of a slot's owner are between publishing and having checked.
    fn in_flight(&self, slot: usize) -> &AtomicU32;
    /// Not zero while an arbiter decides. A hint: whoever believes it loses time, never safety.
    fn arbitrating(&self) -> &AtomicU32;
    /// Units of shared memory that are in nobody's word.
    fn objects(&self) -> u64;
}

/// What the arbiter needs from outside.
pub trait Referee {
    /// Frees the slots of dead owners; whether there was anything to free.
    fn sweep(&mut self) -> bool;
    /// Lets others run for a moment; false once it has been long enough.
    fn pause(&mut self) -> bool;
}

/// Applies `change` to a word until it sticks. `None` from `change` leaves the word alone.
fn update(word: &AtomicU64, mut change: impl FnMut(u64) -> Option<u64>) -> Option<u64> {
    let mut seen = word.load(Ordering::Relaxed);
    loop {
        let next = change(seen)?;
        match word.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return Some(seen),
            Err(now) => seen = now,
        }
    }
}

/// Takes `n` units from the owner's lease; false, and nothing done, where the lease is smaller.
pub fn take(word: &AtomicU64, n: u32) -> bool {
    update(word, |w| {
        let next = used(w).checked_add(n)?;
        (next <= granted(w)).then(|| pack(granted(w), next))
    })
    .is_some()
}

/// Gives `n` used units back. They stay leased to the owner until somebody needs them.
pub fn give_back(word: &AtomicU64, n: u32) {
    update(word, |w| Some(pack(held(w), used(w).saturating_sub(n))));
}

/// Charges `n` units without asking anybody, up to what a word can say.
pub fn force(word: &AtomicU64, n: u32) {
    update(word, |w| {
        let next = used(w).saturating_add(n);
        Some(pack(granted(w).max(next), next))
    });
}

/// Ends the idle lease of a word, whoever owns it; the units that became free.
pub fn reclaim(word: &AtomicU64) -> u32 {
    update(word, |w| (granted(w) > used(w)).then(|| pack(used(w), used(w))))
        .map_or(0, |w| granted(w) - used(w))
}

/// Ends the idle leases of all slots but `own`; the units that became free.
pub fn reclaim_others(board: &impl Board, own: usize) -> u64 {
    (0..board.slots()).filter(|&slot| slot != own).map(|slot| u64::from(reclaim(board.word(slot)))).sum()
}

/// Raises the used half to `at_least` where it is lower: the owner knows better.
pub fn raise_to(word: &AtomicU64, at_least: u32) {
    update(word, |w| (used(w) < at_least).then(|| pack(granted(w).max(at_least), at_least)));
}

/// What all slots hold and use together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Total {
    /// Sum of the larger halves: what counts against the limit.
    pub held: u64,
    /// Sum of the used halves.
    pub used: u64,
    /// Changes whenever any of the words does, near enough.
    fingerprint: u64,
}

/// Sums the words of all slots, and what is in nobody's.
///
/// In this order: what leaves a word for the objects is entered there first, so that it is seen in one of the two.
pub fn total(board: &impl Board) -> Total {
    let mut total = Total::default();
    for slot in 0..board.slots() {
        let word = board.word(slot).load(Ordering::Acquire);
        total.held += u64::from(held(word));
        total.used += u64::from(used(word));
        total.fingerprint = (total.fingerprint ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }
    let objects = board.objects();
    total.held += objects;
    total.used += objects;
    total.fingerprint ^= objects;
    total
}

/// A request that others can see and that is not admitted yet.
struct Published<'a> {
    word: &'a AtomicU64,
    n: u32,
    /// By how much the word's owner holds more for it.
    extra: u32,
}

impl<'a> Published<'a> {
    /// Makes a request for `n` visible. Both halves rise, so that the owner's other threads cannot spend it.
    fn new(word: &'a AtomicU64, n: u32) -> Option<Published<'a>> {
        let before = update(word, |w| {
            let next = used(w).checked_add(n)?;
            Some(pack(held(w).max(next), next))
        })?;
        let extra = (used(before) + n).saturating_sub(held(before));
        Some(Published { word, n, extra })
    }

    fn retract(self) {
        update(self.word, |w| {
            let used = used(w).saturating_sub(self.n);
            Some(pack(granted(w).saturating_sub(self.extra).max(used), used))
        });
    }
}

/// One attempt to have `n` units more, and `slack` more to lease, while no more than `cap` are held by all together.
/// Safe against any number of others doing the same; either may fail where only one fits.
pub fn grow(board: &impl Board, own: usize, n: u32, slack: u32, cap: u64) -> Option<Total> {
    let word = board.word(own);
    let published = Published::new(word, n.checked_add(slack)?)?;
    // Whoever publishes later than this sees us, or we see them.
    fence(Ordering::SeqCst);
    let total = total(board);
    if total.held > cap {
        published.retract();
        return None;
    }
    if slack > 0 {
        give_back(word, slack);
    }
    Some(Total { used: total.used - u64::from(slack).min(total.used), ..total })
}

/// How a request without the arbiter ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// Admitted; the sums that it was admitted on.
    Granted(Total),
    /// Did not fit among what the others hold now.
    Crowded,
    /// Somebody is deciding at the arbiter: queue up there, not to disturb.
    Arbitrating,
}

/// A request that goes by the arbiter; if `courteous`, only while none is at work. Leases something in advance where there is
/// plenty.
pub fn attempt(board: &impl Board, own: usize, n: u32, slack: Slack, cap: u64, courteous: bool) -> Attempt {
    let in_flight = board.in_flight(own);
    in_flight.fetch_add(1, Ordering::AcqRel);
    // Either the arbiter sees us in flight, or we see that it is at work.
    fence(Ordering::SeqCst);
    let outcome = if courteous && board.arbitrating().load(Ordering::Acquire) != 0 {
        Attempt::Arbitrating
    } else {
        grow_somehow(board, own, n, slack, cap).map_or(Attempt::Crowded, Attempt::Granted)
    };
    land(in_flight);
    outcome
}

fn grow_somehow(board: &impl Board, own: usize, n: u32, slack: Slack, cap: u64) -> Option<Total> {
    let advance = slack.beyond(total(board).held + u64::from(n));
    (advance > 0)
        .then(|| grow(board, own, n, advance, slack.cap))
        .flatten()
        .or_else(|| grow(board, own, n, 0, cap))
        .or_else(|| if reclaim_others(board, own) > 0 { grow(board, own, n, 0, cap) } else { None })
}

/// One in flight less; never below none, whatever was found there.
fn land(in_flight: &AtomicU32) {
    let mut seen = in_flight.load(Ordering::Relaxed);
    while seen > 0 {
        match in_flight.compare_exchange_weak(seen, seen - 1, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}

/// How much to lease in advance.
#[derive(Debug, Clone, Copy)]
pub struct Slack {
    /// At most this many units,
    pub at_most: u32,
    /// and one part in so many of what is left
    pub one_in: u32,
    /// of this.
    pub cap: u64,
}

impl Slack {
    /// Nothing in advance.
    pub const NONE: Slack = Slack { at_most: 0, one_in: 1, cap: 0 };

    fn beyond(self, held: u64) -> u32 {
        let share = self.cap.saturating_sub(held) / u64::from(self.one_in.max(1));
        share.min(u64::from(self.at_most)) as u32
    }
}

/// Decides on a request, one process at a time where `exclusive`. What it refuses did not fit: nobody else
/// was between publishing and checking, and two looks in a row found the same words.
pub fn arbitrate(
    board: &impl Board,
    own: usize,
    n: u32,
    cap: u64,
    exclusive: bool,
    referee: &mut impl Referee,
) -> Option<Total> {
    if !exclusive {
        return decide(board, own, n, cap, exclusive, referee);
    }
    // Between this and the first look at who is in flight stands the fence in `grow`. An arbiter killed here leaves its
    // mark; the next one takes it away.
    board.arbitrating().store(1, Ordering::Release);
    let decision = decide(board, own, n, cap, exclusive, referee);
    board.arbitrating().store(0, Ordering::Release);
    decision
}

fn decide(
    board: &impl Board,
    own: usize,
    n: u32,
    cap: u64,
    exclusive: bool,
    referee: &mut impl Referee,
) -> Option<Total> {
    let mut last_seen = None;
    loop {
        reclaim_others(board, own);
        if !exclusive {
            board.in_flight(own).fetch_add(1, Ordering::AcqRel);
        }
        let granted = grow(board, own, n, 0, cap);
        if !exclusive {
            land(board.in_flight(own));
        }
        if granted.is_some() {
            return granted;
        }
        if referee.sweep() {
            last_seen = None;
        } else {
            let quiet = (0..board.slots()).all(|slot| board.in_flight(slot).load(Ordering::Acquire) == 0);
            let seen = quiet.then(|| total(board));
            if seen.is_some() && seen == last_seen {
                return None;
            }
            last_seen = seen;
        }
        if !referee.pause() {
            return None;
        }
    }
}
