//! Eight containers of random behaviour on one card. `CUQUOTA_SOAK_SECONDS` says for how long.

use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use cuquota::ledger::Snapshot;

use crate::common::programs::c_program;
use crate::common::random::Random;
use crate::common::{GIB, MIB, Run};
use crate::needs_the_simulator;
use crate::node::{Container, Layout, Node, Program};

const CARD: u64 = 16 * GIB;
const CONTEXT: u64 = 64 * MIB;
/// How much a context may be charged beyond what it takes before its cost is known for sure.
const UNSURE: u64 = 512 * MIB;

/// What the containers hold for sure: added to after a grant, taken from before a free. So it is never more than the truth.
struct Truth(Mutex<Vec<u64>>);

impl Truth {
    /// Checks the promise at this moment: what all hold or are promised is no more than there is.
    fn change(&self, at: usize, change: impl FnOnce(&mut u64)) {
        let mut held = self.0.lock().expect("no panic");
        change(&mut held[at]);
        let promised: u64 = held.iter().enumerate().map(|(at, held)| (*held).max(reserve(at))).sum();
        assert!(promised <= CARD, "{promised} of {CARD} are promised or held: {held:?}");
    }
}

/// From nothing to 3 GiB: 12 GiB together.
fn reserve(container: usize) -> u64 {
    [0, 512 * MIB, GIB, 1536 * MIB, 1536 * MIB, 2 * GIB, 2560 * MIB, 3 * GIB][container]
}

#[derive(Default)]
struct Tally {
    granted: u64,
    refused: u64,
    within_reserve: u64,
    kills: u64,
}

/// One program after another in a container, until the time is over. Alone in it, its reserve can be reckoned with.
fn behave(container: &Container, at: usize, alone: bool, truth: &Truth, until: Instant, seed: u64) -> Tally {
    let (mut random, mut tally) = (Random(seed), Tally::default());
    while Instant::now() < until {
        let Some(mut program) = container.try_start() else {
            // Only within the reserve there is always room for one.
            assert!(!alone || reserve(at) < CONTEXT + UNSURE, "{at}: no context");
            tally.refused += 1;
            continue;
        };
        truth.change(at, |held| *held += CONTEXT);
        let mut pieces: Vec<u64> = Vec::new();
        for _ in 0..20 + random.below(400) {
            if Instant::now() >= until {
                break;
            }
            if random.below(5) < 2 && !pieces.is_empty() {
                let bytes = pieces.pop().expect("one");
                truth.change(at, |held| *held -= bytes);
                assert_eq!(program.give_back(), bytes);
                continue;
            }
            let blocks = if random.below(4) == 0 { 1500 } else { 120 };
            let bytes = 2 * MIB * (1 + random.below(blocks));
            let due = pieces.iter().sum::<u64>() + CONTEXT.max(UNSURE) + bytes <= reserve(at) && alone;
            if program.take(bytes) {
                pieces.push(bytes);
                truth.change(at, |held| *held += bytes);
                tally.granted += 1;
            } else {
                let held = pieces.iter().sum::<u64>();
                assert!(!due, "{at}: {bytes} refused with {held} of {} held (seed {seed})", reserve(at));
                tally.refused += 1;
            }
            tally.within_reserve += u64::from(due);
        }
        end(container, at, alone, truth, program, pieces, &mut tally, random.below(3) == 0);
    }
    tally
}

/// A program ends by itself, having given everything back, or is killed in whatever it does.
#[allow(clippy::too_many_arguments)]
fn end(
    container: &Container,
    at: usize,
    alone: bool,
    truth: &Truth,
    mut program: Program,
    pieces: Vec<u64>,
    tally: &mut Tally,
    kill: bool,
) {
    truth.change(at, |held| *held -= pieces.iter().sum::<u64>() + CONTEXT);
    if kill {
        // Also in the middle of a request.
        program.begin_take(512 * MIB);
        program.kill();
        tally.kills += 1;
        return;
    }
    for bytes in pieces.into_iter().rev() {
        assert_eq!(program.give_back(), bytes);
    }
    if alone {
        let used = used_in(&container.ledger());
        assert!((1..=CONTEXT + UNSURE).contains(&used), "{at}: {used} in use after all was given back");
    }
}

fn used_in(ledger: &Path) -> u64 {
    Snapshot::read(ledger).expect("a ledger").gpus.iter().map(|gpu| gpu.used).sum()
}

#[test]
fn eight_containers_of_random_behaviour() {
    if needs_the_simulator() {
        return;
    }
    let seconds = std::env::var("CUQUOTA_SOAK_SECONDS").map_or(12, |text| text.parse().expect("seconds"));
    let node = Node::new("16GiB,context=64MiB", Layout::Mounted);
    let containers: Vec<Container> = (0..8)
        .map(|at| {
            let wait = if at % 3 == 0 { "wait = \"20ms\"" } else { "" };
            let quota = format!("limit = \"100%\"\nreserve = {}\n[when_full]\n{wait}\n", reserve(at));
            node.container(&format!("c{at}"), &quota)
        })
        .collect();
    let truth = Truth(Mutex::new(vec![0; 8]));
    let until = Instant::now() + Duration::from_secs(seconds);
    let tallies: Vec<Tally> = std::thread::scope(|scope| {
        // The first two containers have two processes at a time.
        let workers: Vec<_> = (0..10)
            .map(|worker| {
                let (container, truth) = (&containers[worker % 8], &truth);
                let seed = worker as u64 * 7919 + std::process::id() as u64;
                scope.spawn(move || behave(container, worker % 8, worker % 8 >= 2, truth, until, seed))
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
    });
    let sum = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>();
    let (granted, refused) = (sum(|tally| tally.granted), sum(|tally| tally.refused));
    println!(
        "{granted} granted, {refused} refused, {} within reserve, {} killed",
        sum(|tally| tally.within_reserve),
        sum(|tally| tally.kills)
    );
    assert!(granted > 0 && refused > 0 && sum(|tally| tally.within_reserve) > 0);
    // Every byte is back.
    for container in &containers {
        assert_eq!(used_in(&container.ledger()), 0);
    }
    let card = Run::new(c_program("harness")).on(&node.machine).args(["init", "device 0", "card"]);
    let said = card.finish().success().stdout;
    assert!(said.contains("card -> 0 0"), "{said}");
}
