//! Many threads and processes that make and free lazy memory at once.

use std::time::Duration;

use crate::common::programs::c_program;
use crate::common::{Container, Machine, Run};

const ALL_LAZY: &str = "growth = \"lazy\"\nlazy_from = \"1MiB\"\n";

#[track_caller]
fn says(program: &str, args: &[&str], limit: &str, expected: &str) {
    let container = Container::new(&format!("limit = \"{limit}\"\n{ALL_LAZY}"));
    let machine = Machine::new("16GiB,context=16MiB");
    let run = Run::new(c_program(program)).on(&machine).within(&container).args(args.to_vec());
    let finished = run.limit(Duration::from_secs(240)).finish().success();
    assert_eq!((finished.stdout.trim_end(), finished.stderr.as_str()), (expected, ""));
}

#[test]
fn of_requests_that_race_for_one_place_exactly_one_is_granted() {
    let none = "rounds with two 0, with none 0, other codes 0, failed processes 0";
    says("race", &["4", "8", "200", "600MiB"], "1024MiB", none);
}

#[test]
fn what_a_killed_process_held_is_there_within_a_second() {
    says("kills", &["100", "4032MiB"], "4GiB", "late 0");
}

#[test]
fn after_a_storm_of_requests_usage_is_what_it_was() {
    says("storm", &["16", "500"], "4GiB", "difference 0, refused 0");
}
