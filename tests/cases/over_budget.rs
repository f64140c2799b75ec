//! Requests above the budget, and sizes that nobody can have.

use crate::common::Container;
use crate::harness::{bare, expect, four_gib, needs_the_simulator, one_card, within};

#[test]
fn more_than_is_left_is_out_of_memory_and_changes_nothing() {
    if needs_the_simulator() {
        return;
    }
    expect(
        &four_gib(),
        &one_card(),
        &[
            "alloc a left+1 -> 2",
            "alloc a 9223372036854775808 -> 2",
            "alloc a max-4095 -> 2",
            "alloc a max -> 2",
            "used -> 0 0MiB",
            "live -> 0 0",
            "alloc a left -> 0",
            "used -> 0 3796MiB",
            "alloc b 1 -> 2",
            "free a -> 0",
            "alloc b 1MiB -> 0",
            "free b -> 0",
            "used -> 0 0MiB",
        ],
    );
}

#[test]
fn sizes_and_outputs_that_make_no_sense_get_the_drivers_own_answer() {
    let commands = [
        "init",
        "alloc-null 16",
        "device 0",
        "primary",
        "alloc a 0",
        "alloc-null 16",
        "alloc-null 5GiB",
        "free-address 0",
        "free-address 12345",
        "managed m 0",
        "pitch p 0 0",
    ];
    let machine = one_card();
    assert_eq!(within(&four_gib(), &machine, &commands), bare(&machine, &commands));
}

#[test]
fn a_quota_of_zero_allows_nothing() {
    if needs_the_simulator() {
        return;
    }
    let said = within(
        &Container::new("limit = 0\n"),
        &one_card(),
        &["init", "device 0", "primary", "info", "alloc a 1"],
    );
    assert_eq!(said[3..], ["info -> 0 free=0MiB total=0MiB", "alloc a 1 -> 2"]);
}

#[test]
fn an_unlimited_quota_counts_only() {
    if needs_the_simulator() {
        return;
    }
    let container = Container::new("limit = \"unlimited\"\n");
    expect(&container, &one_card(), &["alloc a 12GiB -> 0", "used -> 0 12288MiB", "alloc b 6GiB -> 2"]);
}

#[test]
fn memory_that_was_granted_holds_what_is_written() {
    expect(
        &four_gib(),
        &one_card(),
        &["alloc a 3GiB -> 0", "copy a -> 0 same", "managed m 1MiB -> 0", "copy m -> 0 same"],
    );
}

#[test]
fn backing_off_by_tenths_ends_at_the_first_size_that_fits() {
    // A framework that asks for what is free, and a tenth less each time it is refused, is refused at most once.
    expect(
        &four_gib(),
        &one_card(),
        &["alloc a left -> 0", "free a -> 0", "alloc a 4GiB -> 2", "alloc a 3686MiB -> 0"],
    );
}
