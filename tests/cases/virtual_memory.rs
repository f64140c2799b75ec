//! The virtual memory interface: memory stays until its last mapping and its last handle are gone.

use crate::common::programs::c_program;
use crate::common::{Machine, Run};
use crate::harness::{expect, four_gib, needs_the_simulator, one_card};

#[test]
fn a_handle_released_while_mapped_stays_charged_until_it_is_unmapped() {
    expect(
        &four_gib(),
        &one_card(),
        &[
            "reserve r 2GiB -> 0",
            "create h 1GiB -> 0",
            "map r h -> 0",
            "release h -> 0",
            "used -> 0 1024MiB",
            "unmap r 1GiB -> 0",
            "used -> 0 0MiB",
        ],
    );
}

#[test]
fn a_mapping_unmapped_while_its_handle_lives_stays_charged_until_that_is_released() {
    expect(
        &four_gib(),
        &one_card(),
        &[
            "reserve r 2GiB -> 0",
            "create h 1GiB -> 0",
            "map r h -> 0",
            "unmap r 1GiB -> 0",
            "used -> 0 1024MiB",
            "release h -> 0",
            "used -> 0 0MiB",
        ],
    );
}

#[test]
fn one_handle_mapped_twice_is_charged_once() {
    expect(
        &four_gib(),
        &one_card(),
        &[
            "reserve r 4GiB -> 0",
            "create h 1GiB -> 0",
            "map r h 0 -> 0",
            "map r h 1GiB -> 0",
            "used -> 0 1024MiB",
            "release h -> 0",
            "unmap r 1GiB 0 -> 0",
            "used -> 0 1024MiB",
            "unmap r 1GiB 1GiB -> 0",
            "used -> 0 0MiB",
        ],
    );
}

#[test]
fn a_handle_retained_by_address_is_one_more_reference() {
    expect(
        &four_gib(),
        &one_card(),
        &[
            "reserve r 1GiB -> 0",
            "create h 1GiB -> 0",
            "map r h -> 0",
            "retain again r -> 0",
            "release h -> 0",
            "release again -> 0",
            "used -> 0 1024MiB",
            "unmap r 1GiB -> 0",
            "used -> 0 0MiB",
        ],
    );
}

#[test]
fn address_reservations_cost_nothing() {
    expect(&four_gib(), &one_card(), &["reserve r 64GiB -> 0", "used -> 0 0MiB", "unreserve r -> 0"]);
}

#[test]
fn releasing_handles_early_does_not_lead_around_the_limit() {
    expect(
        &four_gib(),
        &one_card(),
        &[
            "reserve r 16GiB -> 0",
            "create a 1GiB -> 0",
            "map r a 0 -> 0",
            "release a -> 0",
            "create b 1GiB -> 0",
            "map r b 1GiB -> 0",
            "release b -> 0",
            "create c 1GiB -> 0",
            "map r c 2GiB -> 0",
            "release c -> 0",
            "create d 1GiB -> 2",
            "used -> 0 3072MiB",
            "unmap r 3GiB -> 0",
            "used -> 0 0MiB",
            "create d 1GiB -> 0",
        ],
    );
}

#[test]
fn what_one_thread_maps_while_another_releases_it_is_charged() {
    if needs_the_simulator() {
        return;
    }
    for machine in ["16GiB,context=16MiB", "16GiB,context=16MiB,jitter=300us"] {
        let run = Run::new(c_program("released_while_mapped"))
            .on(&Machine::new(machine))
            .within(&four_gib())
            .args(["300"])
            .finish();
        assert_eq!((run.code(), run.stdout.as_str(), run.stderr.as_str()), (0, "", ""), "{run}");
    }
}
