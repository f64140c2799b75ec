//! Random lives of processes that share memory, and are killed now and then: in between, the container is charged what the card
//! has lost.

use std::time::Duration;

use crate::common::programs::c_program;
use crate::common::random::Random;
use crate::common::{Container, Machine, Run};
use crate::seeds;

/// Processes beside the one that asks.
const PROCESSES: u64 = 4;
/// Looks at what is charged, and what is done before each.
const LOOKS: u64 = 5;
const BETWEEN_LOOKS: u64 = 24;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    /// Another's plain memory.
    Opened,
    /// Physical memory, made or imported.
    Handle,
    /// A mapping of that, whose handle may be released.
    Mapping,
    /// A pool that was made here, and one of another.
    Pool,
    ImportedPool,
    /// Memory of a pool that was made here, and of another's.
    Pooled,
    Pointed,
}

struct Thing {
    process: u64,
    kind: Kind,
    name: String,
    small: bool,
    /// Of a pool, and of what is in one: the name of the one that was made.
    pool: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kin {
    Address,
    Descriptor,
    PoolDescriptor,
    Pointer,
}

struct Token {
    from: u64,
    kin: Kin,
    name: String,
    small: bool,
    pool: String,
}

/// Whoever makes the commands up, and what should be there by them.
#[derive(Default)]
struct Author {
    random: Random,
    things: Vec<Thing>,
    tokens: Vec<Token>,
    named: u64,
    commands: Vec<String>,
}

impl Author {
    fn below(&mut self, n: u64) -> u64 {
        self.random.below(n)
    }

    /// One of those that `fit`, by its place.
    fn any<T>(random: &mut Random, all: &[T], fit: impl Fn(&T) -> bool) -> Option<usize> {
        let places: Vec<usize> = (0..all.len()).filter(|at| fit(&all[*at])).collect();
        (!places.is_empty()).then(|| places[random.below(places.len() as u64) as usize])
    }

    fn name(&mut self) -> String {
        self.named += 1;
        format!("n{}", self.named)
    }

    fn one(&mut self, process: u64, kind: Kind) -> Option<usize> {
        let fit = |thing: &Thing| thing.process == process && thing.kind == kind;
        Author::any(&mut self.random, &self.things, fit)
    }

    fn token(&mut self, kin: Kin, not_from: u64) -> Option<usize> {
        let fit = |token: &Token| token.kin == kin && token.from != not_from;
        Author::any(&mut self.random, &self.tokens, fit)
    }

    fn say(&mut self, process: u64, what: &str) {
        self.commands.push(format!("{process} {what}"));
    }

    fn keep(&mut self, process: u64, kind: Kind, name: &str, small: bool, pool: &str) {
        self.things.push(Thing { process, kind, name: name.into(), small, pool: pool.into() });
    }

    /// A token for the last thing or another, for others to have it by.
    fn give_out(&mut self, verb: &str, at: usize, kin: Kin) {
        let token = self.name().to_uppercase();
        let Thing { process, ref name, small, ref pool, .. } = self.things[at];
        self.commands.push(format!("{process} {verb} {name} {token}"));
        self.tokens.push(Token { from: process, kin, name: token, small, pool: pool.clone() });
    }

    fn end(&mut self, process: u64, verb: &str, kind: Kind) {
        if let Some(at) = self.one(process, kind) {
            let thing = self.things.swap_remove(at);
            self.say(process, &format!("{verb} {}", thing.name));
        }
    }

    /// Makes memory, half of it the smallest, in `pool` if that has a name.
    fn make(&mut self, process: u64, verb: &str, kind: Kind, pool: &str) {
        let (name, small) = (self.name(), self.below(2) == 0);
        let size = if small { 2 } else { 2 * (2 + self.below(60)) };
        let within = if pool.is_empty() { String::new() } else { format!("{pool} ") };
        self.say(process, &format!("{verb} {name} {within}{size}MiB"));
        self.keep(process, kind, &name, small, pool);
    }

    /// One thing more.
    fn step(&mut self) {
        let process = self.below(PROCESSES);
        match self.below(36) {
            0..12 => self.plain(process),
            12..24 => self.physical(process),
            24..35 => self.pool(process),
            _ => self.end_of_something(process),
        }
    }

    fn plain(&mut self, process: u64) {
        match self.below(10) {
            0 | 1 => self.make(process, "alloc", Kind::Plain, ""),
            2 | 3 => self.end(process, "free", Kind::Plain),
            4 | 5 => {
                if let Some(at) = self.one(process, Kind::Plain) {
                    self.give_out("get", at, Kin::Address);
                }
            }
            6 | 7 => self.end(process, "close", Kind::Opened),
            _ => {
                if let Some(at) = self.token(Kin::Address, process) {
                    let (name, token) = (self.name(), self.tokens[at].name.clone());
                    self.say(process, &format!("open {name} {token}"));
                    self.keep(process, Kind::Opened, &name, false, "");
                }
            }
        }
    }

    fn physical(&mut self, process: u64) {
        match self.below(12) {
            0 | 1 => self.make(process, "create", Kind::Handle, ""),
            2..5 => self.end(process, "release", Kind::Handle),
            5 => {
                if let Some(at) = self.one(process, Kind::Handle) {
                    self.give_out("export", at, Kin::Descriptor);
                }
            }
            6..8 => {
                if let Some(at) = self.token(Kin::Descriptor, PROCESSES) {
                    let (name, token) = (self.name(), self.tokens[at].name.clone());
                    self.say(process, &format!("import {name} {token}"));
                    self.keep(process, Kind::Handle, &name, self.tokens[at].small, "");
                }
            }
            8 | 9 => {
                let Some(at) = self.one(process, Kind::Handle).filter(|at| self.things[*at].small) else {
                    return;
                };
                let name = self.things[at].name.clone();
                if !self.things.iter().any(|thing| thing.kind == Kind::Mapping && thing.name == name) {
                    self.say(process, &format!("map {name}"));
                    self.keep(process, Kind::Mapping, &name, true, "");
                }
            }
            _ => self.end(process, "unmap", Kind::Mapping),
        }
    }

    fn pool(&mut self, process: u64) {
        match self.below(11) {
            0 => {
                let name = self.name();
                self.say(process, &format!("pool {name}"));
                self.keep(process, Kind::Pool, &name, false, &name);
                self.give_out("export-pool", self.things.len() - 1, Kin::PoolDescriptor);
            }
            1..4 => {
                if let Some(at) = self.one(process, Kind::Pool) {
                    let pool = self.things[at].name.clone();
                    self.make(process, "take", Kind::Pooled, &pool);
                    self.give_out("point", self.things.len() - 1, Kin::Pointer);
                }
            }
            4 => {
                if let Some(at) = self.token(Kin::PoolDescriptor, process) {
                    let name = self.name();
                    let Token { name: token, pool, .. } = &self.tokens[at];
                    let (token, pool) = (token.clone(), pool.clone());
                    self.say(process, &format!("import-pool {name} {token}"));
                    self.keep(process, Kind::ImportedPool, &name, false, &pool);
                }
            }
            5..8 => {
                let Some(pool) = self.one(process, Kind::ImportedPool) else { return };
                let (pool, origin) = (self.things[pool].name.clone(), self.things[pool].pool.clone());
                if let Some(at) =
                    self.token(Kin::Pointer, process).filter(|at| self.tokens[*at].pool == origin)
                {
                    let (name, token) = (self.name(), self.tokens[at].name.clone());
                    self.say(process, &format!("import-point {name} {pool} {token}"));
                    self.keep(process, Kind::Pointed, &name, false, &origin);
                }
            }
            8 | 9 => self.end(process, "free", Kind::Pooled),
            _ => self.end(process, "free", Kind::Pointed),
        }
    }

    /// A process ends, in one way or the other, or the one that hands out lets a descriptor go.
    fn end_of_something(&mut self, process: u64) {
        if self.below(3) > 0 {
            let keeps = |token: &Token| matches!(token.kin, Kin::Descriptor | Kin::PoolDescriptor);
            if let Some(at) = self.tokens.iter().position(keeps) {
                let token = self.tokens.swap_remove(at);
                self.commands.push(format!("drop {}", token.name));
            }
            return;
        }
        let verb = if self.below(2) == 0 { "kill" } else { "exit" };
        self.say(process, verb);
        self.things.retain(|thing| thing.process != process);
        // What others hold of it can still be opened; most of the rest would only be refused.
        if self.below(2) == 0 {
            let goes =
                |token: &Token| token.from == process && matches!(token.kin, Kin::Address | Kin::Pointer);
            self.tokens.retain(|token| !goes(token));
        }
    }
}

#[test]
fn what_processes_share_is_charged_as_long_as_one_of_them_holds_it() {
    for seed in seeds() {
        assert_eq!(wrong(seed), None);
    }
}

/// What is wrong after the lives that a seed gives, if anything.
fn wrong(seed: u64) -> Option<String> {
    let mut author = Author { random: Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)), ..Author::default() };
    for _ in 0..LOOKS {
        (0..BETWEEN_LOOKS).for_each(|_| author.step());
        author.commands.push("used".into());
    }
    let (container, machine) =
        (Container::new("limit = \"4GiB\"\n"), Machine::new("16GiB,context=16MiB,handles=anew,jitter=300us"));
    let run = Run::new(c_program("holders")).on(&machine).within(&container).args(author.commands);
    let said = run.limit(Duration::from_secs(300)).finish();
    let is_right = |line: &&str| {
        let mut figures = line.split(' ').filter_map(|word| word.strip_suffix("MiB"));
        line.starts_with("used ") && figures.next() == figures.next()
    };
    let right = said.stdout.lines().filter(is_right).count() as u64;
    (right != LOOKS || !said.status.success() || !said.stderr.is_empty())
        .then(|| format!("seed {seed}: {said}"))
}
