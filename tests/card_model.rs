//! How containers share a card, under every interleaving: the source that the library uses, compiled against loom's
//! atomics. Each container has words that only its own threads write, and the others read.

/// What `protocol` and `beside` are written with, here loom's.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}
#[path = "../src/ledger/beside.rs"]
mod beside;
#[allow(dead_code, reason = "the model of the ledger uses the rest")]
#[path = "../src/ledger/protocol.rs"]
mod protocol;

use beside::{Asking, Attempts, Bounds, Next, Outcome, Sight, asking, begun, judge};
use loom::sync::Arc;
use protocol::{Attempt, Board, Slack, attempt, give_back, held, pack, reclaim, take, total, used};
use std::sync::Mutex;
use sync::{AtomicU32, AtomicU64, Ordering};

/// One container's ledger for one card.
struct Container {
    words: Vec<AtomicU64>,
    in_flight: Vec<AtomicU32>,
    asking: Vec<AtomicU32>,
    arbitrating: AtomicU32,
    reserve: u64,
}

impl Board for Container {
    fn slots(&self) -> usize {
        self.words.len()
    }
    fn word(&self, slot: usize) -> &AtomicU64 {
        &self.words[slot]
    }
    fn in_flight(&self, slot: usize) -> &AtomicU32 {
        &self.in_flight[slot]
    }
    fn arbitrating(&self) -> &AtomicU32 {
        &self.arbitrating
    }
    fn objects(&self) -> u64 {
        0
    }
}

impl Container {
    fn new(reserve: u64, words: &[u64]) -> Container {
        Container {
            words: words.iter().map(|word| AtomicU64::new(*word)).collect(),
            in_flight: words.iter().map(|_| AtomicU32::new(0)).collect(),
            asking: words.iter().map(|_| AtomicU32::new(0)).collect(),
            arbitrating: AtomicU32::new(0),
            reserve,
        }
    }
}

/// A card and the containers on it.
struct Card {
    containers: Vec<Container>,
    units: u64,
    /// What each container really has, seen by nobody but the model.
    admitted: Mutex<Vec<u64>>,
}

/// How often a crowded request tries, in the model; in real life it has a tenth of a second.
const TRIES: usize = 4;

impl Card {
    fn new(units: u64, containers: Vec<Container>) -> Arc<Card> {
        let used = |container: &Container| total(container).used;
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
                let words = container.words.iter();
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
        let published = take(own.word(slot), n)
            || matches!(attempt(own, slot, n, slack, u64::MAX, false), Attempt::Granted(_));
        assert!(published, "no limit of its own");
        let bounds = Bounds { reserve: own.reserve, card: self.units };
        let outcome = judge(own, bounds, || self.look(at, slot));
        match outcome {
            Outcome::Fits => self.admit(at, n),
            Outcome::Crowded(_) => {
                give_back(own.word(slot), n);
                reclaim(own.word(slot));
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
        let word = self.containers[at].word(slot);
        give_back(word, n);
        if total(&self.containers[at]).held > self.containers[at].reserve {
            reclaim(word);
        }
    }

    /// A request with its further attempts; `None` where it was still undecided when the model's patience ended.
    fn reserve(&self, at: usize, slot: usize, n: u32) -> Option<bool> {
        self.reserve_with(TRIES, at, slot, n)
    }

    fn reserve_with(&self, tries: usize, at: usize, slot: usize, n: u32) -> Option<bool> {
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

fn model(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(check);
}

/// Runs `(container, slot, units)` at once, each with so many tries.
fn race_with(tries: usize, card: &Arc<Card>, requests: &[(usize, usize, u32)]) -> Vec<Option<bool>> {
    let spawned: Vec<_> = requests[1..]
        .iter()
        .map(|&(at, slot, n)| {
            let card = Arc::clone(card);
            loom::thread::spawn(move || card.reserve_with(tries, at, slot, n))
        })
        .collect();
    let (at, slot, n) = requests[0];
    let mut granted = vec![card.reserve_with(tries, at, slot, n)];
    granted.extend(spawned.into_iter().map(|thread| thread.join().expect("no panic")));
    granted
}

fn race(card: &Arc<Card>, requests: &[(usize, usize, u32)]) -> Vec<Option<bool>> {
    race_with(TRIES, card, requests)
}

#[test]
fn the_last_unit_is_never_given_to_two_containers() {
    model(3, || {
        let card = Card::new(1, vec![Container::new(0, &[0]), Container::new(0, &[0])]);
        let granted = race(&card, &[(0, 0, 1), (1, 0, 1)]);
        assert!(granted.iter().filter(|granted| **granted == Some(true)).count() <= 1, "{granted:?}");
        // A refusal is final only where the other has it.
        assert!(!granted.iter().all(|granted| *granted == Some(false)), "{granted:?}");
    });
}

#[test]
fn a_reserve_is_had_whatever_a_neighbour_does_at_that_moment() {
    model(3, || {
        let card = Card::new(4, vec![Container::new(2, &[0]), Container::new(0, &[0])]);
        let granted = race(&card, &[(0, 0, 2), (1, 0, 3)]);
        assert_eq!(granted[0], Some(true));
        assert_ne!(granted[1], Some(true));
    });
}

#[test]
fn what_fits_together_is_not_refused() {
    model(3, || {
        let card = Card::new(5, vec![Container::new(2, &[0]), Container::new(1, &[0])]);
        let granted = race(&card, &[(0, 0, 3), (1, 0, 2)]);
        assert_eq!(granted, [Some(true), Some(true)]);
    });
}

#[test]
fn two_processes_of_a_container_and_a_neighbour_pass_their_reserves_at_once() {
    model(2, || {
        let card = Card::new(4, vec![Container::new(2, &[pack(1, 1), 0]), Container::new(1, &[0])]);
        let requests = [(0, 0, 1), (0, 1, 1), (1, 0, 2)];
        let granted = race_with(1, &card, &requests);
        let used: u64 = card.containers.iter().map(|container| total(container).used).sum();
        let took = requests.iter().zip(&granted).filter(|(_, granted)| **granted == Some(true));
        // What was taken back has left nothing.
        assert_eq!(used, 1 + took.map(|((_, _, n), _)| u64::from(*n)).sum::<u64>(), "{granted:?}");
    });
}

#[test]
fn what_is_given_back_beyond_the_reserve_is_not_kept_as_a_lease() {
    model(3, || {
        let card = Card::new(4, vec![Container::new(1, &[pack(3, 3)]), Container::new(0, &[0])]);
        let other = {
            let card = Arc::clone(&card);
            loom::thread::spawn(move || card.reserve(1, 0, 2))
        };
        card.give_back(0, 0, 2);
        let again = card.reserve(0, 0, 1);
        let other = other.join().expect("no panic");
        let held: u64 = card.containers.iter().map(|container| total(container).held).sum();
        assert!(held <= 4, "{again:?} {other:?}");
        if other == Some(true) && again == Some(false) {
            assert_eq!(used(card.containers[0].words[0].load(Ordering::Relaxed)), 1);
        }
    });
}
