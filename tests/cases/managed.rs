//! Managed memory is charged in full, and answers about it are the driver's.

use crate::harness::{bare, expect, four_gib, one_card, within};

#[test]
fn managed_memory_is_charged_in_full_when_it_is_asked_for() {
    expect(
        &four_gib(),
        &one_card(),
        &[
            "managed m 3GiB -> 0",
            "used -> 0 3072MiB",
            "managed n 2GiB -> 2",
            "is-managed m -> 0 1 then 0 1",
            "free m -> 0",
            "used -> 0 0MiB",
        ],
    );
}

#[test]
fn questions_about_addresses_get_the_drivers_own_answers() {
    let commands = [
        "init",
        "device 0",
        "primary",
        "managed m 1MiB",
        "alloc a 1MiB",
        "is-managed m",
        "is-managed a",
        "is-managed bad",
    ];
    let machine = one_card();
    assert_eq!(within(&four_gib(), &machine, &commands), bare(&machine, &commands));
}
