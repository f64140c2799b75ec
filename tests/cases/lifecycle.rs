//! Programs in unusual states: before the driver is up, after it is gone, without their descriptors, as another user.

use crate::common::programs::c_program;
use crate::common::{Machine, Run, wait_for_line};
use crate::harness::{four_gib, lines, linked, needs_the_simulator, one_card};

#[test]
fn calls_after_the_driver_is_gone_are_answered_as_without_the_library() {
    if needs_the_simulator() {
        return;
    }
    let machine = one_card();
    for arguments in [&[][..], &["before"]] {
        let ends = || Run::new(c_program("ends")).on(&machine).args(arguments.to_vec());
        let bare = ends().finish();
        for _ in 0..5 {
            let within = ends().within(&four_gib()).finish();
            assert_eq!((within.code(), within.stderr.as_str()), (5, ""), "{within}");
            assert_eq!(within.stdout, bare.stdout);
        }
        assert!(bare.stdout.contains("destructor: alloc 4"), "the driver is gone by then: {bare}");
    }
}

#[test]
fn an_initialisation_that_fails_may_work_later() {
    if needs_the_simulator() {
        return;
    }
    let commands = ["init", "init", "device 0", "primary", "primary", "alloc a 5GiB", "alloc b 3GiB", "info"];
    let run = || {
        let fail = "cuInit:999:1,cuDevicePrimaryCtxRetain:2:1";
        Run::new(c_program("harness")).on(&one_card()).env("SIMGPU_FAIL", fail).args(commands)
    };
    let within = lines(run().within(&four_gib()).finish());
    assert_eq!(
        within,
        [
            "init -> 999",
            "init -> 0",
            "device 0 -> 0",
            "primary -> 2",
            "primary -> 0",
            "alloc a 5GiB -> 2",
            "alloc b 3GiB -> 0",
            "info -> 0 free=724MiB total=4096MiB",
        ]
    );
    assert_eq!(lines(run().finish())[..5], within[..5]);
}

#[test]
fn memory_is_charged_once_where_the_driver_calls_its_own_exports() {
    if needs_the_simulator() {
        return;
    }
    // The inner call leads through the library, too: the linked program has the driver in the global scope.
    let (machine, container) = (Machine::new("16GiB,calls=exports"), four_gib());
    let commands =
        ["init", "device 0", "primary", "pitch p 1MiB 2048", "info", "pitch q 1MiB 2048", "free p", "info"];
    let run = || Run::new(linked()).on(&machine).env("HARNESS_ROUTE", "link").args(commands);
    assert_eq!(
        lines(run().within(&container).finish())[3..],
        [
            "pitch p 1MiB 2048 -> 0",
            "info -> 0 free=1748MiB total=4096MiB",
            "pitch q 1MiB 2048 -> 2",
            "free p -> 0",
            "info -> 0 free=3796MiB total=4096MiB"
        ]
    );
}

#[test]
fn a_driver_that_is_closed_and_opened_again_is_limited_each_time() {
    if needs_the_simulator() {
        return;
    }
    let (machine, container) = (one_card(), four_gib());
    let run = Run::new(c_program("reopen")).on(&machine).within(&container);
    assert_eq!(lines(run.arg("40").finish()), ["wrong 0"]);
}

#[test]
fn a_process_that_closes_or_changes_everything_keeps_its_part_of_the_budget() {
    if needs_the_simulator() {
        return;
    }
    let root = std::process::Command::new("id").arg("-u").output().is_ok_and(|out| out.stdout == b"0\n");
    for what in ["nothing", "close", "chdir", "threads", "setuid", "chroot"] {
        if !root && matches!(what, "setuid" | "chroot") {
            crate::common::skip::skip("only root can become another user: run the tests as root");
            continue;
        }
        let (machine, container) = (one_card(), four_gib());
        let mut first = Run::new(c_program("unusual")).on(&machine).within(&container).arg(what).spawn();
        wait_for_line(&mut first, "0 0 2, info 0: 1748 of 4096 MiB free");
        // Whoever comes next finds it there.
        let second = Run::new(c_program("harness")).on(&machine).within(&container);
        let said = second.args(["init", "device 0", "primary", "info", "alloc a 2GiB", "alloc b 1GiB"]);
        assert_eq!(
            lines(said.finish())[3..],
            ["info -> 0 free=1448MiB total=4096MiB", "alloc a 2GiB -> 2", "alloc b 1GiB -> 0"],
            "{what}"
        );
        drop(first.stdin.take());
        let ended = first.wait_with_output().unwrap();
        assert!(ended.status.success() && ended.stderr.is_empty(), "{what}: {ended:?}");
    }
}

#[test]
fn a_program_that_is_replaced_gives_its_part_to_the_next() {
    if needs_the_simulator() {
        return;
    }
    let (machine, container) = (one_card(), four_gib());
    let run = || Run::new(c_program("replaced")).on(&machine).within(&container);
    assert_eq!(lines(run().arg("itself").finish()), ["first 0", "anew 0"]);
    // A server that has not used the GPU itself.
    assert_eq!(lines(run().finish()), ["refused 0"]);
}

#[test]
fn a_program_that_runs_for_weeks_does_not_grow() {
    if needs_the_simulator() {
        return;
    }
    let (machine, container) = (Machine::new("16GiB,work=none"), four_gib());
    let said = lines(Run::new(c_program("cycles")).on(&machine).within(&container).finish());
    let grown = said[0].strip_prefix("grown ").and_then(|rest| rest.strip_suffix(", refused 0"));
    let grown: i64 = grown.unwrap_or_else(|| panic!("{said:?}")).parse().unwrap();
    assert!(grown <= 128, "{grown} KiB in a million cycles");
}
