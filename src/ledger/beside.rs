//! How containers share one card without a lock, and without writing to each other: publish, then look.
//!
//! A container's own reserve is its own. For more than that a request is first published and admitted in its container's
//! own ledger ([`protocol`](super::protocol)), which the neighbours read; then, behind a sequentially consistent fence, it
//! looks at what the neighbours hold or are promised. Where all of it is more than the card, the request is taken back. Of any
//! requests that were admitted at the same time, in whatever containers, the one whose fence came last saw all the others.
//!
//! **Leases** cannot be ended from another container, so there are none beyond a container's reserve, where they would cost
//! the neighbours.
//!
//! **Progress.** Two requests of which one fits can see each other and both back out. So whoever is between publishing and
//! having looked says so, and of those who meet, all but the first, in an order that they agree on, stand back until it has
//! been decided. A refusal is final when two looks in a row found the same, nobody asking, and nobody that has asked in
//! between. All of it is bounded in time: a neighbour may be hostile.

use super::protocol::{self, Board};
use super::sync::{AtomicU32, Ordering, fence};

/// The rest of the card at one moment. Amounts are in units.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sight {
    /// What the neighbours hold, or are promised where that is more.
    pub promised: u64,
    /// Whether another request is between publishing and having looked.
    pub asking: bool,
    /// Whether one of those goes first.
    pub ahead: bool,
    /// Changes with each of them that begins. Read before the words.
    pub begun: u64,
}

/// What a request found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is admitted.
    Fits,
    /// It has to be taken back.
    Crowded(Seen),
}

/// What stood in a request's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// What the container itself would hold.
    pub own: u64,
    /// The others.
    pub sight: Sight,
}

/// A container's part in a card, in units.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// What it may hold whatever the others do.
    pub reserve: u64,
    /// All there is, and with it what rounding may overshoot.
    pub card: u64,
}

/// In the word that tells of threads between publishing and having looked: how many begin, above how many there are. So a
/// look can tell that none has come and gone meanwhile.
const BEGUN: u32 = 1 << 16;

/// How many are between publishing and having looked, as such a word says.
pub const fn asking(word: u32) -> u32 {
    word % BEGUN
}

/// How many have ever begun, as such a word says; it wraps.
pub const fn begun(word: u32) -> u64 {
    (word / BEGUN) as u64
}

/// A thread between publishing and having looked. Made before it publishes.
pub struct Asking<'a>(&'a AtomicU32);

impl<'a> Asking<'a> {
    /// Says so in the slot.
    pub fn begin(asking: &'a AtomicU32) -> Asking<'a> {
        asking.fetch_add(BEGUN + 1, Ordering::AcqRel);
        Asking(asking)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        // Never below none, whatever was found there.
        let mut seen = self.0.load(Ordering::Relaxed);
        while asking(seen) > 0 {
            match self.0.compare_exchange_weak(seen, seen - 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }
}

/// Judges what has been published and admitted in the container's own ledger, and is to be taken back if it is crowded.
pub fn judge(board: &impl Board, bounds: Bounds, look: impl FnOnce() -> Sight) -> Outcome {
    // Whoever publishes later than this sees us, or we see them.
    fence(Ordering::SeqCst);
    if protocol::total(board).held <= bounds.reserve {
        return Outcome::Fits;
    }
    for slot in 0..board.slots() {
        protocol::reclaim(board.word(slot));
    }
    let own = protocol::total(board).held;
    if own <= bounds.reserve {
        return Outcome::Fits;
    }
    let sight = look();
    if own.saturating_add(sight.promised) <= bounds.card {
        Outcome::Fits
    } else {
        Outcome::Crowded(Seen { own, sight })
    }
}

/// What a crowded request does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Be refused.
    Refuse,
    /// Stand back until those ahead have been decided on, then try again.
    StandBack,
    /// Try again.
    Again,
}

/// The attempts of one request.
#[derive(Default)]
pub struct Attempts {
    last: Option<Seen>,
}

impl Attempts {
    /// What to do about having been crowded.
    pub fn crowded(&mut self, seen: Seen) -> Next {
        if !seen.sight.asking && self.last == Some(seen) {
            return Next::Refuse;
        }
        self.last = Some(seen);
        if seen.sight.ahead { Next::StandBack } else { Next::Again }
    }
}
