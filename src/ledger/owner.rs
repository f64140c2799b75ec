//! Who has a slot: a number that nobody else ever has, and the one way in which a slot changes hands.
//!
//! What is in a slot belongs to its owner, and the number says who that is. Whoever wants the slot, to use it or to clear away
//! what a dead owner left, first puts its own number in the place of the dead one's. Of any who try only one succeeds, since the
//! others find a number that they have not judged; so nobody clears what a successor has written.

use super::sync::{AtomicU64, Ordering};

/// A slot that nobody has.
pub const NOBODY: u64 = 0;
/// Set in the number of an owner whose life shows in a file of its own, see [`guard`](super).
const GUARDED: u64 = 1 << 63;

/// Whether the owner's life shows in a file of its own, rather than in the lock on its slot.
pub const fn is_guarded(owner: u64) -> bool {
    owner & GUARDED != 0
}

/// The number of an owner, from random bits.
pub const fn number(random: u64, guarded: bool) -> u64 {
    let number = random & !GUARDED | 1;
    if guarded { number | GUARDED } else { number }
}

/// Makes a slot `mine`, unless its owner is alive; who had it before.
pub fn take_over(owner: &AtomicU64, mine: u64, is_alive: impl FnOnce(u64) -> bool) -> Option<u64> {
    let seen = owner.load(Ordering::Acquire);
    let free = seen == NOBODY || !is_alive(seen);
    (free && owner.compare_exchange(seen, mine, Ordering::AcqRel, Ordering::Relaxed).is_ok()).then_some(seen)
}

/// Gives a slot that is `mine` to nobody, once there is nothing of mine in it.
pub fn leave(owner: &AtomicU64, mine: u64) {
    let _ = owner.compare_exchange(mine, NOBODY, Ordering::AcqRel, Ordering::Relaxed);
}
