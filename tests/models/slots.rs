//! How a slot changes hands.

use loom::sync::Arc;

use crate::owner::{NOBODY, leave, take_over};
use crate::protocol::pack;
use crate::sync::{AtomicU64, Ordering};
use crate::{model, race, spawn};

/// Numbers of owners.
const DEAD: u64 = 3;
const SWEEPERS: [u64; 2] = [5, 7];
const NEXT: u64 = 9;

/// A dead owner's.
struct Slot {
    owner: AtomicU64,
    word: AtomicU64,
}

impl Slot {
    fn new() -> Arc<Slot> {
        Arc::new(Slot { owner: AtomicU64::new(DEAD), word: AtomicU64::new(pack(2, 2)) })
    }

    fn take(&self, mine: u64) -> bool {
        take_over(&self.owner, mine, |owner| owner != DEAD).is_some()
    }

    fn clear(&self) {
        self.word.store(0, Ordering::Release);
    }

    fn sweep(&self, mine: u64) {
        if self.take(mine) {
            self.clear();
            leave(&self.owner, mine);
        }
    }
}

#[test]
fn whoever_clears_a_dead_owners_slot_never_clears_what_its_successor_has_written() {
    model(3, || {
        let slot = Slot::new();
        let sweeps = SWEEPERS.map(|mine| spawn(&slot, move |slot| slot.sweep(mine)));
        let joined = slot.take(NEXT);
        if joined {
            slot.clear();
            // The very word that the dead one had.
            slot.word.store(pack(2, 2), Ordering::Release);
        }
        sweeps.into_iter().for_each(|sweep| sweep.join().expect("no panic"));
        let (owner, word) = (slot.owner.load(Ordering::Acquire), slot.word.load(Ordering::Acquire));
        assert_eq!((owner, word), if joined { (NEXT, pack(2, 2)) } else { (NOBODY, 0) });
    });
}

#[test]
fn of_two_processes_that_want_a_slot_one_gets_it() {
    model(3, || {
        let took = race(&Slot::new(), &SWEEPERS, Slot::take);
        assert!(took[0] != took[1], "{took:?}");
    });
}
