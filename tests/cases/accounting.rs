//! The charge is what the card loses, and not what the arguments suggest.

use crate::harness::{expect, four_gib, needs_the_simulator, one_card, within};

/// After each of these the card must have lost what was charged, give or take one block of the one context.
#[track_caller]
fn charge_equals_loss(requests: &[&str]) {
    let mut commands = vec!["init", "device 0", "primary", "difference"];
    for request in requests {
        commands.extend([request, "difference"]);
    }
    let said = within(&four_gib(), &one_card(), &commands);
    let mib = |line: &String| -> i64 {
        let text = line.strip_prefix("difference -> 0 ").unwrap_or_else(|| panic!("{said:#?}"));
        text.strip_suffix("MiB").unwrap_or_else(|| panic!("{said:#?}")).parse().unwrap()
    };
    let differences: Vec<i64> = said[3..].iter().step_by(2).map(mib).collect();
    assert!(differences.iter().all(|difference| difference.abs() < 2), "{said:#?}");
    for line in said[4..].iter().step_by(2) {
        assert!(line.contains(" -> 0"), "{said:#?}");
    }
}

#[test]
fn thousands_of_small_buffers_cost_the_blocks_they_lie_in() {
    if needs_the_simulator() {
        return;
    }
    charge_equals_loss(&[
        "alloc-many 10000 1",
        "free-many 2",
        "alloc-many 100 700000",
        "free-many 3",
        "free-many 1",
        "free-many 1",
    ]);
}

#[test]
fn padded_rows_and_opaque_layouts_cost_what_the_driver_takes() {
    if needs_the_simulator() {
        return;
    }
    charge_equals_loss(&[
        "pitch p 1000 1000",
        "array a 1000 1000",
        "array3d b 100 100 50",
        "mipmap m 1024 1024 10",
        "layered-mipmap l 512 512 16 9",
        "free p",
        "destroy-array a",
        "destroy-array b",
        "destroy-mipmap m",
        "destroy-mipmap l",
    ]);
}

#[test]
fn what_is_reported_free_can_be_had_whatever_went_before() {
    if needs_the_simulator() {
        return;
    }
    expect(
        &four_gib(),
        &one_card(),
        &[
            "alloc-many 5000 3000 -> 0 granted=5000",
            "pitch p 1000 1000 -> 0",
            "array a 1000 1000 -> 0",
            "alloc b left -> 0",
            "info free -> 0 free=0MiB total=77",
        ],
    );
}

#[test]
fn exactly_what_is_free_can_be_had_where_the_limit_is_no_whole_number_of_blocks() {
    if needs_the_simulator() {
        return;
    }
    let container = crate::common::Container::new("limit = 1000000001\n");
    let said = within(
        &container,
        &one_card(),
        &["init", "device 0", "primary", "info", "alloc a left+1", "alloc a left", "info"],
    );
    assert_eq!(said[3], "info -> 0 free=685427201 total=1000000001");
    assert_eq!(
        said[4..],
        ["alloc a left+1 -> 2", "alloc a left -> 0", "info -> 0 free=0MiB total=1000000001"]
    );
}
