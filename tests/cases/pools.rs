//! Stream-ordered allocation.

use crate::common::programs::c_program;
use crate::common::{Machine, Run};
use crate::harness::{expect, four_gib, needs_the_simulator, one_card};

#[test]
fn memory_of_pools_is_charged_once_and_freed_by_either_way() {
    expect(
        &four_gib(),
        &one_card(),
        &[
            "pool p -> 0",
            "alloc-pool a p 1GiB -> 0",
            "used -> 0 1024MiB",
            "alloc-pool b p 4GiB -> 2",
            "free a -> 0",
            "used -> 0 0MiB",
            "alloc-async c 1GiB -> 0",
            "used -> 0 1024MiB",
            "alloc-async d 3GiB -> 2",
            "free-async c -> 0",
            "sync -> 0",
            "used -> 0 0MiB",
            "destroy-pool p -> 0",
        ],
    );
}

#[test]
fn a_request_that_cannot_be_accounted_for_fails_and_leaves_nothing() {
    if needs_the_simulator() {
        return;
    }
    expect(
        &four_gib(),
        &one_card(),
        &[
            "pool p -> 0",
            "fail cuMemPoolGetAttribute 999 1 -> 0",
            "alloc-pool a p 1GiB -> 999",
            "live -> 0 0",
            "sync -> 0",
            "used -> 0 0MiB",
            "alloc-pool a p 1GiB -> 0",
            "used -> 0 1024MiB",
        ],
    );
}

/// Nobody can free it any more, but it is there.
#[test]
fn what_neither_could_be_accounted_for_nor_freed_is_charged_also_without_its_pool() {
    if needs_the_simulator() {
        return;
    }
    expect(
        &four_gib(),
        &one_card(),
        &[
            "pool p -> 0",
            "fail cuMemPoolGetAttribute 999 1 -> 0",
            "fail cuMemFreeAsync 999 1 -> 0",
            "alloc-pool a p 1GiB -> 999",
            "used -> 0 1024MiB",
            "destroy-pool p -> 0",
            "used -> 0 1024MiB",
        ],
    );
}

#[test]
fn a_pool_is_charged_what_it_holds_and_not_what_went_through_it() {
    expect(
        &four_gib(),
        &one_card(),
        &[
            "default-pool p -> 0",
            "threshold p max -> 0",
            "rounds 1000 512MiB -> 0",
            "held p -> 0 512MiB",
            "used -> 0 512MiB",
            "trim p 0 -> 0",
            "used -> 0 0MiB",
            "alloc a 3584MiB -> 0",
        ],
    );
}

#[test]
fn what_pools_do_not_use_is_given_up_before_a_request_is_refused() {
    expect(
        &four_gib(),
        &one_card(),
        &[
            "default-pool p -> 0",
            "threshold p max -> 0",
            "rounds 3 3GiB -> 0",
            "used -> 0 3072MiB",
            "alloc a 3GiB -> 0",
            "used -> 0 3072MiB",
            "free a -> 0",
            "used -> 0 0MiB",
        ],
    );
}

#[test]
fn a_pool_that_already_holds_enough_serves_a_request_near_the_limit() {
    expect(
        &four_gib(),
        &one_card(),
        &[
            "default-pool p -> 0",
            "threshold p max -> 0",
            "rounds 1 2GiB -> 0",
            "alloc a 1GiB -> 0",
            "alloc-async b 2GiB -> 0",
            "used -> 0 3072MiB",
        ],
    );
}

#[test]
fn asking_and_allocating_leaves_an_open_capture_whole() {
    if needs_the_simulator() {
        return;
    }
    expect(
        &four_gib(),
        &one_card(),
        &[
            "default-pool p -> 0",
            "threshold p max -> 0",
            "rounds 1 64MiB -> 0",
            "stream s -> 0",
            "capture s -> 0",
            "info -> 0 free=3732MiB total=4096MiB",
            "end-capture s -> 0",
            "trim p 0 -> 0",
            "used -> 0 0MiB",
        ],
    );
}

#[test]
fn captures_of_one_thread_and_requests_of_others_do_not_disturb_each_other() {
    if needs_the_simulator() {
        return;
    }
    // Captures that begin between the moment at which none is open and a question, and such that last for requests of more than
    // the budget, one after the other.
    for (jitter, shape) in [("0us", ["5000", "0"]), ("300us", ["5000", "0"]), ("300us", ["5", "3000"])] {
        let machine = Machine::new(&format!("16GiB,context=16MiB,jitter={jitter}"));
        let run =
            Run::new(c_program("captures_beside")).on(&machine).within(&four_gib()).args(shape).finish();
        assert_eq!((run.code(), run.stderr.as_str()), (0, ""), "{run}");
    }
}

#[test]
fn memory_that_outlives_its_pool_stays_charged_until_it_is_freed() {
    expect(
        &four_gib(),
        &one_card(),
        &[
            "pool p -> 0",
            "alloc-pool a p 1GiB -> 0",
            "alloc-pool b p 1GiB -> 0",
            "alloc-pool c p 100 -> 0",
            "free a -> 0",
            "destroy-pool p -> 0",
            "used -> 0 1026MiB",
            "difference -> 0 0MiB",
            "alloc d 3GiB -> 2",
            "free b -> 0",
            "used -> 0 2MiB",
            "pool q -> 0",
            "alloc-pool e q 1GiB -> 0",
            "free c -> 0",
            "used -> 0 1024MiB",
            "free e -> 0",
            "used -> 0 0MiB",
        ],
    );
}

#[test]
fn a_pool_is_charged_on_a_stream_of_a_context_that_is_not_current() {
    expect(
        &four_gib(),
        &one_card(),
        &[
            "stream s -> 0",
            "pool p -> 0",
            "set-context none -> 0",
            "alloc-pool-stream a p s 1GiB -> 0",
            "alloc-stream b s 2GiB -> 0",
            "alloc-pool-stream c p s 2GiB -> 2",
            "alloc-stream d s 2GiB -> 2",
            "set-context primary -> 0",
            "used -> 0 3072MiB",
            "free-stream a s -> 0",
            "free-stream b s -> 0",
            "sync -> 0",
            "used -> 0 0MiB",
        ],
    );
}

#[test]
fn a_pool_of_managed_memory_is_charged_wherever_it_is_preferred() {
    if needs_the_simulator() {
        return;
    }
    expect(
        &four_gib(),
        &one_card(),
        &[
            "managed-pool p -> 0",
            "alloc-pool a p 1GiB -> 0",
            "used -> 0 1024MiB",
            "alloc-pool b p 3GiB -> 2",
            "free-async a -> 0",
            "sync -> 0",
            "used -> 0 0MiB",
        ],
    );
}

#[test]
fn pools_are_charged_for_what_they_hold_once_a_capture_is_over_however_it_ended() {
    if needs_the_simulator() {
        return;
    }
    let endings: [&[&str]; 3] = [
        &["stream s -> 0", "capture s -> 0", "destroy-stream s -> 0"],
        &[
            "context c -> 0",
            "stream s -> 0",
            "capture s -> 0",
            "destroy-context c -> 0",
            "set-context primary -> 0",
        ],
        &["capture-own -> 0", "end-capture-own -> 0"],
    ];
    for ending in endings {
        // While one was taken to be open, pools could not be asked.
        let before = ["fail cuThreadExchangeStreamCaptureMode 801 1000 -> 0"];
        let then = ["rounds 20 300MiB -> 0", "used -> 0 0MiB"];
        expect(&four_gib(), &one_card(), &[&before, ending, &then].concat());
    }
}

#[test]
fn what_is_asked_of_pools_while_a_capture_is_open_is_charged_as_they_hold_it_or_in_full() {
    if needs_the_simulator() {
        return;
    }
    for (no_mode, during) in [(0, "used -> 0 64MiB"), (1000, "used -> 0 192MiB")] {
        expect(
            &four_gib(),
            &one_card(),
            &[
                "pool p -> 0",
                "stream s -> 0",
                "stream t -> 0",
                &format!("fail cuThreadExchangeStreamCaptureMode 801 {no_mode} -> 0"),
                "capture s -> 0",
                "alloc-pool-stream a p t 64MiB -> 0",
                "free-stream a t -> 0",
                "alloc-pool-stream b p t 64MiB -> 0",
                "free-stream b t -> 0",
                "alloc-pool-stream c p t 64MiB -> 0",
                during,
                "end-capture s -> 0",
                "used -> 0 64MiB",
            ],
        );
    }
}

#[test]
fn a_capture_is_left_whole_when_other_streams_are_destroyed() {
    if needs_the_simulator() {
        return;
    }
    expect(
        &four_gib(),
        &one_card(),
        &[
            "default-pool p -> 0",
            "threshold p max -> 0",
            "rounds 1 64MiB -> 0",
            "stream s -> 0",
            "stream t -> 0",
            "capture s -> 0",
            "destroy-stream t -> 0",
            "info -> 0 free=3732MiB total=4096MiB",
            "end-capture s -> 0",
        ],
    );
}

#[test]
fn memory_that_outlives_its_pool_may_belong_to_another_cards_context() {
    if needs_the_simulator() {
        return;
    }
    expect(
        &four_gib(),
        &Machine::new("16GiB,16GiB"),
        &[
            "pool p -> 0",
            "device 1 -> 0",
            "context other -> 0",
            "stream s -> 0",
            "alloc-pool-stream a p s 1GiB -> 0",
            "destroy-pool p -> 0",
            "device 0 -> 0",
            "reset-primary -> 0",
            "primary -> 0",
            "used -> 0 1024MiB",
            "difference -> 0 0MiB",
            "free a -> 0",
            "used -> 0 0MiB",
        ],
    );
}

/// What a pool held that was asked about just before it was destroyed is nothing that the next one with its handle holds.
#[test]
fn a_pool_with_the_handle_of_a_destroyed_one_is_charged() {
    if needs_the_simulator() {
        return;
    }
    let machine = Machine::new("16GiB,context=16MiB,jitter=500us");
    let run = Run::new(c_program("reborn")).on(&machine).within(&four_gib()).args(["pools", "8000"]).finish();
    assert_eq!((run.code(), run.stdout.as_str(), run.stderr.as_str()), (0, "", ""), "{run}");
}
