//! The claims on speed, measured: the same program on the bare simulated driver with its work taken out, and under
//! the library, side by side in one run. Prints one table; `docs/speed.md` says how to read it.
//!
//! `cargo bench` measures all; `cargo bench -- WORD` only the groups whose name has WORD in it. The exit status is
//! 0 whatever comes out: on a busy machine a target can be missed by chance.

mod calls;
#[path = "../../tests/common/mod.rs"]
mod common;
mod duel;
mod starts;
mod static_costs;
mod table;

use std::collections::HashSet;

use common::{Container, Machine};

/// What the measurements share.
pub struct Bench {
    /// Short batches a row, each with and without the library.
    pub rounds: usize,
    /// A simulated machine whose driver does no work.
    pub machine: Machine,
}

impl Bench {
    /// A container with a limit that the largest row still fits in.
    pub fn container(&self) -> Container {
        Container::new("limit = \"4TiB\"\n")
    }
}

/// Measures one group of rows, and hands each on as it is there.
type Group = fn(&Bench, &mut dyn FnMut(table::Row));

const GROUPS: &[(&str, Group)] = &[
    ("live", calls::live_allocations),
    ("lazy", calls::below_lazy_from),
    ("processes", calls::processes),
    ("info", calls::memory_info),
    ("neighbours", calls::neighbours),
    ("pools", calls::pools),
    ("dlsym", calls::foreign_look_ups),
    ("pointers", static_costs::pointers),
    ("start", starts::a_program_without_cuda),
    ("storm", starts::storm),
    ("size", static_costs::size),
    ("memory", static_costs::memory),
];

fn main() {
    let args: HashSet<String> = std::env::args().skip(1).collect();
    // Without it, a test run has come by, which wants to know whether all this works at all.
    let rounds = if args.contains("--bench") { 301 } else { 5 };
    let words: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let bench = Bench { rounds, machine: Machine::new("1TiB,work=none") };
    println!("{}", table::head());
    for (name, group) in GROUPS {
        if words.is_empty() || words.iter().any(|word| name.contains(word.as_str())) {
            group(&bench, &mut |row| println!("{row}"));
        }
    }
}
