//! Every name that the real libraries export is there in the simulated ones, at an address of its own.

mod common;

use common::programs::c_program;
use common::{Machine, Run};

/// The names of `table`, the first column of each line.
fn names(table: &str) -> Vec<&str> {
    table
        .lines()
        .map(|line| line.split('\t').next().expect("a column"))
        .filter(|name| *name != "symbol")
        .collect()
}

fn all_are_there(library: &str, table: &str) {
    let names = names(table);
    let run = Run::new(c_program("exports")).arg(library).input(names.join("\n")).on(&Machine::new("16GiB"));
    assert_eq!(run.finish().success().stdout, format!("found {}\n", names.len()));
}

#[test]
fn libcuda_has_every_name() {
    all_are_there("libcuda.so.1", include_str!("sim/names.tsv"));
}

#[test]
fn libnvidia_ml_has_every_name() {
    all_are_there("libnvidia-ml.so.1", include_str!("sim/nvml_names.txt"));
}
