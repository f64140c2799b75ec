//! Green contexts are the primary context by another name, and are charged as that.

use crate::common::{Container, Machine};
use crate::harness::{bare, four_gib, needs_the_simulator, one_card, within};

/// Commands, with what each says; those without an answer are not compared.
#[track_caller]
fn expect(container: &Container, machine: &Machine, expected: &[&str]) {
    let commands: Vec<&str> = expected.iter().map(|line| line.split(" -> ").next().unwrap()).collect();
    assert_eq!(within(container, machine, &commands), expected);
}

#[test]
fn a_green_context_costs_what_the_primary_context_costs_once() {
    if needs_the_simulator() {
        return;
    }
    // The second context stays, so that there is one to ask.
    expect(
        &four_gib(),
        &one_card(),
        &[
            "init -> 0",
            "device 0 -> 0",
            "context other -> 0",
            "base -> 0",
            "difference -> 0 0MiB",
            "green one -> 0",
            "used -> 0 300MiB",
            "green two -> 0",
            "used -> 0 300MiB",
            "green-context one c -> 0",
            "used -> 0 300MiB",
            "retain-primary -> 0",
            "used -> 0 300MiB",
            "green-context two d -> 0",
            "used -> 0 300MiB",
            "set-context other -> 0",
            "destroy-green one -> 0",
            "release-primary -> 0",
            "used -> 0 300MiB",
            "destroy-green two -> 0",
            "used -> 0 0MiB",
            "difference -> 0 0MiB",
        ],
    );
}

#[test]
fn what_is_allocated_in_one_is_charged_to_the_primary_context_and_lives_with_it() {
    if needs_the_simulator() {
        return;
    }
    expect(
        &four_gib(),
        &one_card(),
        &[
            "init -> 0",
            "device 0 -> 0",
            "context other -> 0",
            "base -> 0",
            "green one -> 0",
            "green-context one c -> 0",
            "alloc a 1GiB -> 0 ",
            "array b 1024 1024 -> 0",
            "alloc-async p 512MiB -> 0 ",
            "used -> 0 1840MiB",
            "green two -> 0",
            "destroy-green one -> 0",
            "alloc gone 1MiB -> 709 ",
            "green-context two d -> 0",
            "used -> 0 1840MiB",
            "difference -> 0 0MiB",
            "free a -> 0 ",
            "used -> 0 816MiB",
            "alloc a 1GiB -> 0 ",
            "alloc too-much 2GiB -> 2 ",
            "set-context other -> 0",
            "destroy-green two -> 0",
            "used -> 0 0MiB",
            "difference -> 0 0MiB",
        ]
        .map(|line| line.trim_end()),
    );
}

#[test]
fn a_stream_of_one_takes_memory_of_the_devices_pool() {
    if needs_the_simulator() {
        return;
    }
    expect(
        &four_gib(),
        &Machine::new("16GiB,16GiB"),
        &[
            "init -> 0",
            "device 1 -> 0",
            "green far -> 0",
            "green-stream far s -> 0",
            "green-context far c -> 0",
            "base -> 0",
            "device 0 -> 0",
            "primary -> 0",
            // The stream's memory lies on its own device, whatever is current.
            "alloc-stream a s 1GiB -> 0",
            "set-context c -> 0",
            "used -> 0 1024MiB",
            "set-context primary -> 0",
            "alloc b 3GiB -> 0",
        ],
    );
}

#[test]
fn one_that_could_not_be_made_or_destroyed_changes_nothing() {
    if needs_the_simulator() {
        return;
    }
    expect(
        &four_gib(),
        &one_card(),
        &[
            "init -> 0",
            "device 0 -> 0",
            "context other -> 0",
            "base -> 0",
            "fail cuGreenCtxCreate 2 1 -> 0",
            "green one -> 2",
            "used -> 0 0MiB",
            "green one -> 0",
            "green-context one c -> 0",
            "alloc a 1GiB -> 0",
            "fail cuGreenCtxDestroy 999 1 -> 0",
            "destroy-green one -> 999",
            "used -> 0 1324MiB",
            "alloc b 3GiB -> 2",
            "set-context other -> 0",
            "destroy-green one -> 0",
            "used -> 0 0MiB",
        ],
    );
}

#[test]
fn a_reset_takes_what_was_made_in_green_contexts_with_it() {
    if needs_the_simulator() {
        return;
    }
    let commands = [
        "init",
        "device 0",
        "context other",
        "base",
        "green one",
        "green-context one c",
        "alloc a 1GiB",
        "reset-primary",
        "alloc b 1GiB",
        "set-context other",
        "used",
        "retain-primary",
        "used",
        "set-context c",
        "alloc b 1GiB",
        "used",
        "set-context other",
        "release-primary",
        "destroy-green one",
        "used",
    ];
    assert_eq!(within(&four_gib(), &one_card(), &commands), bare(&one_card(), &commands));
}
