//! Memory that is backed on touch is plain memory to the program: the same calls on the bare driver and under
//! `growth = "lazy"` are answered the same, and only what the card holds differs.

use std::path::Path;

use crate::common::programs::c_program;
use crate::common::{Container, Machine, Run};

const LAZY: &str = "limit = \"12GiB\"\ngrowth = \"lazy\"\n";

fn lines(run: Run) -> Vec<String> {
    let finished = run.finish().success();
    assert_eq!(finished.stderr, "");
    finished.stdout.lines().map(str::to_owned).collect()
}

/// What a part of the program says, apart from what the card holds for it; and that.
fn told(lines: Vec<String>) -> (Vec<String>, Vec<String>) {
    lines.into_iter().partition(|line| !line.starts_with("resident"))
}

/// The same part on the bare driver and under the library says the same. Answers what the card held: bare, and lazy.
#[track_caller]
fn as_plain(part: &[&str], machine: &Machine, differs: &[&str]) -> (Vec<String>, Vec<String>) {
    let program = c_program("lazy");
    let run = || Run::new(&program).on(machine).args(part.to_vec());
    let (plain, held_plain) = told(lines(run()));
    let (lazy, held_lazy) = told(lines(run().within(&Container::new(LAZY))));
    let different: Vec<(&String, &String)> = plain.iter().zip(&lazy).filter(|(a, b)| a != b).collect();
    assert_eq!(plain.len(), lazy.len(), "{plain:#?}\n{lazy:#?}");
    let expected: Vec<&str> = different.iter().map(|(_, lazy)| lazy.as_str()).collect();
    assert_eq!(expected, differs, "{different:#?}");
    (held_plain, held_lazy)
}

fn one_card() -> Machine {
    Machine::new("16GiB")
}

#[test]
fn every_attribute_of_the_pointer_is_that_of_plain_memory_but_ipc() {
    // The attribute that says whether the memory can be shared by cuIpcGetMemHandle stays honest.
    let honest = ["attribute 10: 0 0"; 4];
    let (plain, lazy) = as_plain(&["attributes"], &one_card(), &honest);
    assert_eq!(plain, ["resident after alloc 512"]);
    assert_eq!(lazy, ["resident after alloc 0"]);
}

#[test]
fn what_is_for_managed_memory_is_refused_as_for_plain() {
    let (_, lazy) = as_plain(&["managed-only"], &one_card(), &[]);
    assert_eq!(lazy, ["resident after alloc 0", "resident after free 0"]);
}

#[test]
fn it_is_freed_by_every_route() {
    let (_, lazy) = as_plain(&["frees"], &one_card(), &[]);
    assert_eq!(lazy, ["resident after alloc 0", "resident after all 0"]);
}

#[test]
fn a_capture_is_neither_disturbed_nor_given_lazy_memory() {
    let (plain, lazy) = as_plain(&["frees-beside-capture"], &one_card(), &[]);
    assert_eq!(plain, ["resident after alloc 512", "resident after alloc in capture 512"]);
    assert_eq!(lazy, ["resident after alloc 0", "resident after alloc in capture 512"]);
}

#[test]
fn a_graph_touches_it_when_it_is_launched() {
    let (_, lazy) = as_plain(&["graphs"], &one_card(), &[]);
    assert_eq!(lazy, ["resident after alloc 0", "resident before launch 0", "resident after launch 512"]);
}

#[test]
fn copies_and_memsets_work_and_make_resident_what_they_touch() {
    let (_, lazy) = as_plain(&["copies"], &one_card(), &[]);
    assert_eq!(
        lazy,
        [
            "resident after alloc 0",
            "resident after one write 2",
            "resident after some writes 6",
            "resident after all of it 516",
            "resident after free 0"
        ]
    );
}

#[test]
fn pitched_memory_has_the_drivers_pitch() {
    let (_, lazy) = as_plain(&["pitched"], &one_card(), &[]);
    assert_eq!(lazy, ["resident after alloc 0"]);
}

#[test]
fn sharing_it_by_ipc_is_refused_and_the_next_allocation_is_plain() {
    let (_, lazy) = as_plain(&["ipc"], &one_card(), &["export 1"]);
    assert_eq!(lazy, ["resident after alloc 0", "resident after the next alloc 512"]);
}

#[test]
fn it_goes_with_its_context() {
    let (_, lazy) = as_plain(&["contexts"], &one_card(), &[]);
    assert_eq!(lazy, ["resident after all 0"]);
}

#[test]
fn another_gpu_reaches_it_as_plain_memory() {
    let (_, lazy) = as_plain(&["peers"], &Machine::new("16GiB,16GiB"), &[]);
    assert_eq!(lazy, ["resident after alloc 0", "resident on the first card 2"]);
}

#[test]
fn below_lazy_from_and_under_the_other_policies_memory_is_plain() {
    let held = |quota: &str, mib: &str| {
        let (machine, container) = (one_card(), Container::new(quota));
        let run = Run::new(c_program("lazy")).on(&machine).within(&container);
        told(lines(run.args(["managed-only", mib]))).1[0].clone()
    };
    assert_eq!(held(LAZY, "256"), "resident after alloc 0", "the default is 256 MiB");
    assert_eq!(held(LAZY, "254"), "resident after alloc 254");
    let from = |from: &str| format!("{LAZY}lazy_from = \"{from}\"\n");
    assert_eq!(held(&from("1GiB"), "512"), "resident after alloc 512");
    assert_eq!(held(&from("16MiB"), "16"), "resident after alloc 0");
    assert_eq!(held(&from("0"), "2"), "resident after alloc 0");
    assert_eq!(held(&from("0"), "1"), "resident after alloc 2", "what shares a block is never lazy");
    assert_eq!(held("limit = \"12GiB\"\ngrowth = \"hints\"\n", "512"), "resident after alloc 512");
    assert_eq!(held("limit = \"12GiB\"\ngrowth = \"native\"\n", "512"), "resident after alloc 512");
}

#[test]
fn where_managed_memory_is_not_paged_it_falls_back_and_the_log_says_so_once() {
    let (machine, container) = (Machine::new("16GiB,managed=0"), Container::new(LAZY));
    let run = || Run::new(c_program("lazy")).on(&machine).within(&container).args(["frees"]);
    assert_eq!(told(lines(run())).1[0], "resident after alloc 512");
    let said = run().env("CUQUOTA_LOG", "warn").finish().success();
    let about: Vec<&str> = said.stderr.lines().filter(|line| line.contains("growth = \"lazy\"")).collect();
    assert_eq!(about.len(), 1, "{said}");
    assert!(about[0].contains("no concurrent access to managed memory"), "{said}");
}

#[test]
fn what_the_driver_refuses_to_make_lazy_is_asked_for_as_plain() {
    let refused = |function: &str| {
        let (machine, container) = (one_card(), Container::new(LAZY));
        let run = Run::new(c_program("lazy")).on(&machine).within(&container);
        let run = run.env("SIMGPU_FAIL", format!("{function}:801:1")).args(["frees"]);
        told(lines(run)).1
    };
    for function in ["cuMemAllocManaged", "cuMemAdvise"] {
        assert_eq!(refused(function)[0], "resident after alloc 512", "{function}");
    }
}

#[test]
fn the_limit_stays_hard() {
    let harness = c_program("harness");
    let container = Container::new("limit = \"4GiB\"\ngrowth = \"lazy\"\n");
    let machine = one_card();
    let run = |path: &Path| Run::new(path).on(&machine).within(&container);
    let commands = [
        "init",
        "device 0",
        "primary",
        "base",
        "alloc a 3GiB",
        "used",
        "alloc b 1GiB",
        "free a",
        "alloc b 1GiB",
    ];
    let said = lines(run(&harness).args(commands));
    assert_eq!(
        said[4..],
        ["alloc a 3GiB -> 0", "used -> 0 3072MiB", "alloc b 1GiB -> 2", "free a -> 0", "alloc b 1GiB -> 0"]
    );
}
