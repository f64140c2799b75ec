//! Physical memory that is mapped into tiles of sparse arrays, where it has no address, stays charged until it is mapped
//! nowhere.

use crate::harness::{bare, expect, four_gib, needs_the_simulator, one_card, within};

/// After each command the library must charge what the card lost since the start.
#[track_caller]
fn charge_is_what_the_card_lost(commands: &[&str]) {
    let mut all = vec!["init", "device 0", "primary", "difference"];
    all.extend(commands.iter().flat_map(|command| [*command, "difference"]));
    let said = within(&four_gib(), &one_card(), &all);
    let differences: Vec<&String> = said.iter().filter(|line| line.starts_with("difference")).collect();
    assert!(differences.iter().all(|difference| *difference == differences[0]), "{said:#?}");
}

#[test]
fn a_sparse_array_costs_nothing_but_what_is_mapped_into_it() {
    expect(
        &four_gib(),
        &one_card(),
        &[
            "sparse a 16384 16384 -> 0",
            "deferred d 16384 16384 -> 0",
            "used -> 0 0MiB",
            "create h 1GiB -> 0",
            "used -> 0 1024MiB",
            "destroy-sparse d -> 0",
            "destroy-sparse a -> 0",
            "release h -> 0",
            "used -> 0 0MiB",
        ],
    );
}

/// Harness commands, those that queue left out, which say nothing.
#[track_caller]
fn expect_queued(commands: &[&str]) {
    let start = ["init", "device 0", "primary", "base"];
    let all: Vec<&str> =
        start.iter().copied().chain(commands.iter().map(|line| line.split(" -> ").next().unwrap())).collect();
    let said = within(&four_gib(), &one_card(), &all);
    let expected: Vec<&str> = commands.iter().copied().filter(|line| line.contains(" -> ")).collect();
    assert_eq!(said[4..], expected);
}

#[test]
fn a_handle_released_while_it_is_mapped_into_tiles_stays_charged_until_they_are_unmapped() {
    expect_queued(&[
        "sparse a 1024 1024 -> 0",
        "create h 1GiB -> 0",
        "queue-map a h 0 0 256 128",
        "map-array -> 0",
        "release h -> 0",
        "used -> 0 1024MiB",
        "queue-unmap a 0 0 128 128",
        "map-array -> 0",
        "used -> 0 1024MiB",
        "queue-unmap a 128 0 128 128",
        "map-array -> 0",
        "used -> 0 0MiB",
    ]);
}

#[test]
fn releasing_early_what_is_mapped_into_tiles_does_not_lead_around_the_limit() {
    expect_queued(&[
        "sparse a 4096 4096 -> 0",
        "create h 1536MiB -> 0",
        "queue-map a h 0 0 128 128",
        "map-array -> 0",
        "release h -> 0",
        "create i 1536MiB -> 0",
        "queue-map a i 128 0 128 128",
        "map-array -> 0",
        "release i -> 0",
        "create j 1GiB -> 2",
        "destroy-sparse a -> 0",
        "create j 3GiB -> 0",
    ]);
}

#[test]
fn an_array_lets_go_of_what_is_mapped_into_it_when_it_is_destroyed() {
    for array in ["sparse a 1024 1024", "deferred a 128 128", "sparse-mipmap a 1024 1024 8"] {
        let made = format!("{array} -> 0");
        expect_queued(&[
            &made,
            "create h 1GiB -> 0",
            "queue-map a h 0 0 128 128",
            "map-array -> 0",
            "release h -> 0",
            "used -> 0 1024MiB",
            "destroy-sparse a -> 0",
            "used -> 0 0MiB",
        ]);
    }
}

#[test]
fn an_array_lets_go_of_what_is_mapped_into_it_when_its_context_is_gone() {
    if needs_the_simulator() {
        return;
    }
    expect_queued(&[
        "context c -> 0",
        "sparse a 1024 1024 -> 0",
        "base -> 0",
        "create h 1GiB -> 0",
        "queue-map a h 0 0 128 128",
        "map-array -> 0",
        "release h -> 0",
        "used -> 0 1024MiB",
        "destroy-context c -> 0",
        "set-context primary -> 0",
        "used -> 0 -300MiB",
    ]);
}

#[test]
fn tiles_mapped_anew_let_go_of_what_was_there() {
    expect_queued(&[
        "sparse a 1024 1024 -> 0",
        "create h 1GiB -> 0",
        "create i 512MiB -> 0",
        "queue-map a h 0 0 256 256",
        "map-array -> 0",
        "release h -> 0",
        "queue-map a i 128 0 128 256",
        "map-array -> 0",
        "used -> 0 1536MiB",
        "queue-map a i 0 0 128 256",
        "map-array -> 0",
        "used -> 0 512MiB",
        "release i -> 0",
        "queue-unmap a 0 0 256 256",
        "map-array -> 0",
        "used -> 0 0MiB",
    ]);
}

#[test]
fn levels_and_their_tail_are_told_apart() {
    expect_queued(&[
        "sparse-mipmap a 1024 1024 8 -> 0",
        "create h 1GiB -> 0",
        "create i 512MiB -> 0",
        "queue-map a h 0 0 128 128",
        "queue-map-tail a i 64KiB",
        "map-array -> 0",
        "release h -> 0",
        "release i -> 0",
        "queue-unmap a 0 0 1024 1024",
        "map-array -> 0",
        "used -> 0 512MiB",
        "queue-unmap-tail a 64KiB",
        "map-array -> 0",
        "used -> 0 0MiB",
    ]);
}

#[test]
fn of_a_list_that_fails_half_way_what_may_be_mapped_stays_charged() {
    if needs_the_simulator() {
        return;
    }
    // The driver does the first operation and refuses the second, whose box is beyond the array.
    expect_queued(&[
        "sparse a 1024 1024 -> 0",
        "create h 1GiB -> 0",
        "queue-map a h 0 0 128 128",
        "queue-map a h 1024 0 128 128",
        "map-array -> 1",
        "release h -> 0",
        "used -> 0 1024MiB",
        "queue-unmap a 0 0 1024 1024",
        "map-array -> 0",
        "used -> 0 1024MiB",
        "destroy-sparse a -> 0",
        "used -> 0 0MiB",
    ]);
    // An operation that is refused alone has mapped nothing; and one that may have been undone counts as mapped.
    expect_queued(&[
        "sparse a 1024 1024 -> 0",
        "create h 1GiB -> 0",
        "queue-map a h 1024 0 128 128",
        "map-array -> 1",
        "release h -> 0",
        "used -> 0 0MiB",
        "create h 1GiB -> 0",
        "queue-map a h 0 0 128 128",
        "map-array -> 0",
        "release h -> 0",
        "queue-unmap a 0 0 128 128",
        "queue-unmap a 1024 0 128 128",
        "map-array -> 1",
        "used -> 0 1024MiB",
        "queue-unmap a 0 0 128 128",
        "map-array -> 0",
        "used -> 0 0MiB",
    ]);
}

#[test]
fn one_list_may_name_a_place_twice() {
    if needs_the_simulator() {
        return;
    }
    charge_is_what_the_card_lost(&[
        "sparse a 1024 1024",
        "create h 1GiB",
        "create i 512MiB",
        "queue-map a h 0 0 256 128",
        "queue-map a i 0 0 128 128",
        "queue-unmap a 128 0 128 128",
        "map-array",
        "release h",
        "queue-unmap a 0 0 128 128",
        "queue-map a i 0 0 128 128",
        "map-array",
        "release i",
        "queue-map a i 0 0 128 128",
        "queue-unmap a 0 0 128 128",
        "map-array",
        "queue-unmap a 0 0 128 128",
        "map-array",
    ]);
}

#[test]
fn a_list_that_cannot_be_read_or_done_gets_the_answer_of_the_driver() {
    if needs_the_simulator() {
        return;
    }
    let commands = [
        "map-array-null",
        "init",
        "device 0",
        "map-array",
        "primary",
        "map-array-null",
        "map-array",
        "array plain 100 100",
        "create h 2MiB",
        "queue-map plain h 0 0 100 100",
        "map-array",
        "queue-unmap nothing 0 0 100 100",
        "map-array",
        "bind h h 2MiB 0",
        "unbind h 2MiB 0",
        "unbind nothing 2MiB 0",
        "release h",
        "destroy-array plain",
        "live",
    ];
    assert_eq!(within(&four_gib(), &one_card(), &commands), bare(&one_card(), &commands));
}

#[test]
fn what_a_stream_has_not_come_to_unmap_stays_charged() {
    if needs_the_simulator() {
        return;
    }
    let mapped =
        ["sparse a 1024 1024 -> 0", "create h 2GiB -> 0", "queue-map a h 0 0 128 128", "map-array -> 0"];
    let behind = ["release h -> 0", "hold-arrays 1", "queue-unmap a 0 0 128 128", "map-array -> 0"];
    // A synchronisation, or a request that has no room otherwise, finds that it has gone.
    let ways: [&[&str]; 3] = [
        &["sync -> 0"],
        &["hold-arrays 0", "alloc c 3GiB -> 0 ", "free c -> 0 "],
        &["destroy-sparse a -> 0"],
    ];
    for way in ways {
        let held = ["used -> 0 2048MiB", "alloc b 2GiB -> 2 ", "create c 2GiB -> 2"];
        let all = [&mapped[..], &behind, &held, way, &["used -> 0 0MiB"]].concat();
        expect_queued(&all.iter().map(|line| line.trim_end()).collect::<Vec<_>>());
    }
    // Whether the handle is released before or after.
    expect_queued(&[
        "sparse a 1024 1024 -> 0",
        "create h 1GiB -> 0",
        "queue-map a h 0 0 128 128",
        "map-array -> 0",
        "hold-arrays 1",
        "queue-unmap a 0 0 128 128",
        "map-array -> 0",
        "release h -> 0",
        "used -> 0 1024MiB",
        "sync -> 0",
        "used -> 0 0MiB",
    ]);
    // A tile that is mapped anew is unmapped as late.
    expect_queued(&[
        "sparse a 1024 1024 -> 0",
        "create h 1GiB -> 0",
        "create i 1GiB -> 0",
        "queue-map a h 0 0 128 128",
        "map-array -> 0",
        "release h -> 0",
        "hold-arrays 1",
        "queue-map a i 0 0 128 128",
        "map-array -> 0",
        "used -> 0 2048MiB",
        "sync -> 0",
        "used -> 0 1024MiB",
    ]);
}

#[test]
fn the_default_stream_is_asked_later_where_it_could_not_be_asked_at_once() {
    if needs_the_simulator() {
        return;
    }
    expect_queued(&[
        "sparse a 1024 1024 -> 0",
        "create h 1GiB -> 0",
        "queue-map a h 0 0 128 128",
        "map-array -> 0",
        "release h -> 0",
        "hold-arrays 1",
        "fail cuEventRecord 999 1 -> 0",
        "queue-unmap a 0 0 128 128",
        "map-array -> 0",
        "used -> 0 1024MiB",
        "used -> 0 1024MiB",
        "sync -> 0",
        "used -> 0 0MiB",
    ]);
}

#[test]
fn what_a_stream_has_not_come_to_unmap_goes_with_its_context() {
    if needs_the_simulator() {
        return;
    }
    expect_queued(&[
        "context c -> 0",
        "stream s -> 0",
        "base -> 0",
        "sparse a 1024 1024 -> 0",
        "create h 1GiB -> 0",
        "queue-map a h 0 0 128 128",
        "map-array -> 0",
        "release h -> 0",
        "hold-arrays 1",
        "fail cuEventRecord 999 1 -> 0",
        "queue-unmap a 0 0 128 128",
        "map-array-stream s -> 0",
        "sync -> 0",
        // Where such a stream, which the program may destroy, could not be asked at once, that is when the context goes.
        "used -> 0 1024MiB",
        "destroy-context c -> 0",
        "set-context primary -> 0",
        "used -> 0 -300MiB",
    ]);
}

#[test]
fn what_the_stream_of_a_green_context_has_not_come_to_unmap_is_asked_about_later_though_that_is_gone() {
    if needs_the_simulator() {
        return;
    }
    expect_queued(&[
        "green one -> 0",
        "green-context one c -> 0",
        "sparse a 1024 1024 -> 0",
        "create h 1GiB -> 0",
        "queue-map a h 0 0 128 128",
        "map-array -> 0",
        "release h -> 0",
        "set-context c -> 0",
        "hold-arrays 1",
        "fail cuEventRecord 999 2 -> 0",
        "queue-unmap a 0 0 128 128",
        "map-array -> 0",
        "set-context primary -> 0",
        "destroy-green one -> 0",
        "used -> 0 1024MiB",
        "sync -> 0",
        "used -> 0 0MiB",
    ]);
}

#[test]
fn what_is_mapped_into_tiles_stays_charged_though_the_streams_context_is_not_current() {
    expect_queued(&[
        "stream s -> 0",
        "sparse a 1024 1024 -> 0",
        "create h 1GiB -> 0",
        "set-context none -> 0",
        "queue-map a h 0 0 128 128",
        "map-array-stream s -> 0",
        "release h -> 0",
        "set-context primary -> 0",
        "used -> 0 1024MiB",
        "destroy-sparse a -> 0",
        "used -> 0 0MiB",
    ]);
}

#[test]
fn a_list_that_cannot_be_as_long_as_it_says_is_refused() {
    expect(&four_gib(), &one_card(), &["map-array-many -> 1", "used -> 0 0MiB"]);
}
