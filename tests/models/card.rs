//! How containers share a card. Each container has words that only its own threads write, and the others read.

use std::sync::Mutex;

use loom::sync::Arc;

use crate::beside::{Asking, Attempts, Bounds, Next, Outcome, Sight, asking, begun, judge};
use crate::column::Column;
use crate::protocol::{Attempt, Board, Slack, attempt, give_back, held, pack, reclaim, take, total, used};
use crate::sync::{AtomicU32, Ordering};
use crate::{model, race, spawn};

/// One container's ledger for one card.
struct Container {
    column: Column,
    asking: Vec<AtomicU32>,
    reserve: u64,
}

impl Container {
    fn new(reserve: u64, words: &[u64]) -> Container {
        let asking = words.iter().map(|_| AtomicU32::new(0)).collect();
        Container { column: Column::new(words), asking, reserve }
    }
}

/// A card and the containers on it.
struct Card {
    containers: Vec<Container>,
    units: u64,
    /// What each container really has, seen by nobody but the model.
    admitted: Mutex<Vec<u64>>,
}

/// Container, slot and units.
type Request = (usize, usize, u32);

/// How often a crowded request tries, in the model; in real life it has a tenth of a second.
const TRIES: usize = 4;

impl Card {
    fn new(units: u64, containers: Vec<Container>) -> Arc<Card> {
        let used = |container: &Container| total(&container.column).used;
        let admitted = Mutex::new(containers.iter().map(used).collect());
        Arc::new(Card { containers, units, admitted })
    }

    /// What the others hold, as it is read from their files.
    fn look(&self, at: usize, slot: usize) -> Sight {
        let mut sight = Sight::default();
        for (other, container) in self.containers.iter().enumerate() {
            for (its, word) in container.asking.iter().enumerate() {
                let word = word.load(Ordering::Acquire);
                if (other, its) != (at, slot) {
                    sight.asking |= asking(word) != 0;
                    sight.ahead |= asking(word) != 0 && (other, its) < (at, slot);
                    sight.begun += begun(word);
                }
            }
            if other != at {
                let words = container.column.words.iter();
                let sum: u64 = words.map(|word| u64::from(held(word.load(Ordering::Acquire)))).sum();
                sight.promised += sum.max(container.reserve);
            }
        }
        sight
    }

    /// One attempt, as the ledger makes it.
    fn attempt(&self, at: usize, slot: usize, n: u32) -> Outcome {
        let own = &self.containers[at];
        let _asking = Asking::begin(&own.asking[slot]);
        let slack = Slack { at_most: 4, one_in: 1, cap: own.reserve };
        let published = take(own.column.word(slot), n)
            || matches!(attempt(&own.column, slot, n, slack, u64::MAX, false), Attempt::Granted(_));
        assert!(published, "no limit of its own");
        let bounds = Bounds { reserve: own.reserve, card: self.units };
        let outcome = judge(&own.column, bounds, || self.look(at, slot));
        match outcome {
            Outcome::Fits => self.admit(at, n),
            Outcome::Crowded(_) => {
                give_back(own.column.word(slot), n);
                reclaim(own.column.word(slot));
            }
        }
        outcome
    }

    /// Checks the promise: what all hold or are promised is no more than there is.
    fn admit(&self, at: usize, n: u32) {
        let mut admitted = self.admitted.lock().expect("no panic");
        admitted[at] += u64::from(n);
        let sum: u64 = self.containers.iter().zip(&*admitted).map(|(c, used)| c.reserve.max(*used)).sum();
        assert!(sum <= self.units, "{admitted:?} of {}", self.units);
    }

    fn give_back(&self, at: usize, slot: usize, n: u32) {
        self.admitted.lock().expect("no panic")[at] -= u64::from(n);
        let own = &self.containers[at];
        give_back(own.column.word(slot), n);
        if total(&own.column).held > own.reserve {
            reclaim(own.column.word(slot));
        }
    }

    /// A request with its further attempts; `None` where it was still undecided when the model's patience ended.
    fn reserve(&self, request: Request) -> Option<bool> {
        self.reserve_with(TRIES, request)
    }

    fn reserve_with(&self, tries: usize, (at, slot, n): Request) -> Option<bool> {
        let mut attempts = Attempts::default();
        for _ in 0..tries {
            let Outcome::Crowded(seen) = self.attempt(at, slot, n) else { return Some(true) };
            match attempts.crowded(seen) {
                Next::Refuse => return Some(false),
                Next::StandBack | Next::Again => loom::thread::yield_now(),
            }
        }
        None
    }
}

#[test]
fn the_last_unit_is_never_given_to_two_containers() {
    model(3, || {
        let card = Card::new(1, vec![Container::new(0, &[0]), Container::new(0, &[0])]);
        let granted = race(&card, &[(0, 0, 1), (1, 0, 1)], Card::reserve);
        assert!(granted.iter().filter(|granted| **granted == Some(true)).count() <= 1, "{granted:?}");
        // A refusal is final only where the other has it.
        assert!(!granted.iter().all(|granted| *granted == Some(false)), "{granted:?}");
    });
}

#[test]
fn a_reserve_is_had_whatever_a_neighbour_does_at_that_moment() {
    model(3, || {
        let card = Card::new(4, vec![Container::new(2, &[0]), Container::new(0, &[0])]);
        let granted = race(&card, &[(0, 0, 2), (1, 0, 3)], Card::reserve);
        assert_eq!(granted[0], Some(true));
        assert_ne!(granted[1], Some(true));
    });
}

#[test]
fn what_fits_together_is_not_refused() {
    model(3, || {
        let card = Card::new(5, vec![Container::new(2, &[0]), Container::new(1, &[0])]);
        let granted = race(&card, &[(0, 0, 3), (1, 0, 2)], Card::reserve);
        assert_eq!(granted, [Some(true), Some(true)]);
    });
}

#[test]
fn two_processes_of_a_container_and_a_neighbour_pass_their_reserves_at_once() {
    model(2, || {
        let card = Card::new(4, vec![Container::new(2, &[pack(1, 1), 0]), Container::new(1, &[0])]);
        let requests = [(0, 0, 1), (0, 1, 1), (1, 0, 2)];
        let granted = race(&card, &requests, |card, request| card.reserve_with(1, request));
        let used: u64 = card.containers.iter().map(|container| total(&container.column).used).sum();
        let took = requests.iter().zip(&granted).filter(|(_, granted)| **granted == Some(true));
        // What was taken back has left nothing.
        assert_eq!(used, 1 + took.map(|((_, _, n), _)| u64::from(*n)).sum::<u64>(), "{granted:?}");
    });
}

#[test]
fn what_is_given_back_beyond_the_reserve_is_not_kept_as_a_lease() {
    model(3, || {
        let card = Card::new(4, vec![Container::new(1, &[pack(3, 3)]), Container::new(0, &[0])]);
        let other = spawn(&card, |card| card.reserve((1, 0, 2)));
        card.give_back(0, 0, 2);
        let again = card.reserve((0, 0, 1));
        let other = other.join().expect("no panic");
        let held: u64 = card.containers.iter().map(|container| total(&container.column).held).sum();
        assert!(held <= 4, "{again:?} {other:?}");
        if other == Some(true) && again == Some(false) {
            assert_eq!(used(card.containers[0].column.words[0].load(Ordering::Relaxed)), 1);
        }
    });
}
