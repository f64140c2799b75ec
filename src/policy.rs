//! What may be had and what is shown: numbers in, verdicts out, nothing else.

#![forbid(unsafe_code)]

/// The driver's unit of device memory: what it takes from the card, it takes in blocks of 2 MiB.
pub const BLOCK: u64 = 2 << 20;

/// Total and free memory of a GPU, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// All there is.
    pub total: u64,
    /// What can still be had.
    pub free: u64,
}

/// What a program inside sees of a card: a GPU of the size it was given, of which its container's own usage is
/// taken, and never more free than the card really has.
#[must_use]
pub fn visible(physical: Memory, limit: u64, used: u64) -> Memory {
    let total = physical.total.min(limit);
    Memory { total, free: total.saturating_sub(used).min(physical.free) }
}

/// What a container has on a card that it shares with others. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beside {
    /// All there is on the card.
    pub physical: u64,
    /// What is kept for the container.
    pub reserve: u64,
    /// What it uses.
    pub used: u64,
}

/// Whether the card, which has `free` bytes left, can still give the neighbours what they are `owed` when it has given
/// `request`. So what a neighbour hides, or somebody uses who is not counted, costs nobody's reserve.
#[must_use]
pub fn leaves_owed(request: u64, free: u64, owed: u64) -> bool {
    request.saturating_add(owed) <= free
}

/// What a container can still have beside neighbours that hold, or are promised, `promised` bytes and are `owed` some of
/// them: what is left of its own reserve in any case, and what all of that leaves of the card.
#[must_use]
pub fn left_beside(own: Beside, free: u64, promised: u64, owed: u64) -> u64 {
    let burst = own.physical.saturating_sub(promised).saturating_sub(own.used).min(free.saturating_sub(owed));
    burst.max(own.reserve.saturating_sub(own.used))
}

/// `bytes` in whole blocks; `u64::MAX`, which nobody is granted, where that does not fit.
#[must_use]
pub fn blocks(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX)
}

/// The most that one context is believed to take. A larger share of the card is somebody else's memory.
const MOST_PLAUSIBLE_CONTEXT: u64 = 1 << 30;

/// Contexts rarely cost more than this.
pub const USUAL_CONTEXT: u64 = 512 << 20;
/// What a context is taken to cost while nothing better is known: contexts of current drivers take between 100
/// and 500 MiB.
pub const TYPICAL_CONTEXT: u64 = 256 << 20;

/// No other process's word makes a context cheaper than this, unless the card itself shows it.
const LEAST_BELIEVED_CONTEXT: u64 = 64 << 20;

/// What one context seems to cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share {
    /// That, in bytes.
    pub bytes: u64,
    /// At how many moments it has to be seen, one after the other, before it is believed: what other processes say they use may
    /// be on its way to them still.
    pub moments: u32,
}

/// How long moments are apart, in milliseconds: most requests are on their way for less.
pub const BETWEEN_MOMENTS: u64 = 10;
/// At so many moments nothing was on its way,
pub const MOMENTS: u32 = 5;
/// or not so much that it left less than a context can cost.
const MANY_MOMENTS: u32 = 25;

/// What one context seems to cost: what the card has lost, less what is known exactly and what other processes say they use,
/// divided among the contexts. Memory that nobody tells of makes that more than it is, so the smallest ever seen counts;
/// `None` where it says nothing.
#[must_use]
pub fn context_share(card_used: u64, exact: u64, others: u64, contexts: u64) -> Option<Share> {
    let most = card_used.saturating_sub(exact).checked_div(contexts)?;
    let share = card_used.saturating_sub(exact).saturating_sub(others) / contexts;
    let least = most.min(LEAST_BELIEVED_CONTEXT);
    let moments = match others {
        0 => 0,
        _ if share < least => MANY_MOMENTS,
        _ => MOMENTS,
    };
    let bytes = share.max(least);
    (1..=MOST_PLAUSIBLE_CONTEXT).contains(&bytes).then_some(Share { bytes, moments })
}

/// A share that is smaller by less than this says nothing: what is known exactly is known to a block or two per context.
const LEAST_CORRECTION: u64 = 4 * BLOCK;

/// Whether a share is to be learned that every look has seen for so many moments (`None` for the first that sees it): the first
/// at once, a smaller one when it was seen again and is smaller by a quarter. Contexts made at the same moment, which the first
/// look takes for one, make a difference of half and more. Where others' word leaves less than can be, that is learned if there is
/// nothing better.
#[must_use]
pub fn is_learned(learned: Option<u64>, seen: Share, so_far: Option<u32>) -> bool {
    let lasts = so_far.is_some_and(|moments| moments >= seen.moments);
    let can_be = seen.moments < MANY_MOMENTS;
    match learned {
        None => lasts || can_be,
        Some(learned) => {
            let less = seen.bytes <= learned / 4 * 3 && learned - seen.bytes >= LEAST_CORRECTION;
            // What was a stranger's memory stands in the way of requests within the reserve.
            less && (can_be && lasts || learned > USUAL_CONTEXT && so_far.is_some())
        }
    }
}

/// The bytes of an array: rows padded to 64 bytes, heights to 8 rows, the tiles in which the driver lays arrays
/// out; `levels` of a mipmap, each half the size of the one before but with as many `layers`; in whole blocks.
#[must_use]
pub fn array_bytes([width, height, depth]: [u64; 3], layers: bool, element: u64, levels: u64) -> u64 {
    let level = |level: u64| -> Option<u64> {
        let part = |extent: u64| (extent >> level.min(63)).max(1);
        let row = part(width).checked_mul(element)?.checked_next_multiple_of(64)?;
        let rows = if height == 0 { 1 } else { part(height).checked_next_multiple_of(8)? };
        row.checked_mul(rows)?.checked_mul(if layers { depth } else { part(depth) }.max(1))
    };
    let sum = (0..levels.clamp(1, 64)).try_fold(0u64, |sum, at| sum.checked_add(level(at)?));
    sum.map_or(u64::MAX, blocks)
}

#[cfg(test)]
mod tests {
    use super::*;
    const GIB: u64 = 1 << 30;

    #[test]
    fn a_program_sees_the_smaller_of_budget_and_card() {
        let card = Memory { total: 16 * GIB, free: 16 * GIB };
        assert_eq!(visible(card, 4 * GIB, GIB), Memory { total: 4 * GIB, free: 3 * GIB });
        assert_eq!(visible(card, 32 * GIB, GIB), Memory { total: 16 * GIB, free: 15 * GIB });
        assert_eq!(visible(card, u64::MAX, 0), card);
    }

    #[test]
    fn free_is_what_can_really_be_had() {
        let crowded = Memory { total: 16 * GIB, free: GIB / 2 };
        assert_eq!(visible(crowded, 4 * GIB, GIB).free, GIB / 2);
    }

    #[test]
    fn usage_above_the_limit_leaves_nothing_and_never_wraps() {
        let card = Memory { total: 16 * GIB, free: 10 * GIB };
        assert_eq!(visible(card, 4 * GIB, 5 * GIB).free, 0);
        assert_eq!(visible(card, 0, 5 * GIB), Memory { total: 0, free: 0 });
    }

    #[test]
    fn what_neighbours_are_promised_is_not_free_and_ones_own_reserve_is() {
        let own = Beside { physical: 16 * GIB, reserve: 4 * GIB, used: GIB };
        // Nobody else: all of it.
        assert_eq!(left_beside(own, 15 * GIB, 0, 0), 15 * GIB);
        // One that uses 2 of the 6 it is promised.
        assert_eq!(left_beside(own, 13 * GIB, 6 * GIB, 4 * GIB), 9 * GIB);
        // One that hides 3 GiB.
        assert_eq!(left_beside(own, 10 * GIB, 6 * GIB, 6 * GIB), 4 * GIB);
        // They have taken all but the reserve.
        assert_eq!(left_beside(own, 3 * GIB, 12 * GIB, 0), 3 * GIB);
        // They claim more than there is.
        assert_eq!(left_beside(own, 0, u64::MAX, u64::MAX), 3 * GIB);
        assert_eq!(left_beside(Beside { used: 5 * GIB, ..own }, 0, u64::MAX, u64::MAX), 0);
    }

    #[test]
    fn a_request_leaves_on_the_card_what_others_are_owed() {
        assert!(leaves_owed(2 * GIB, 6 * GIB, 4 * GIB));
        assert!(!leaves_owed(2 * GIB + 1, 6 * GIB, 4 * GIB));
        assert!(!leaves_owed(1, u64::MAX - 1, u64::MAX));
    }

    #[test]
    fn rounding_never_wraps() {
        assert_eq!(blocks(0), 0);
        assert_eq!(blocks(1), BLOCK);
        assert_eq!(blocks(BLOCK), BLOCK);
        assert_eq!(blocks(u64::MAX), u64::MAX);
        assert_eq!(array_bytes([u64::MAX; 3], false, 16, 64), u64::MAX);
    }

    #[test]
    fn what_nothing_explains_is_shared_among_the_contexts() {
        let exactly = |mib: u64| Some(Share { bytes: mib << 20, moments: 0 });
        let after = |moments, mib: u64| Some(Share { bytes: mib << 20, moments });
        assert_eq!(context_share(300 << 20, 0, 0, 1), exactly(300));
        assert_eq!(context_share(GIB + (600 << 20), GIB, 0, 2), exactly(300));
        assert_eq!(context_share(9 * GIB, 0, 0, 1), None);
        assert_eq!(context_share(GIB, 2 * GIB, 0, 1), None);
        assert_eq!(context_share(GIB, 0, 0, 0), None);
        assert_eq!(context_share(9 * GIB + (300 << 20), 0, 9 * GIB, 1), after(MOMENTS, 300));
        // Others say more than the card has lost.
        assert_eq!(context_share(GIB, 0, 9 * GIB, 2), after(MANY_MOMENTS, 64));
        assert_eq!(context_share(16 << 20, 0, 9 * GIB, 1), after(MANY_MOMENTS, 16));
    }

    #[test]
    fn a_smaller_share_is_learned_when_it_is_seen_twice() {
        let seen = |mib: u64, moments| Share { bytes: mib << 20, moments };
        assert!(is_learned(None, seen(300, 0), None));
        assert!(is_learned(None, seen(300, MOMENTS), None));
        assert!(!is_learned(Some(300 << 20), seen(600, 0), Some(0)));
        assert!(!is_learned(Some(300 << 20), seen(280, 0), Some(0)));
        assert!(!is_learned(Some(600 << 20), seen(300, 0), None));
        assert!(is_learned(Some(600 << 20), seen(300, 0), Some(0)));
        assert!(!is_learned(Some(16 << 20), seen(12, 0), Some(0)));
        // What rests on others' word has to last.
        assert!(!is_learned(Some(500 << 20), seen(300, MOMENTS), Some(MOMENTS - 1)));
        assert!(is_learned(Some(500 << 20), seen(300, MOMENTS), Some(MOMENTS)));
        assert!(!is_learned(None, seen(64, MANY_MOMENTS), Some(MANY_MOMENTS - 1)));
        assert!(is_learned(None, seen(64, MANY_MOMENTS), Some(MANY_MOMENTS)));
        assert!(!is_learned(Some(500 << 20), seen(64, MANY_MOMENTS), Some(1000)));
        assert!(is_learned(Some(600 << 20), seen(64, MANY_MOMENTS), Some(1)));
    }

    #[test]
    fn arrays_are_charged_in_tiles_and_blocks() {
        assert_eq!(array_bytes([1, 0, 0], false, 1, 1), BLOCK);
        assert_eq!(array_bytes([1024, 1024, 16], false, 4, 1), 64 << 20);
        assert_eq!(array_bytes([1024, 1024, 0], false, 4, 11), blocks((4 << 20) + (4 << 20) / 3 + 4096));
        assert_eq!(array_bytes([1024, 1024, 16], true, 4, 2), (64 << 20) + (16 << 20));
        assert_eq!(array_bytes([1024, 1024, 16], false, 4, 2), (64 << 20) + (8 << 20));
    }
}
