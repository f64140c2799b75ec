//! What it costs to start.

use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::Bench;
use crate::common::Run;
use crate::duel::{compare, program};
use crate::table::{Row, Unit};

/// A program that never touches CUDA.
pub fn a_program_without_cuda(bench: &Bench, report: &mut dyn FnMut(Row)) {
    let container = bench.container();
    let mut bare = command(Run::new("/bin/true").on(&bench.machine));
    let mut held = command(Run::new("/bin/true").on(&bench.machine).within(&container));
    let took = compare(2 * bench.rounds, |is_held| {
        let command = if is_held { &mut held } else { &mut bare };
        nanoseconds(|| assert!(command.status().expect("/bin/true").success()))
    });
    report(Row::timed("/bin/true", Unit::Microseconds, 300.0, took));
}

/// Hundreds of programs that start at the same time, each of which opens the driver and makes its context.
pub fn storm(bench: &Bench, report: &mut dyn FnMut(Row)) {
    const PROGRAMS: usize = 200;
    let container = bench.container();
    let mut bare = command(program().on(&bench.machine));
    let mut held = command(program().on(&bench.machine).within(&container));
    let took = compare(bench.rounds.min(7), |is_held| {
        let command = if is_held { &mut held } else { &mut bare };
        nanoseconds(|| {
            let start = || command.spawn().expect("a program that starts");
            let running: Vec<Child> = std::iter::repeat_with(start).take(PROGRAMS).collect();
            for mut program in running {
                assert!(program.wait().expect("a child to wait for").success());
            }
        })
    });
    let what = format!("{PROGRAMS} programs started at once, all ended");
    report(Row::timed(what, Unit::Milliseconds, 2000.0, took));
}

fn command(run: Run) -> Command {
    let mut command = run.command();
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn nanoseconds(work: impl FnOnce()) -> f64 {
    let since = Instant::now();
    work();
    since.elapsed().as_nanos() as f64
}
