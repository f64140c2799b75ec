//! What `cuMemGetInfo` and `cuDeviceTotalMem` say.

use crate::common::{Container, Machine};
use crate::harness::{bare, expect, four_gib, needs_the_simulator, one_card, within};

#[test]
fn only_the_outputs_that_were_given_are_written() {
    if needs_the_simulator() {
        return;
    }
    // Given all combinations of NULL outputs, with and without a current context;
    let commands = [
        "init",
        "device 0",
        "info",
        "info none",
        "primary",
        "info none",
        "set-context none",
        "info",
        "info free",
        "info total",
    ];
    let machine = one_card();
    let plain = bare(&machine, &commands);
    // when the library is there, then codes and untouched outputs are the driver's own.
    assert_eq!(within(&four_gib(), &machine, &commands), plain);
    assert!(plain.contains(&"info -> 201 free=77 total=77".to_owned()), "{plain:#?}");

    expect(
        &four_gib(),
        &machine,
        &[
            "info -> 0 free=3796MiB total=4096MiB",
            "info free -> 0 free=3796MiB total=77",
            "info total -> 0 free=77 total=4096MiB",
            "info none -> 0 free=77 total=77",
        ],
    );
}

#[test]
fn total_is_the_smaller_of_quota_and_card_in_every_interface() {
    if needs_the_simulator() {
        return;
    }
    for (quota, total) in
        [("4GiB", "4096MiB"), ("32GiB", "16384MiB"), ("25%", "4096MiB"), ("unlimited", "16384MiB")]
    {
        let container = Container::new(&format!("limit = \"{quota}\"\n"));
        let said = within(
            &container,
            &one_card(),
            &["init", "device 0", "total", "primary", "info total", "alloc a 1GiB", "info total", "total"],
        );
        let expected = [
            "init -> 0".to_owned(),
            "device 0 -> 0".to_owned(),
            format!("total -> 0 {total}"),
            "primary -> 0".to_owned(),
            format!("info total -> 0 free=77 total={total}"),
            "alloc a 1GiB -> 0".to_owned(),
            format!("info total -> 0 free=77 total={total}"),
            format!("total -> 0 {total}"),
        ];
        assert_eq!(said, expected, "limit = {quota}");
    }
}

#[test]
fn free_is_what_the_card_really_has_where_that_is_less() {
    if needs_the_simulator() {
        return;
    }
    // Given a card on which another tenant leaves 812 MiB, of which the context takes 300,
    let machine = Machine::new("16GiB");
    let tenant = crate::common::Run::new(crate::common::programs::c_program("harness")).on(&machine);
    let left = 16384 - 812 - 300;
    let mut tenant = tenant
        .args(["init", "device 0", "primary", &format!("alloc a {left}MiB"), "say ready", "wait"])
        .spawn();
    crate::common::wait_for_line(&mut tenant, "ready");
    // then free is that, and can be had.
    let said =
        within(&four_gib(), &machine, &["init", "device 0", "primary", "info", "alloc a left", "info"]);
    assert_eq!(said[3], "info -> 0 free=512MiB total=4096MiB");
    assert_eq!(said[4], "alloc a left -> 0");
    assert_eq!(said[5], "info -> 0 free=0MiB total=4096MiB");
    drop(tenant.stdin.take());
    assert!(tenant.wait().unwrap().success());
}
