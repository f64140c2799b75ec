//! What contexts cost, and what goes with them.

use crate::common::programs::c_program;
use crate::common::{Container, Machine, Run};
use crate::harness::{expect, four_gib, needs_the_simulator, one_card, within};

#[test]
fn a_quota_below_the_cost_of_a_context_shows_nothing_free() {
    if needs_the_simulator() {
        return;
    }
    let container = Container::new("limit = \"256MiB\"\n");
    let said = within(&container, &one_card(), &["init", "device 0", "primary", "info", "alloc a 1"]);
    assert_eq!(said[3..], ["info -> 0 free=0MiB total=256MiB", "alloc a 1 -> 2"]);
}

#[test]
fn a_context_that_could_not_be_made_costs_nothing() {
    if needs_the_simulator() {
        return;
    }
    let said = within(
        &four_gib(),
        &one_card(),
        &["init", "device 0", "fail cuDevicePrimaryCtxRetain 2 1", "primary", "primary", "info free"],
    );
    assert_eq!(said[3..], ["primary -> 2", "primary -> 0", "info free -> 0 free=3796MiB total=77"]);
}

#[test]
fn the_primary_context_is_charged_once_and_until_its_last_reference() {
    if needs_the_simulator() {
        return;
    }
    // The second context stays, so that there is one to ask.
    let said = within(
        &four_gib(),
        &one_card(),
        &[
            "init",
            "device 0",
            "context other",
            "base",
            "retain-primary",
            "used",
            "retain-primary",
            "used",
            "release-primary",
            "used",
            "release-primary",
            "used",
        ],
    );
    assert_eq!(
        said[3..],
        [
            "base -> 0",
            "retain-primary -> 0",
            "used -> 0 300MiB",
            "retain-primary -> 0",
            "used -> 0 300MiB",
            "release-primary -> 0",
            "used -> 0 300MiB",
            "release-primary -> 0",
            "used -> 0 0MiB",
        ]
    );
}

#[test]
fn a_reset_gives_back_the_context_and_everything_in_it() {
    if needs_the_simulator() {
        return;
    }
    expect(
        &four_gib(),
        &one_card(),
        &[
            "alloc a 1GiB -> 0",
            "alloc-many 1000 700 -> 0 granted=1000",
            "array x 1000 1000 -> 0",
            "reset-primary -> 0",
            "primary -> 0",
            "used -> 0 0MiB",
            "alloc b 3GiB -> 0",
            "used -> 0 3072MiB",
        ],
    );
}

#[test]
fn a_destroyed_context_takes_its_memory_along() {
    if needs_the_simulator() {
        return;
    }
    expect(
        &four_gib(),
        &one_card(),
        &[
            "context other -> 0",
            "used -> 0 300MiB",
            "alloc a 1GiB -> 0",
            "used -> 0 1324MiB",
            "destroy-context other -> 0",
            "set-context primary -> 0",
            "used -> 0 0MiB",
        ],
    );
}

#[test]
fn limits_of_a_context_are_charged_for_what_they_take_beyond_their_defaults() {
    expect(
        &four_gib(),
        &one_card(),
        &[
            // The heap, the printf buffer, and 216 MiB more of stacks with every KiB that a thread gets.
            "set-limit 2 1032MiB -> 0",
            "used -> 0 1024MiB",
            "set-limit 1 101MiB -> 0",
            "used -> 0 1124MiB",
            "set-limit 0 3KiB -> 0",
            "used -> 0 1556MiB",
            "difference -> 0 0MiB",
            "set-limit 2 4GiB -> 2",
            "used -> 0 1556MiB",
            "alloc a 3GiB -> 2",
            "set-limit 2 8MiB -> 0",
            "set-limit 3 2 -> 0",
            "used -> 0 532MiB",
            "difference -> 0 0MiB",
            "reset-primary -> 0",
            "primary -> 0",
            "used -> 0 0MiB",
            "context c -> 0",
            "set-limit 2 1032MiB -> 0",
            "destroy-context c -> 0",
            "set-context primary -> 0",
            "used -> 0 0MiB",
        ],
    );
}

#[test]
fn what_threads_do_in_a_context_while_it_is_destroyed_leaves_no_charge() {
    if needs_the_simulator() {
        return;
    }
    let machine = Machine::new("16GiB,context=16MiB");
    let torn = Run::new(c_program("torn")).on(&machine).within(&four_gib()).args(["200"]).finish();
    assert_eq!((torn.code(), torn.stdout.as_str(), torn.stderr.as_str()), (0, "", ""), "{torn}");
}

#[test]
fn what_threads_import_in_a_context_while_it_is_destroyed_leaves_no_charge() {
    if needs_the_simulator() {
        return;
    }
    let machine = Machine::new("16GiB,context=16MiB,jitter=300us");
    let torn = Run::new(c_program("torn_import")).on(&machine).within(&four_gib()).args(["200"]).finish();
    assert_eq!((torn.code(), torn.stdout.as_str(), torn.stderr.as_str()), (0, "", ""), "{torn}");
}

/// While one thread destroys a context, another may be given its handle for a new one.
#[test]
fn a_context_with_the_handle_of_a_destroyed_one_keeps_its_charge() {
    if needs_the_simulator() {
        return;
    }
    let machine = Machine::new("16GiB,context=16MiB,handles=anew,jitter=500us");
    let run =
        Run::new(c_program("reborn")).on(&machine).within(&four_gib()).args(["contexts", "2000"]).finish();
    assert_eq!((run.code(), run.stdout.as_str(), run.stderr.as_str()), (0, "", ""), "{run}");
}

#[test]
fn a_context_goes_with_its_last_reference() {
    expect(
        &four_gib(),
        &one_card(),
        &[
            "primary -> 0",
            "context c -> 0",
            "attach c -> 0",
            "alloc a 2GiB -> 0",
            "detach c -> 0",
            "set-context c -> 0",
            "used -> 0 2348MiB",
            "alloc b 2GiB -> 2",
            "free a -> 0",
            "alloc b 2GiB -> 0",
            "detach c -> 0",
            "primary -> 0",
            "used -> 0 0MiB",
        ],
    );
}
