//! What a call costs.

use crate::Bench;
use crate::common::{Container, Run};
use crate::duel::{Duel, Meter, program};
use crate::table::{Row, Unit};

/// Calls in one batch: half a millisecond or so, seldom interrupted.
const BATCH: usize = 4000;

const SMALL: usize = 512;
const LARGE: usize = 2 << 20;

/// Most an allocation and its free may cost more, in nanoseconds.
const PAIR: f64 = 150.0;
/// The same beside 200 processes.
const PAIR_AMONG_MANY: f64 = 2000.0;
const INFO: f64 = 100.0;
const LOOK_UP: f64 = 10.0;

/// Allocation and free, among more and more live allocations.
pub fn live_allocations(bench: &Bench, report: &mut dyn FnMut(Row)) {
    for (bytes, size) in [(SMALL, "512 B"), (LARGE, "2 MiB")] {
        let container = bench.container();
        let mut duel = Duel::new(&bench.machine, &container);
        for live in [1, 1_000, 100_000, 1_000_000] {
            duel.both(&format!("live {live} {bytes}"));
            let took = duel.race(bench.rounds, BATCH, |batch| format!("pairs {batch} {bytes}"));
            report(Row::timed(format!("alloc+free {size}, {live} live"), Unit::Nanoseconds, PAIR, took));
            let took = duel.race(bench.rounds, BATCH, |batch| format!("swaps {batch} {bytes}"));
            let what = format!("free at random + alloc {size}, {live} live");
            report(Row::timed(what, Unit::Nanoseconds, None, took));
        }
    }
}

/// Allocation and free of what is too small to be lazy, where large allocations are: they should cost what they cost
/// elsewhere.
pub fn below_lazy_from(bench: &Bench, report: &mut dyn FnMut(Row)) {
    for growth in ["native", "lazy"] {
        let container = Container::new(&format!("limit = \"4TiB\"\ngrowth = \"{growth}\"\n"));
        let mut duel = Duel::new(&bench.machine, &container);
        for (live, what) in [(SMALL, ""), (256 << 20, ", one of 256 MiB live")] {
            duel.both(&format!("live 1 {live}"));
            let took = duel.race(bench.rounds, BATCH, |batch| format!("pairs {batch} {LARGE}"));
            let what = format!("alloc+free 2 MiB, growth = {growth}{what}");
            report(Row::timed(what, Unit::Nanoseconds, PAIR, took));
        }
    }
}

/// Allocation and free, among more and more processes of the container.
pub fn processes(bench: &Bench, report: &mut dyn FnMut(Row)) {
    let container = bench.container();
    let run = || program().on(&bench.machine).within(&container);
    for (manner, active) in [("idle", false), ("active", true)] {
        let mut neighbours = Vec::new();
        let mut duel = Duel::new(&bench.machine, &container);
        for count in [1, 8, 64, 200] {
            neighbours.resize_with(count - 1, || neighbour(&run(), active));
            let took = duel.race(bench.rounds, BATCH, |batch| format!("pairs {batch} {SMALL}"));
            let target = if count > 64 { PAIR_AMONG_MANY } else { PAIR };
            let what = format!("alloc+free, {count} processes ({manner})");
            report(Row::timed(what, Unit::Nanoseconds, target, took));
        }
    }
}

/// A process of the container that holds something; an active one also allocates and frees 10 times a second.
fn neighbour(run: &Run, active: bool) -> Meter {
    let mut meter = Meter::start(run);
    meter.ask(&format!("live 4 {LARGE}"));
    if active {
        meter.ask("active 100");
    }
    meter
}

/// `cuMemGetInfo`.
pub fn memory_info(bench: &Bench, report: &mut dyn FnMut(Row)) {
    let container = bench.container();
    let mut duel = Duel::new(&bench.machine, &container);
    let took = duel.race(bench.rounds, BATCH, |batch| format!("info {batch}"));
    report(Row::timed("cuMemGetInfo", Unit::Nanoseconds, INFO, took));
    let run = program().on(&bench.machine).within(&container);
    let neighbours: Vec<Meter> = (1..64).map(|_| neighbour(&run, false)).collect();
    let took = duel.race(bench.rounds, BATCH, |batch| format!("info {batch}"));
    report(Row::timed("cuMemGetInfo, 64 processes", Unit::Nanoseconds, None, took));
    drop(neighbours);
}

/// Calls in one batch of those that read the neighbours' files.
const READING: usize = 100;

/// What costs something because other containers are on the card.
pub fn neighbours(bench: &Bench, report: &mut dyn FnMut(Row)) {
    // A pair lies within the reserve, or beyond it.
    for (reserve, within) in [("64GiB", true), ("0", false)] {
        let container = Container::new(&format!("limit = \"4TiB\"\nreserve = \"{reserve}\"\n"));
        let peers = container.state_dir().join("peers");
        std::fs::create_dir(&peers).expect("a directory");
        let mut others = Vec::new();
        for count in [1, 8] {
            others.resize_with(count, || {
                let other = Container::new("limit = \"4TiB\"\nreserve = \"1GiB\"\n");
                let meter = neighbour(&program().on(&bench.machine).within(&other), false);
                (other, meter)
            });
            for (at, (other, _)) in others.iter().enumerate() {
                let entry = peers.join(at.to_string());
                if !entry.exists() {
                    std::os::unix::fs::symlink(other.state_dir(), entry).expect("a link");
                }
            }
            let mut duel = Duel::new(&bench.machine, &container);
            duel.both(&format!("live 4 {LARGE}"));
            let (what, batch) = if within { ("within", BATCH) } else { ("beyond", READING) };
            let took = duel.race(bench.rounds, batch, |batch| format!("pairs {batch} {LARGE}"));
            let what = format!("alloc+free {what} the reserve, {count} neighbours");
            report(Row::timed(what, Unit::Nanoseconds, within.then_some(PAIR), took));
            if within {
                let took = duel.race(bench.rounds, READING, |batch| format!("info {batch}"));
                let what = format!("cuMemGetInfo, {count} neighbours");
                report(Row::timed(what, Unit::Nanoseconds, None, took));
            }
        }
    }
}

/// Allocation and free from the device's pool, for which the driver is asked what the pool holds.
pub fn pools(bench: &Bench, report: &mut dyn FnMut(Row)) {
    let container = bench.container();
    let mut duel = Duel::new(&bench.machine, &container);
    let took = duel.race(bench.rounds, BATCH, |batch| format!("pooled {batch} {SMALL}"));
    report(Row::timed("cuMemAllocAsync + cuMemFreeAsync", Unit::Nanoseconds, None, took));
}

/// `dlsym` of names that are not hooked.
pub fn foreign_look_ups(bench: &Bench, report: &mut dyn FnMut(Row)) {
    let container = bench.container();
    let mut duel = Duel::new(&bench.machine, &container);
    // Of others, of the driver, and as much like a hooked one as there is.
    for name in ["malloc", "cuLaunchKernel", "cuMemcpyDtoHAsync_v2"] {
        let took = duel.race(bench.rounds, BATCH, |batch| format!("dlsym {batch} {name}"));
        report(Row::timed(format!("dlsym of {name}"), Unit::Nanoseconds, LOOK_UP, took));
    }
}
