//! The virtual memory interface: memory stays until its last mapping and its last handle are gone.

use crate::harness::{expect, four_gib, one_card};

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
