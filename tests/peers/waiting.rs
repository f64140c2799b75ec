//! `when_full.wait`: a request that waits for a neighbour's memory.

use std::time::{Duration, Instant};

use crate::common::{GIB, MIB};
use crate::needs_the_simulator;
use crate::node::{Layout, Node};

const NODE: &str = "16GiB,context=256MiB";

fn waiting(reserve: &str, wait: &str) -> String {
    format!("limit = \"100%\"\nreserve = \"{reserve}\"\n[when_full]\nwait = \"{wait}\"\n")
}

#[test]
fn a_request_waits_until_a_neighbour_gives_something_back() {
    if needs_the_simulator() {
        return;
    }
    let node = Node::new(NODE, Layout::Mounted);
    let (a, b) = (node.container("a", &waiting("1GiB", "20s")), node.container("b", &waiting("1GiB", "20s")));
    let (mut in_a, mut in_b) = (a.start(), b.start());
    assert!(in_a.take(4 * GIB) && in_a.take(10 * GIB));
    let since = Instant::now();
    in_b.begin_take(8 * GIB);
    std::thread::sleep(Duration::from_millis(400));
    in_a.give_back();
    assert!(in_b.was_granted());
    let waited = since.elapsed();
    assert!((Duration::from_millis(400)..Duration::from_secs(10)).contains(&waited), "{waited:?}");
}

#[test]
fn a_request_waits_no_longer_than_the_quota_says_and_not_at_all_for_what_can_never_be_had() {
    if needs_the_simulator() {
        return;
    }
    let node = Node::new(NODE, Layout::Mounted);
    let (a, b) =
        (node.container("a", &waiting("6GiB", "0s")), node.container("b", &waiting("1GiB", "600ms")));
    let (mut in_a, mut in_b) = (a.start(), b.start());
    assert!(in_a.take(12 * GIB));
    let since = Instant::now();
    assert!(!in_b.take(8 * GIB));
    let waited = since.elapsed();
    assert!((Duration::from_millis(600)..Duration::from_secs(5)).contains(&waited), "{waited:?}");
    // Beyond what is promised to others, beyond the card, and where nobody waits.
    for (program, bytes) in [(&mut in_b, 11 * GIB), (&mut in_a, 4 * GIB)] {
        let since = Instant::now();
        assert!(!program.take(bytes));
        assert!(since.elapsed() < Duration::from_millis(500), "{:?}", since.elapsed());
    }
}

#[test]
fn a_killed_neighbour_lets_a_waiting_request_through_within_a_second() {
    if needs_the_simulator() {
        return;
    }
    let node = Node::new(NODE, Layout::Mounted);
    let (a, b) = (node.container("a", &waiting("1GiB", "0s")), node.container("b", &waiting("1GiB", "30s")));
    let (mut in_a, mut in_b) = (a.start(), b.start());
    assert!(in_a.take(12 * GIB));
    in_b.begin_take(8 * GIB);
    std::thread::sleep(Duration::from_millis(200));
    in_a.kill();
    let since = Instant::now();
    assert!(in_b.was_granted());
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
}

#[test]
fn of_those_who_wait_the_first_is_mostly_first() {
    if needs_the_simulator() {
        return;
    }
    let node = Node::new(NODE, Layout::Mounted);
    let quota = waiting("512MiB", "30s");
    let [a, b, c] = ["a", "b", "c"].map(|name| node.container(name, &quota));
    let (mut in_a, mut in_b, mut in_c) = (a.start(), b.start(), c.start());
    let rounds = 16;
    let mut first = 0_u64;
    for round in 0..rounds {
        assert!(in_a.take(12 * GIB));
        in_b.begin_take(8 * GIB);
        std::thread::sleep(Duration::from_millis(60));
        in_c.begin_take(8 * GIB + 256 * MIB);
        // At any time of the second's naps.
        std::thread::sleep(Duration::from_millis(60 + round * 23 % 60));
        in_a.give_back();
        let since = Instant::now();
        let b_was_first = loop {
            if in_b.is_answered() || in_c.is_answered() {
                break in_b.is_answered();
            }
            assert!(since.elapsed() < Duration::from_secs(10), "nobody was let through");
            std::thread::sleep(Duration::from_millis(1));
        };
        // Whoever is second gets it from the first.
        first += u64::from(b_was_first);
        let (one, two) = if b_was_first { (&mut in_b, &mut in_c) } else { (&mut in_c, &mut in_b) };
        assert!(one.was_granted());
        one.give_back();
        assert!(two.was_granted());
        two.give_back();
    }
    assert!(first >= 11, "{first} of {rounds}");
}
