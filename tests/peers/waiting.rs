//! `when_full.wait`: a request that waits for a neighbour's memory.

use std::time::{Duration, Instant};

use crate::common::client::Client;
use crate::common::{GIB, MIB};
use crate::needs_the_simulator;
use crate::node::{Layout, Node, Program};

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
fn a_request_also_waits_for_the_card_where_the_driver_has_not_got_yet_what_is_reserved() {
    if needs_the_simulator() {
        return;
    }
    let node = Node::new(NODE, Layout::Mounted);
    let _a = node.container("a", &waiting("1GiB", "0s"));
    let b = node.container("b", &waiting("6GiB", "20s"));
    let mut in_b = b.start();
    // Memory that no ledger shows, as that of a neighbour is which the driver is still taking back.
    let mut late = node.outsider();
    assert!(late.take(14 * GIB));
    let since = Instant::now();
    in_b.begin_take(4 * GIB);
    std::thread::sleep(Duration::from_millis(400));
    assert!(!in_b.is_answered());
    late.give_back();
    assert!(in_b.was_granted());
    let waited = since.elapsed();
    assert!((Duration::from_millis(400)..Duration::from_secs(10)).contains(&waited), "{waited:?}");
    assert_eq!(in_b.give_back(), 4 * GIB);
    // No longer than the quota says, and not at all where it says so.
    assert!(late.take(14 * GIB));
    for (wait, at_least, at_most) in [("500ms", 500, 5000), ("0s", 0, 400)] {
        b.write_quota(&waiting("6GiB", wait));
        std::thread::sleep(Duration::from_millis(1100));
        let since = Instant::now();
        assert!(!in_b.take(4 * GIB), "{wait}");
        let waited = since.elapsed();
        let expected = Duration::from_millis(at_least)..Duration::from_millis(at_most);
        assert!(expected.contains(&waited), "{wait}: {waited:?}");
    }
}

#[test]
fn a_request_that_the_driver_refuses_although_the_card_has_the_memory_does_not_wait() {
    if needs_the_simulator() {
        return;
    }
    let node = Node::new(NODE, Layout::Mounted);
    let _a = node.container("a", &waiting("1GiB", "0s"));
    let b = node.container("b", &waiting("6GiB", "20s"));
    let fails = b.within(Client::run()).env("SIMGPU_FAIL", "cuMemAlloc_v2:2:1000");
    let mut in_b = Program::start(fails).expect("room for a context");
    let since = Instant::now();
    assert!(!in_b.take(4 * GIB));
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
