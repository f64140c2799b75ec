//! Many threads and processes under one budget; processes that die, and processes that fork.

use std::io::{Read, Write};
use std::time::Duration;

use crate::common::programs::c_program;
use crate::common::{Container, Machine, Run, wait_for_line};
use crate::harness::{four_gib, lines, needs_the_simulator, one_card};

/// Contexts that cost little, so that several processes fit.
fn small_contexts(more: &str) -> Machine {
    Machine::new(&format!("16GiB,context=16MiB{more}"))
}

#[test]
fn of_requests_that_race_for_one_place_exactly_one_is_granted() {
    if needs_the_simulator() {
        return;
    }
    for delay in ["", ",delay=200us"] {
        let container = Container::new("limit = \"1024MiB\"\n");
        let race = Run::new(c_program("race")).on(&small_contexts(delay)).within(&container);
        let said = lines(race.args(["4", "8", "500", "600MiB"]).limit(Duration::from_secs(240)).finish());
        assert_eq!(said, ["rounds with two 0, with none 0, other codes 0, failed processes 0"], "{delay}");
    }
}

#[test]
fn after_a_storm_of_requests_usage_is_what_it_was() {
    if needs_the_simulator() {
        return;
    }
    let container = four_gib();
    let storm = Run::new(c_program("storm")).on(&small_contexts("")).within(&container);
    let said = lines(storm.args(["32", "2000"]).limit(Duration::from_secs(240)).finish());
    assert_eq!(said, ["difference 0, refused 0"]);
}

#[test]
fn what_a_killed_process_held_is_there_within_a_second() {
    if needs_the_simulator() {
        return;
    }
    let container = four_gib();
    let kills = Run::new(c_program("kills")).on(&small_contexts("")).within(&container);
    let said = lines(kills.args(["300", "4032MiB"]).limit(Duration::from_secs(240)).finish());
    assert_eq!(said, ["late 0"]);
}

#[test]
fn a_grandchild_that_lives_on_keeps_nothing_of_a_killed_process() {
    if needs_the_simulator() {
        return;
    }
    let container = four_gib();
    let kills = Run::new(c_program("kills")).on(&small_contexts("")).within(&container);
    let said = lines(kills.args(["30", "4032MiB", "grandchild"]).limit(Duration::from_secs(240)).finish());
    assert_eq!(said, ["late 0"]);
}

#[test]
fn forked_children_get_the_drivers_own_error_and_change_nothing() {
    if needs_the_simulator() {
        return;
    }
    let container = four_gib();
    let forks = Run::new(c_program("forks")).on(&one_card()).within(&container);
    let said = lines(forks.arg("200").limit(Duration::from_secs(120)).finish());
    assert_eq!(said, ["wrong 0, changed 0"]);
}

#[test]
fn a_fork_before_the_first_call_makes_two_processes_under_one_budget() {
    if needs_the_simulator() {
        return;
    }
    let container = four_gib();
    let said =
        lines(Run::new(c_program("fork_first")).arg("2648").on(&one_card()).within(&container).finish());
    assert_eq!(said, ["child 0 used 2648", "parent 0 used 2648"]);
}

#[test]
fn a_second_process_finds_what_the_first_left() {
    if needs_the_simulator() {
        return;
    }
    let (machine, container) = (one_card(), four_gib());
    let first = Run::new(c_program("harness")).on(&machine).within(&container);
    let mut first = first.args(["init", "device 0", "primary", "alloc a 2GiB", "say ready", "wait"]).spawn();
    wait_for_line(&mut first, "ready");
    let second = Run::new(c_program("harness")).on(&machine).within(&container);
    let said =
        lines(second.args(["init", "device 0", "primary", "info", "alloc a 2GiB", "alloc a 1GiB"]).finish());
    assert_eq!(said[3..], ["info -> 0 free=1448MiB total=4096MiB", "alloc a 2GiB -> 2", "alloc a 1GiB -> 0"]);
    drop(first.stdin.take());
    assert!(first.wait().unwrap().success());
}

/// What is charged and not on the card yet does not make contexts seem to cost less.
#[test]
fn requests_of_siblings_that_are_on_their_way_make_no_context_cheap() {
    if needs_the_simulator() {
        return;
    }
    // So much that nothing is left for contexts, nearly all the time; and less of it now and then.
    let all = ["alloc a 2GiB", "free a"].repeat(10);
    let some = ["alloc a 300MiB", "free a", "sleep 20"].repeat(25);
    for (delay, requests) in [("200ms", all), ("20ms", some)] {
        let (machine, container) = (Machine::new(&format!("16GiB,delay={delay}")), four_gib());
        let start = |then: &[&str], last: &[&str]| {
            let harness = Run::new(c_program("harness")).on(&machine).within(&container);
            let harness = harness.args(["init", "device 0", "primary", "say ready", "wait"]);
            let mut process = harness.args(then).args(["say done", "wait"]).args(last).spawn();
            wait_for_line(&mut process, "ready");
            process
        };
        let mut first = start(&requests, &[]);
        let mut second = start(&["sleep 5", "info"].repeat(150), &["info"]);
        for process in [&mut first, &mut second] {
            process.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        }
        wait_for_line(&mut first, "done");
        wait_for_line(&mut second, "done");
        drop(second.stdin.take());
        let mut said = String::new();
        second.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        drop(first.stdin.take());
        assert!(first.wait().unwrap().success() && second.wait().unwrap().success());
        assert_eq!(said.lines().last(), Some("info -> 0 free=3496MiB total=4096MiB"), "{delay}");
    }
}
