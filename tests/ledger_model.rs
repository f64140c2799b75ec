//! The ledger's protocol under every interleaving: the source that the library uses, compiled against loom's atomics.
//!
//! Loom runs each model once for every order in which the threads' steps can take place (with a bound on
//! preemptions), and lets loads return every value that the memory model allows.

/// What `protocol` is written with, here loom's.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}
#[allow(dead_code, reason = "each model uses a part of it")]
#[path = "../src/ledger/protocol.rs"]
mod protocol;

#[allow(dead_code, reason = "the model gives its own numbers")]
#[path = "../src/ledger/owner.rs"]
mod owner;

use loom::sync::{Arc, Mutex};
use protocol::{
    Attempt, Board, Referee, Slack, arbitrate, attempt, force, give_back, held, pack, take, total, used,
};
use std::sync::atomic::AtomicU64 as Tally;
use sync::{AtomicU32, AtomicU64, Ordering};

/// A container: one word an owner, and the arbiter's and the slots' locks, which the kernel keeps in real life.
struct Container {
    words: Vec<AtomicU64>,
    in_flight: Vec<AtomicU32>,
    arbitrating: AtomicU32,
    /// Units that are in nobody's word.
    objects: AtomicU64,
    arbiter: Mutex<()>,
    /// True is a slot that a dead owner left.
    dead: Vec<Mutex<bool>>,
    cap: u64,
    /// What is really in use, seen by nobody but the model.
    admitted: Tally,
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
        self.objects.load(Ordering::Acquire)
    }
}

impl Container {
    fn new(cap: u64, words: &[u64]) -> Container {
        Container {
            words: words.iter().map(|word| AtomicU64::new(*word)).collect(),
            in_flight: words.iter().map(|_| AtomicU32::new(0)).collect(),
            arbitrating: AtomicU32::new(0),
            objects: AtomicU64::new(0),
            arbiter: Mutex::new(()),
            dead: words.iter().map(|_| Mutex::new(false)).collect(),
            cap,
            admitted: Tally::new(words.iter().map(|word| u64::from(used(*word))).sum()),
        }
    }

    /// A request as the ledger makes it: the lease, then without the arbiter, then with it.
    fn reserve(&self, own: usize, n: u32, slack: Slack) -> bool {
        let granted = take(self.word(own), n)
            || matches!(attempt(self, own, n, slack, self.cap, true), Attempt::Granted(_))
            || {
                let _turn = self.arbiter.lock().expect("no panic");
                arbitrate(self, own, n, self.cap, true, &mut Sweeper { container: self, own }).is_some()
            };
        if granted {
            let before = self.admitted.fetch_add(u64::from(n), std::sync::atomic::Ordering::SeqCst);
            assert!(before + u64::from(n) <= self.cap, "{before} and {n} admitted of {}", self.cap);
        }
        granted
    }

    fn give_back(&self, own: usize, n: u32) {
        self.admitted.fetch_sub(u64::from(n), std::sync::atomic::Ordering::SeqCst);
        give_back(self.word(own), n);
    }

    fn die(&self, slot: usize) {
        self.admitted.fetch_sub(
            u64::from(used(self.word(slot).load(Ordering::Relaxed))),
            std::sync::atomic::Ordering::SeqCst,
        );
        *self.dead[slot].lock().expect("no panic") = true;
    }
}

struct Sweeper<'a> {
    container: &'a Container,
    own: usize,
}

impl Referee for Sweeper<'_> {
    fn sweep(&mut self) -> bool {
        let container = self.container;
        let mut found = false;
        for slot in (0..container.slots()).filter(|slot| *slot != self.own) {
            let mut dead = container.dead[slot].lock().expect("no panic");
            if *dead && held(container.word(slot).load(Ordering::Acquire)) != 0 {
                container.in_flight[slot].store(0, Ordering::Release);
                container.word(slot).store(0, Ordering::Release);
                *dead = false;
                found = true;
            }
        }
        found
    }

    fn pause(&mut self) -> bool {
        loom::thread::yield_now();
        true
    }
}

fn model(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(check);
}

/// Runs the requests at once, each `(slot, units)`, and says which were granted.
fn race(container: &Arc<Container>, requests: &[(usize, u32)], slack: Slack) -> Vec<bool> {
    let spawned: Vec<_> = requests
        .iter()
        .skip(1)
        .map(|&(slot, n)| {
            let container = Arc::clone(container);
            loom::thread::spawn(move || container.reserve(slot, n, slack))
        })
        .collect();
    let (slot, n) = requests[0];
    let mut granted = vec![container.reserve(slot, n, slack)];
    granted.extend(spawned.into_iter().map(|thread| thread.join().expect("no panic")));
    granted
}

fn count(granted: &[bool]) -> usize {
    granted.iter().filter(|granted| **granted).count()
}

#[test]
fn of_two_processes_asking_for_the_last_unit_exactly_one_gets_it() {
    model(3, || {
        let container = Arc::new(Container::new(1, &[0, 0]));
        let granted = race(&container, &[(0, 1), (1, 1)], Slack::NONE);
        assert_eq!(count(&granted), 1, "{granted:?}");
        assert_eq!(total(&*container).used, 1);
    });
}

#[test]
fn of_two_threads_of_one_process_asking_for_the_last_unit_exactly_one_gets_it() {
    model(3, || {
        let container = Arc::new(Container::new(1, &[0]));
        let granted = race(&container, &[(0, 1), (0, 1)], Slack::NONE);
        assert_eq!(count(&granted), 1, "{granted:?}");
        assert_eq!(total(&*container).used, 1);
    });
}

#[test]
fn of_three_threads_in_two_processes_asking_for_the_last_units_exactly_one_gets_them() {
    model(2, || {
        let container = Arc::new(Container::new(3, &[0, 0]));
        let granted = race(&container, &[(0, 2), (1, 2), (1, 2)], Slack::NONE);
        assert_eq!(count(&granted), 1, "{granted:?}");
        assert_eq!(total(&*container).used, 2);
    });
}

#[test]
fn two_requests_that_fit_together_are_both_granted() {
    model(3, || {
        let container = Arc::new(Container::new(3, &[0, 0]));
        let slack = Slack { at_most: 4, one_in: 1, cap: 3 };
        let granted = race(&container, &[(0, 2), (1, 1)], slack);
        assert_eq!(count(&granted), 2, "{granted:?}");
        assert_eq!(total(&*container).used, 3);
    });
}

#[test]
fn a_lease_taken_in_advance_is_not_spent_before_it_is_admitted() {
    model(2, || {
        let container = Arc::new(Container::new(3, &[0, 0]));
        let slack = Slack { at_most: 4, one_in: 1, cap: 3 };
        let granted = race(&container, &[(0, 1), (0, 1), (1, 2)], slack);
        // Either both small ones fit or one of them beside the large one.
        assert_eq!(count(&granted), 2, "{granted:?}");
        assert!(total(&*container).held <= 3);
    });
}

#[test]
fn an_idle_lease_is_either_spent_or_reclaimed() {
    model(3, || {
        // The first owner has leased all three and uses one of them.
        let container = Arc::new(Container::new(3, &[pack(3, 1), 0]));
        let granted = race(&container, &[(0, 1), (1, 2)], Slack::NONE);
        assert_eq!(count(&granted), 1, "{granted:?}");
        assert!(total(&*container).held <= 3);
    });
}

#[test]
fn what_is_given_back_meanwhile_is_never_granted_twice() {
    model(2, || {
        let container = Arc::new(Container::new(2, &[pack(2, 2), 0]));
        let other = {
            let container = Arc::clone(&container);
            loom::thread::spawn(move || container.reserve(1, 1, Slack::NONE))
        };
        container.give_back(0, 1);
        let again = container.reserve(0, 1, Slack::NONE);
        let other = other.join().expect("no panic");
        assert!(again || other, "one unit was free for good");
        assert!(total(&*container).used <= 2);
    });
}

#[test]
fn a_thread_that_frees_and_takes_again_beside_a_pending_request_of_its_process() {
    model(2, || {
        let container = Arc::new(Container::new(2, &[pack(1, 1), pack(1, 1)]));
        let pending = {
            let container = Arc::clone(&container);
            loom::thread::spawn(move || container.reserve(0, 1, Slack::NONE))
        };
        container.give_back(0, 1);
        let again = container.reserve(0, 1, Slack::NONE);
        let pending = pending.join().expect("no panic");
        assert!(again || pending, "one unit was free for good");
        assert_eq!(total(&*container).used, 1 + u64::from(again) + u64::from(pending));
    });
}

#[test]
fn a_dead_owners_units_are_found_by_whoever_needs_them() {
    model(2, || {
        let container = Arc::new(Container::new(2, &[0, pack(2, 2), 0]));
        container.die(1);
        let granted = race(&container, &[(0, 2), (2, 2)], Slack::NONE);
        assert_eq!(count(&granted), 1, "{granted:?}");
        assert_eq!(total(&*container).used, 2);
    });
}

#[test]
fn an_arbiter_that_was_killed_is_in_nobodys_way() {
    model(3, || {
        let container = Arc::new(Container::new(2, &[0, 0]));
        // It died after it had announced itself, its lock went with it.
        container.arbitrating.store(1, Ordering::Relaxed);
        let granted = race(&container, &[(0, 1), (1, 1)], Slack::NONE);
        assert_eq!(count(&granted), 2, "{granted:?}");
        assert_eq!(container.arbitrating.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn what_is_charged_without_asking_is_seen_by_the_next_request() {
    model(3, || {
        let container = Arc::new(Container::new(1, &[0, 0]));
        let other = {
            let container = Arc::clone(&container);
            loom::thread::spawn(move || force(container.word(1), 1))
        };
        other.join().expect("no panic");
        assert!(!container.reserve(0, 1, Slack::NONE));
        assert_eq!(total(&*container).used, 1);
    });
}

/// Numbers of owners.
const DEAD: u64 = 3;
const SWEEPERS: [u64; 2] = [5, 7];
const NEXT: u64 = 9;

#[test]
fn whoever_clears_a_dead_owners_slot_never_clears_what_its_successor_has_written() {
    model(3, || {
        // The successor writes the very word that the dead one had.
        let slot = Arc::new((AtomicU64::new(DEAD), AtomicU64::new(pack(2, 2))));
        let is_alive = |owner| owner != DEAD;
        let sweeps: Vec<_> = SWEEPERS
            .into_iter()
            .map(|mine| {
                let slot = Arc::clone(&slot);
                loom::thread::spawn(move || {
                    let cleared = owner::take_over(&slot.0, mine, is_alive).is_some();
                    if cleared {
                        slot.1.store(0, Ordering::Release);
                        owner::leave(&slot.0, mine);
                    }
                })
            })
            .collect();
        let joined = owner::take_over(&slot.0, NEXT, is_alive).is_some();
        if joined {
            slot.1.store(0, Ordering::Release);
            slot.1.store(pack(2, 2), Ordering::Release);
        }
        sweeps.into_iter().for_each(|sweep| sweep.join().expect("no panic"));
        let (owner, word) = (slot.0.load(Ordering::Acquire), slot.1.load(Ordering::Acquire));
        assert_eq!((owner, word), if joined { (NEXT, pack(2, 2)) } else { (owner::NOBODY, 0) });
    });
}

#[test]
fn of_two_processes_that_want_a_slot_one_gets_it() {
    model(3, || {
        let slot = Arc::new(AtomicU64::new(DEAD));
        let is_alive = |owner| owner != DEAD;
        let other = {
            let slot = Arc::clone(&slot);
            loom::thread::spawn(move || owner::take_over(&slot, 5, is_alive))
        };
        let mine = owner::take_over(&slot, 7, is_alive);
        let other = other.join().expect("no panic");
        assert!(mine.is_some() != other.is_some(), "{mine:?} {other:?}");
    });
}

#[test]
fn what_leaves_a_word_for_the_shared_objects_is_in_one_of_the_two_at_every_moment() {
    model(3, || {
        // The first pays for two units that another holds, too, and gives them back; all that is left is one.
        let container = Arc::new(Container::new(3, &[pack(2, 2), 0, 0]));
        let asking = {
            let container = Arc::clone(&container);
            loom::thread::spawn(move || container.reserve(1, 2, Slack::NONE))
        };
        container.objects.store(2, Ordering::Release);
        give_back(container.word(0), 2);
        assert!(!asking.join().expect("no panic"), "two units beside two of three");
        assert!(container.reserve(2, 1, Slack::NONE), "the third is free");
        assert_eq!(total(&*container).used, 3);
    });
}

#[test]
fn what_a_dead_owner_shared_is_counted_before_its_word_is_wiped() {
    model(2, || {
        let container = Arc::new(Container::new(3, &[0, pack(2, 2), 0]));
        let sweeping = {
            let container = Arc::clone(&container);
            loom::thread::spawn(move || {
                container.objects.store(2, Ordering::Release);
                container.word(1).store(0, Ordering::Release);
            })
        };
        assert!(!container.reserve(0, 2, Slack::NONE), "two units beside two of three");
        sweeping.join().expect("no panic");
        assert_eq!(total(&*container).used, 2);
    });
}
