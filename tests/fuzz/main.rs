//! Random programs: what is charged is what the driver says that they hold.
//!
//! `CUQUOTA_FUZZ_SECONDS` says for how long each of the tests tries new seeds (a few seconds without it, an hour with 3600). The
//! seeds follow `CUQUOTA_FUZZ_SEED`, the same every time without it, so that a test that passed passes again; whoever wants to
//! find something names another. A seed that finds something is printed.

#[path = "../common/mod.rs"]
mod common;
mod holders;
mod sequences;

use std::time::{Duration, Instant};

/// The seeds to try, until the time is over.
fn seeds() -> impl Iterator<Item = u64> {
    let time = Duration::from_secs(number("CUQUOTA_FUZZ_SECONDS").unwrap_or(3));
    let (start, first) = (Instant::now(), number("CUQUOTA_FUZZ_SEED").unwrap_or(1 << 33));
    (first + 1..).take_while(move |_| start.elapsed() < time)
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}; want a number")))
}
