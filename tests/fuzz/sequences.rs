//! Random sequences of allocation calls in one process: after every step the charge is what the driver says that it holds.
//!
//! `CUQUOTA_FUZZ_THREADS` says how many threads play at once; without it, one and four by turns; and by turns plain memory is
//! backed on touch. Threads do by turns a bit of everything or mostly what is about pools, contexts, physical memory, graphs,
//! captures or what belongs to contexts, and the driver's calls take a while now and then. `CUQUOTA_FUZZ_FOCUS` names one of those, from 1 on. What several
//! threads find is a race, and the seed alone does not bring it back. Other seeds that find something belong into
//! `tests/fuzz/corpus.txt`, which every run goes through first.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::common::programs::c_program;
use crate::common::{Container, Machine, Run};
use crate::{number, seeds};

const ALONE: &str = "6GiB,context=16MiB,module=6MiB,handles=anew";
const RACING: &str = "6GiB,context=16MiB,handles=anew,jitter=300us";

/// A sequence: its seed, steps and threads, what most of it is about (0 for everything), and whether plain memory is backed on
/// touch.
#[derive(Clone, Copy)]
struct Sequence {
    seed: u64,
    steps: u64,
    threads: u64,
    focus: u64,
    lazy: bool,
}

impl Sequence {
    /// What is wrong after it, if anything.
    fn wrong(self) -> Option<String> {
        let Sequence { seed, steps, threads, focus, lazy } = self;
        // A small context and a card that is larger than the budget: the budget refuses, seldom the card.
        let growth = if lazy { "growth = \"lazy\"\nlazy_from = \"1MiB\"\n" } else { "" };
        let (container, machine) = (
            Container::new(&format!("limit = \"4GiB\"\n{growth}")),
            Machine::new(if threads > 1 { RACING } else { ALONE }),
        );
        let arguments = [seed, steps, threads, focus].map(|number| number.to_string());
        let mut run = Run::new(c_program("fuzz")).on(&machine).within(&container).args(arguments);
        if lazy {
            run = run.env("FUZZ_LAZY", "1");
        }
        let said = run.limit(Duration::from_secs(300)).finish();
        let why =
            format!("seed {seed}, {steps} steps, {threads} threads, focus {focus}, lazy {lazy}: {said}");
        (!said.status.success() || !said.stderr.is_empty()).then_some(why)
    }
}

#[test]
fn sequences_that_once_found_something_find_nothing() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus.txt");
    let corpus = fs::read_to_string(corpus).expect("the corpus");
    for line in corpus.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let lazy = words.pop_if(|word| *word == "lazy").is_some();
        let numbers: Vec<u64> = words.iter().map(|word| word.parse().expect("a number")).collect();
        let (seed, steps, threads, focus) = match numbers[..] {
            [seed, steps, threads] => (seed, steps, threads, 0),
            [seed, steps, threads, focus] => (seed, steps, threads, focus),
            _ => panic!("not three or four numbers: {line}"),
        };
        assert_eq!(Sequence { seed, steps, threads, focus, lazy }.wrong(), None);
    }
}

#[test]
fn after_every_step_the_charge_is_what_the_process_holds() {
    let (threads, focus) = (number("CUQUOTA_FUZZ_THREADS"), number("CUQUOTA_FUZZ_FOCUS"));
    for seed in seeds() {
        let by_turns = if seed.is_multiple_of(2) { 1 } else { 4 };
        let (threads, lazy) = (threads.unwrap_or(by_turns), seed % 4 > 1);
        let focus = focus.unwrap_or(if threads > 1 { seed / 4 % 7 } else { 0 });
        let found = Sequence { seed, steps: 1000, threads, focus, lazy }.wrong();
        assert_eq!(found, None, "add the seed to tests/fuzz/corpus.txt");
    }
}
