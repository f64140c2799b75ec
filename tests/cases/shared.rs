//! Memory that processes share: charged once in the container, until its last holder is gone, by whatever way.

use std::time::Duration;

use crate::common::programs::c_program;
use crate::common::{Machine, Run};
use crate::harness::{four_gib, lines, needs_the_simulator};

/// Runs the commands, each but `kill`, `exit` and `drop` followed by what it says.
#[track_caller]
fn expect(script: &[&str]) {
    let is_silent =
        |line: &str| ["kill", "exit", "drop"].iter().any(|verb| line.split(' ').any(|w| w == *verb));
    let commands: Vec<&str> = script
        .iter()
        .map(|line| match line.split(' ').next() {
            Some(first @ ("used" | "left")) => first,
            _ => line.split(" -> ").next().unwrap_or(line),
        })
        .collect();
    let expected: Vec<&str> = script.iter().copied().filter(|line| !is_silent(line)).collect();
    let machine = Machine::new("16GiB,context=16MiB");
    let (container, neighbour) = (four_gib(), four_gib());
    let run = Run::new(c_program("holders")).on(&machine).within(&container);
    let run = run.env("HOLDERS_NEIGHBOUR", neighbour.state_dir()).args(commands);
    assert_eq!(lines(run.limit(Duration::from_secs(120)).finish()), expected);
}

#[test]
fn the_creator_is_killed_first_and_the_last_of_four_ends_it() {
    if needs_the_simulator() {
        return;
    }
    expect(&[
        "0 alloc a 1GiB -> 0",
        "0 get a A -> 0",
        "1 open b A -> 0",
        "2 open b A -> 0",
        "3 open b A -> 0",
        "4 open b A -> 0",
        "used 1024MiB card 1024MiB",
        "0 kill",
        "used 1024MiB card 1024MiB",
        "1 close b -> 0",
        "2 exit",
        "3 kill",
        "used 1024MiB card 1024MiB",
        "4 kill",
        "used 0MiB card 0MiB",
    ]);
}

#[test]
fn whoever_gives_it_back_first_it_is_charged_until_the_other_does() {
    if needs_the_simulator() {
        return;
    }
    expect(&[
        "0 alloc a 1GiB -> 0",
        "0 get a A -> 0",
        "1 open b A -> 0",
        "0 free a -> 0",
        "used 1024MiB card 1024MiB",
        "1 close b -> 0",
        "used 0MiB card 0MiB",
        "0 alloc a 512MiB -> 0",
        "0 get a A -> 0",
        "1 open b A -> 0",
        "1 open c A -> 0",
        "1 close b -> 0",
        "1 close c -> 0",
        "1 close c -> 1",
        "used 512MiB card 512MiB",
        "1 open b A -> 0",
        "0 reset -> 0",
        "0 exit",
        "used 512MiB card 512MiB",
        "1 exit",
        "used 0MiB card 0MiB",
    ]);
}

#[test]
fn what_was_opened_in_a_context_goes_with_it() {
    if needs_the_simulator() {
        return;
    }
    expect(&[
        "0 alloc a 1GiB -> 0",
        "0 get a A -> 0",
        "7 alloc c 256MiB -> 0",
        "7 get c C -> 0",
        "1 open b A -> 0",
        "1 open d C -> 0",
        "used 1280MiB card 1280MiB",
        "0 free a -> 0",
        "1 reset -> 0",
        // The context that is gone is one that was counted.
        "used -16MiB card 240MiB",
        "7 kill",
        "1 exit",
        "used 0MiB card 0MiB",
    ]);
}

#[test]
fn what_nobody_pays_for_any_more_still_counts_against_the_limit() {
    if needs_the_simulator() {
        return;
    }
    expect(&[
        "0 alloc a 3GiB -> 0",
        "0 get a A -> 0",
        "1 open b A -> 0",
        "0 free a -> 0",
        "0 alloc a 1GiB -> 2",
        "1 alloc a 1GiB -> 2",
        "left 976MiB -> 0, a block more -> 2",
        "1 close b -> 0",
        "0 alloc a 1GiB -> 0",
        "1 alloc a 2GiB -> 0",
    ]);
}

#[test]
fn a_handle_that_nobody_opens_and_one_of_what_is_gone_change_nothing() {
    if needs_the_simulator() {
        return;
    }
    expect(&[
        "0 alloc a 100MiB -> 0",
        "0 alloc s 1000 -> 0",
        "0 get a A -> 0",
        "0 get a A -> 0",
        "0 get s S -> 0",
        "0 open x A -> 201",
        "0 free a -> 0",
        "0 free s -> 0",
        "used 0MiB card 0MiB",
        "1 open b A -> 205",
        "used 0MiB card 0MiB",
        "0 alloc s 1000 -> 0",
        "0 get s S -> 0",
        "1 open b S -> 0",
        "used 2MiB card 2MiB",
        "0 kill",
        "used 2MiB card 2MiB",
        "1 kill",
        "used 0MiB card 0MiB",
    ]);
}

#[test]
fn physical_memory_is_charged_once_through_descriptors_mappings_and_deaths() {
    if needs_the_simulator() {
        return;
    }
    expect(&[
        "0 create h 1GiB -> 0",
        "0 export h H -> 0",
        "1 import g H -> 0",
        "1 map g -> 0",
        "1 release g -> 0",
        "2 import g H -> 0",
        // Handed on by one that has it.
        "2 export g K -> 0",
        "3 import g K -> 0",
        "used 1024MiB card 1024MiB",
        "drop H",
        "drop K",
        "0 kill",
        "used 1024MiB card 1024MiB",
        "2 release g -> 0",
        "3 exit",
        "used 1024MiB card 1024MiB",
        "1 unmap g -> 0",
        "used 0MiB card 0MiB",
    ]);
}

#[test]
fn a_descriptor_alone_keeps_physical_memory_and_its_charge() {
    if needs_the_simulator() {
        return;
    }
    expect(&[
        "0 create h 1GiB -> 0",
        "0 export h H -> 0",
        "0 release h -> 0",
        "used 1024MiB card 1024MiB",
        "0 kill",
        "used 1024MiB card 1024MiB",
        "1 import g H -> 0",
        "drop H",
        "used 1024MiB card 1024MiB",
        "1 release g -> 0",
        "used 0MiB card 0MiB",
        "1 create h 512MiB -> 0",
        "1 export h H -> 0",
        "1 import g H -> 0",
        "1 release h -> 0",
        "drop H",
        "used 512MiB card 512MiB",
        "1 release g -> 0",
        "used 0MiB card 0MiB",
    ]);
}

#[test]
fn what_another_container_made_is_paid_for_by_who_opens_it_or_refused() {
    if needs_the_simulator() {
        return;
    }
    expect(&[
        "7 alloc a 3GiB -> 0",
        "7 get a A -> 0",
        "0 alloc c 2GiB -> 0",
        "0 open b A -> 2",
        "used 2048MiB card 5120MiB",
        "0 free c -> 0",
        "0 open b A -> 0",
        "used 3072MiB card 3072MiB",
        "0 alloc c 1GiB -> 2",
        "7 kill",
        "used 3072MiB card 3072MiB",
        "0 close b -> 0",
        "used 0MiB card 0MiB",
    ]);
}

#[test]
fn a_descriptor_from_another_container_is_paid_for_by_what_it_leads_to() {
    if needs_the_simulator() {
        return;
    }
    expect(&[
        "7 create h 1022MiB -> 0",
        "7 export h H -> 0",
        "0 alloc a 3GiB -> 0",
        "1 import g H -> 2",
        "used 3072MiB card 4094MiB",
        "0 free a -> 0",
        "1 import g H -> 0",
        "2 import g H -> 0",
        "used 2044MiB card 1022MiB",
        "1 export g K -> 0",
        "3 import g K -> 0",
        "used 2044MiB card 1022MiB",
        "1 release g -> 0",
        "7 kill",
        "drop H",
        "drop K",
        "used 2044MiB card 1022MiB",
        "2 release g -> 0",
        "3 exit",
        "used 0MiB card 0MiB",
    ]);
}

#[test]
fn memory_of_an_exported_pool_outlives_its_exporter_with_its_charge() {
    if needs_the_simulator() {
        return;
    }
    expect(&[
        "0 pool p -> 0",
        "0 take a p 64MiB -> 0",
        "0 take b p 32MiB -> 0",
        "0 export-pool p P -> 0",
        "0 point a A -> 0",
        "1 import-pool q P -> 0",
        "1 import-point c q A -> 0",
        "1 take d q 2MiB -> 1",
        "used 96MiB card 96MiB",
        "0 kill",
        "used 64MiB card 64MiB",
        "1 free c -> 0",
        "1 free c -> 1",
        "used 0MiB card 0MiB",
    ]);
}

#[test]
fn memory_of_another_interface_is_charged_while_it_is_imported() {
    if needs_the_simulator() {
        return;
    }
    expect(&[
        "0 external e 1GiB -> 0",
        "0 external f 4GiB -> 2",
        "used 1024MiB card 0MiB",
        "0 destroy e -> 0",
        "0 destroy e -> 1",
        "used 0MiB card 0MiB",
        "0 external e 1GiB -> 0",
        "0 kill",
        "used 0MiB card 0MiB",
    ]);
}
