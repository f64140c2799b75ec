//! Physical memory that is bound to multicast objects stays charged until it is bound to none.

use crate::harness::{expect, four_gib, needs_the_simulator, one_card};

#[test]
fn memory_bound_to_a_multicast_object_stays_charged_until_it_is_unbound() {
    if needs_the_simulator() {
        return;
    }
    for (bind, unbind) in [("bind", "unbind"), ("bind-on", "unbind")] {
        let (bound, unbound) = (format!("{bind} t h 1GiB 1GiB -> 0"), format!("{unbind} t 1GiB 1GiB -> 0"));
        expect(
            &four_gib(),
            &one_card(),
            &[
                "multicast t 3GiB -> 0",
                "used -> 0 0MiB",
                "create h 1GiB -> 0",
                &bound,
                "release h -> 0",
                "used -> 0 1024MiB",
                "unbind t 1GiB 0 -> 1",
                "used -> 0 1024MiB",
                &unbound,
                "used -> 0 0MiB",
                "release t -> 0",
            ],
        );
    }
}

#[test]
fn memory_bound_by_its_address_outlives_mapping_and_handle() {
    if needs_the_simulator() {
        return;
    }
    for bind in ["bind-address", "bind-address-on"] {
        let bound = format!("{bind} t r 1GiB 0 -> 0");
        expect(
            &four_gib(),
            &one_card(),
            &[
                "multicast t 3GiB -> 0",
                "reserve r 2GiB -> 0",
                "create h 1GiB -> 0",
                "map r h -> 0",
                "release h -> 0",
                &bound,
                "unmap r 1GiB -> 0",
                "used -> 0 1024MiB",
                "unbind t 1GiB 0 -> 0",
                "used -> 0 0MiB",
                "release t -> 0",
            ],
        );
    }
}

#[test]
fn a_multicast_object_keeps_what_is_bound_to_it_until_its_last_handle_and_mapping_are_gone() {
    if needs_the_simulator() {
        return;
    }
    expect(
        &four_gib(),
        &one_card(),
        &[
            "multicast t 2GiB -> 0",
            "create h 2GiB -> 0",
            "bind t h 2GiB 0 -> 0",
            "release h -> 0",
            "reserve r 4GiB -> 0",
            "map r t -> 0",
            "retain again r -> 0",
            "release t -> 0",
            "used -> 0 2048MiB",
            "unmap r 2GiB -> 0",
            "used -> 0 2048MiB",
            "create i 2GiB -> 2",
            "release again -> 0",
            "used -> 0 0MiB",
        ],
    );
}

#[test]
fn what_could_not_be_bound_is_not_kept() {
    if needs_the_simulator() {
        return;
    }
    expect(
        &four_gib(),
        &one_card(),
        &[
            "multicast t 2GiB -> 0",
            "create h 1GiB -> 0",
            "fail cuMulticastBindMem 2 1 -> 0",
            "bind t h 1GiB 0 -> 2",
            "bind t h 1GiB 0 -> 0",
            "fail cuMulticastUnbind 999 1 -> 0",
            "release h -> 0",
            "unbind t 1GiB 0 -> 999",
            "used -> 0 1024MiB",
            "unbind t 1GiB 0 -> 0",
            "used -> 0 0MiB",
        ],
    );
}
