//! The simulated driver by itself: its memory, pools, virtual memory, managed memory, arrays, streams, and the card
//! between processes. Each program checks one part and names the first expectation that does not hold.

mod common;

use std::time::Duration;

use common::programs::c_program_linked;
use common::{Finished, Machine, Run};

const CARD: &str = "16GiB";

fn check(program: &str, machine: &Machine, args: &[&str]) -> Finished {
    let run = Run::new(c_program_linked(program)).args(args.iter().copied());
    run.on(machine).limit(Duration::from_secs(120)).finish().success()
}

#[test]
fn plain_memory_is_blocks_and_bytes_that_move() {
    check("sim_memory", &Machine::new(CARD), &[]);
}

#[test]
fn pools_hold_what_they_reserve_until_somebody_synchronises() {
    check("sim_pools", &Machine::new(CARD), &[]);
}

#[test]
fn physical_memory_outlives_neither_handles_nor_mappings() {
    check("sim_vmm", &Machine::new(CARD), &[]);
}

#[test]
fn managed_memory_is_resident_where_it_was_touched_and_gives_way() {
    check("sim_managed", &Machine::new(CARD), &[]);
}

#[test]
fn managed_memory_without_concurrent_access_is_on_the_card_from_the_start() {
    check("sim_managed", &Machine::new("16GiB,managed=0"), &["no-concurrent-access"]);
}

#[test]
fn without_work_addresses_are_unique_and_no_card_is_touched() {
    let machine = Machine::new("16GiB,work=none");
    check("sim_nowork", &machine, &[]);
    let left: Vec<_> = std::fs::read_dir(machine.cards_dir()).expect("the cards' directory").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn arrays_are_padded_and_can_be_filled() {
    check("sim_arrays", &Machine::new(CARD), &[]);
}

#[test]
fn tiles_of_sparse_arrays_keep_what_is_mapped_into_them() {
    check("sim_sparse", &Machine::new(CARD), &[]);
}

#[test]
fn multicast_objects_keep_what_is_bound_to_them() {
    check("sim_multicast", &Machine::new("16GiB,16GiB"), &[]);
}

#[test]
fn what_is_made_in_a_green_context_is_the_primary_contexts() {
    check("sim_green", &Machine::new(CARD), &[]);
}

#[test]
fn unsafe_calls_break_captures_and_graphs_do_what_was_captured() {
    check("sim_streams", &Machine::new(CARD), &[]);
}

#[test]
fn each_card_has_its_own_memory() {
    let run = Run::new(c_program_linked("sim_devices")).on(&Machine::new("16GiB,24GiB"));
    run.env("CUDA_DEVICE_ORDER", "PCI_BUS_ID").finish().success();
}

#[test]
fn memory_between_processes_goes_with_its_last_holder() {
    check("sim_processes", &Machine::new(CARD), &["200"]);
}

#[test]
fn the_same_holds_with_delays_inside_allocations() {
    let machine = Machine::new("16GiB,delay=200us");
    check("sim_memory", &machine, &[]);
    check("sim_processes", &machine, &["20"]);
}

#[test]
fn failures_are_injected_from_the_environment_too() {
    let machine = Machine::new(CARD);
    let run = Run::new(c_program_linked("sim_memory")).on(&machine);
    let failed = run.env("SIMGPU_FAIL", "cuMemGetAddressRange_v2:201:1").finish();
    assert_eq!(failed.code(), 1, "{failed}");
    assert!(
        failed.stderr.contains("cuMemGetAddressRange_v2(&base, &bytes, ptr[4] + 100) is 201, not 0"),
        "{failed}"
    );
}
