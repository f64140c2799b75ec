//! Requests of a container's processes.

use std::sync::atomic::AtomicU64 as Tally;

use loom::sync::{Arc, Mutex};

use crate::column::Column;
use crate::protocol::{
    Attempt, Board, Referee, Slack, arbitrate, attempt, force, give_back, held, pack, take, total, used,
};
use crate::sync::Ordering;
use crate::{model, spawn};

/// A container: its words, and the arbiter's and the slots' locks, which the kernel keeps in real life.
struct Container {
    column: Column,
    arbiter: Mutex<()>,
    /// True is a slot that a dead owner left.
    dead: Vec<Mutex<bool>>,
    cap: u64,
    /// What is really in use, seen by nobody but the model.
    admitted: Tally,
}

impl Container {
    fn new(cap: u64, words: &[u64]) -> Arc<Container> {
        Arc::new(Container {
            column: Column::new(words),
            arbiter: Mutex::new(()),
            dead: words.iter().map(|_| Mutex::new(false)).collect(),
            cap,
            admitted: Tally::new(words.iter().map(|word| u64::from(used(*word))).sum()),
        })
    }

    /// A request as the ledger makes it: the lease, then without the arbiter, then with it.
    fn reserve(&self, own: usize, n: u32, slack: Slack) -> bool {
        let granted = take(self.column.word(own), n)
            || matches!(attempt(&self.column, own, n, slack, self.cap, true), Attempt::Granted(_))
            || {
                let _turn = self.arbiter.lock().expect("no panic");
                let mut sweeper = Sweeper { container: self, own };
                arbitrate(&self.column, own, n, self.cap, true, &mut sweeper).is_some()
            };
        if granted {
            let before = self.admitted.fetch_add(u64::from(n), std::sync::atomic::Ordering::SeqCst);
            assert!(before + u64::from(n) <= self.cap, "{before} and {n} admitted of {}", self.cap);
        }
        granted
    }

    fn give_back(&self, own: usize, n: u32) {
        self.admitted.fetch_sub(u64::from(n), std::sync::atomic::Ordering::SeqCst);
        give_back(self.column.word(own), n);
    }

    fn die(&self, slot: usize) {
        self.admitted.fetch_sub(
            u64::from(used(self.column.word(slot).load(Ordering::Relaxed))),
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
        for slot in (0..container.column.slots()).filter(|slot| *slot != self.own) {
            let mut dead = container.dead[slot].lock().expect("no panic");
            if *dead && held(container.column.word(slot).load(Ordering::Acquire)) != 0 {
                container.column.in_flight[slot].store(0, Ordering::Release);
                container.column.word(slot).store(0, Ordering::Release);
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

/// Makes the requests at once, each `(slot, units)`, and says which were granted.
fn race(container: &Arc<Container>, requests: &[(usize, u32)], slack: Slack) -> Vec<bool> {
    crate::race(container, requests, move |container, (slot, n)| container.reserve(slot, n, slack))
}

fn count(granted: &[bool]) -> usize {
    granted.iter().filter(|granted| **granted).count()
}

#[test]
fn of_two_processes_asking_for_the_last_unit_exactly_one_gets_it() {
    model(3, || {
        let container = Container::new(1, &[0, 0]);
        let granted = race(&container, &[(0, 1), (1, 1)], Slack::NONE);
        assert_eq!(count(&granted), 1, "{granted:?}");
        assert_eq!(total(&container.column).used, 1);
    });
}

#[test]
fn of_two_threads_of_one_process_asking_for_the_last_unit_exactly_one_gets_it() {
    model(3, || {
        let container = Container::new(1, &[0]);
        let granted = race(&container, &[(0, 1), (0, 1)], Slack::NONE);
        assert_eq!(count(&granted), 1, "{granted:?}");
        assert_eq!(total(&container.column).used, 1);
    });
}

#[test]
fn of_three_threads_in_two_processes_asking_for_the_last_units_exactly_one_gets_them() {
    model(2, || {
        let container = Container::new(3, &[0, 0]);
        let granted = race(&container, &[(0, 2), (1, 2), (1, 2)], Slack::NONE);
        assert_eq!(count(&granted), 1, "{granted:?}");
        assert_eq!(total(&container.column).used, 2);
    });
}

#[test]
fn two_requests_that_fit_together_are_both_granted() {
    model(3, || {
        let container = Container::new(3, &[0, 0]);
        let slack = Slack { at_most: 4, one_in: 1, cap: 3 };
        let granted = race(&container, &[(0, 2), (1, 1)], slack);
        assert_eq!(count(&granted), 2, "{granted:?}");
        assert_eq!(total(&container.column).used, 3);
    });
}

#[test]
fn a_lease_taken_in_advance_is_not_spent_before_it_is_admitted() {
    model(2, || {
        let container = Container::new(3, &[0, 0]);
        let slack = Slack { at_most: 4, one_in: 1, cap: 3 };
        let granted = race(&container, &[(0, 1), (0, 1), (1, 2)], slack);
        // Either both small ones fit or one of them beside the large one.
        assert_eq!(count(&granted), 2, "{granted:?}");
        assert!(total(&container.column).held <= 3);
    });
}

#[test]
fn an_idle_lease_is_either_spent_or_reclaimed() {
    model(3, || {
        // The first owner has leased all three and uses one of them.
        let container = Container::new(3, &[pack(3, 1), 0]);
        let granted = race(&container, &[(0, 1), (1, 2)], Slack::NONE);
        assert_eq!(count(&granted), 1, "{granted:?}");
        assert!(total(&container.column).held <= 3);
    });
}

#[test]
fn what_is_given_back_meanwhile_is_never_granted_twice() {
    model(2, || {
        let container = Container::new(2, &[pack(2, 2), 0]);
        let other = spawn(&container, |container| container.reserve(1, 1, Slack::NONE));
        container.give_back(0, 1);
        let again = container.reserve(0, 1, Slack::NONE);
        let other = other.join().expect("no panic");
        assert!(again || other, "one unit was free for good");
        assert!(total(&container.column).used <= 2);
    });
}

#[test]
fn a_thread_that_frees_and_takes_again_beside_a_pending_request_of_its_process() {
    model(2, || {
        let container = Container::new(2, &[pack(1, 1), pack(1, 1)]);
        let pending = spawn(&container, |container| container.reserve(0, 1, Slack::NONE));
        container.give_back(0, 1);
        let again = container.reserve(0, 1, Slack::NONE);
        let pending = pending.join().expect("no panic");
        assert!(again || pending, "one unit was free for good");
        assert_eq!(total(&container.column).used, 1 + u64::from(again) + u64::from(pending));
    });
}

#[test]
fn a_dead_owners_units_are_found_by_whoever_needs_them() {
    model(2, || {
        let container = Container::new(2, &[0, pack(2, 2), 0]);
        container.die(1);
        let granted = race(&container, &[(0, 2), (2, 2)], Slack::NONE);
        assert_eq!(count(&granted), 1, "{granted:?}");
        assert_eq!(total(&container.column).used, 2);
    });
}

#[test]
fn an_arbiter_that_was_killed_is_in_nobodys_way() {
    model(3, || {
        let container = Container::new(2, &[0, 0]);
        // It died after it had announced itself, its lock went with it.
        container.column.arbitrating.store(1, Ordering::Relaxed);
        let granted = race(&container, &[(0, 1), (1, 1)], Slack::NONE);
        assert_eq!(count(&granted), 2, "{granted:?}");
        assert_eq!(container.column.arbitrating.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn what_is_charged_without_asking_is_seen_by_the_next_request() {
    model(3, || {
        let container = Container::new(1, &[0, 0]);
        let other = spawn(&container, |container| force(container.column.word(1), 1));
        other.join().expect("no panic");
        assert!(!container.reserve(0, 1, Slack::NONE));
        assert_eq!(total(&container.column).used, 1);
    });
}

#[test]
fn what_leaves_a_word_for_the_shared_objects_is_in_one_of_the_two_at_every_moment() {
    model(3, || {
        // The first pays for two units that another holds, too, and gives them back; all that is left is one.
        let container = Container::new(3, &[pack(2, 2), 0, 0]);
        let asking = spawn(&container, |container| container.reserve(1, 2, Slack::NONE));
        container.column.objects.store(2, Ordering::Release);
        give_back(container.column.word(0), 2);
        assert!(!asking.join().expect("no panic"), "two units beside two of three");
        assert!(container.reserve(2, 1, Slack::NONE), "the third is free");
        assert_eq!(total(&container.column).used, 3);
    });
}

#[test]
fn what_a_dead_owner_shared_is_counted_before_its_word_is_wiped() {
    model(2, || {
        let container = Container::new(3, &[0, pack(2, 2), 0]);
        let sweeping = spawn(&container, |container| {
            container.column.objects.store(2, Ordering::Release);
            container.column.word(1).store(0, Ordering::Release);
        });
        assert!(!container.reserve(0, 2, Slack::NONE), "two units beside two of three");
        sweeping.join().expect("no panic");
        assert_eq!(total(&container.column).used, 2);
    });
}
