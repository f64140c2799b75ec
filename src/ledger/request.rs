//! A request that its process's lease does not cover.

use std::time::{Duration, Instant};

use super::protocol::{Attempt, Referee, Slack, Total, arbitrate, attempt};
use super::region::{Column, Region};
use crate::sys::clock::nap;
use crate::sys::file::File;
use crate::sys::lock;

/// The most that is leased in advance: 64 MiB.
const MOST_SLACK: u32 = 64 << 8;
/// The part of what is left that is leased in advance.
const SLACK_ONE_IN: u32 = 16;
/// How long a request waits for its turn at the arbiter. Only somebody stopped there makes it that long.
const FOR_THE_ARBITER: Duration = Duration::from_millis(400);
/// How long it defers to an arbiter at work before it tries its luck without.
const OUT_OF_COURTESY: Duration = Duration::from_millis(5);
/// How long the arbiter waits for requests that are being tried elsewhere. Only somebody stopped there makes it that long.
const FOR_OTHERS: Duration = Duration::from_millis(100);

/// How often in a row nobody is found at the arbiter whose lock cannot be had.
const MOST_READERS: u32 = 4;
/// How often the arbiter looks for the dead while it waits.
const BETWEEN_SWEEPS: Duration = Duration::from_millis(5);

/// How much all may hold, in units.
#[derive(Clone, Copy)]
pub(super) struct Cap {
    /// With this request.
    pub request: u64,
    /// With what is leased in advance as well.
    pub lease: u64,
}

impl Region {
    /// Asks for `n` units; the sums that the request was admitted on, or `None` where it does not fit.
    pub fn request(&self, board: &Column<'_>, n: u32, cap: Cap) -> Option<Total> {
        let own = self.own_slot();
        let slack = Slack { at_most: MOST_SLACK, one_in: SLACK_ONE_IN, cap: cap.lease };
        match attempt(board, own, n, slack, cap.request, true) {
            Attempt::Granted(total) => return Some(total),
            Attempt::Arbitrating => {
                if let Some(decision) = self.in_turn(board, n, cap, OUT_OF_COURTESY) {
                    return decision;
                }
                // Whoever is at the arbiter has been stopped there. There may be plenty for both.
                if let Attempt::Granted(total) = attempt(board, own, n, Slack::NONE, cap.request, false) {
                    return Some(total);
                }
            }
            Attempt::Crowded => {}
        }
        match self.in_turn(board, n, cap, FOR_THE_ARBITER) {
            Some(decision) => decision,
            None => {
                let file = self.reopen();
                let mut bench = Bench::new(self, board, file.as_ref());
                arbitrate(board, own, n, cap.request, false, &mut bench)
            }
        }
    }

    /// Has the request decided at the arbiter; `None` if that could not be had in time.
    fn in_turn(&self, board: &Column<'_>, n: u32, cap: Cap, patience: Duration) -> Option<Option<Total>> {
        let file = self.reopen()?;
        let since = Instant::now();
        let mut pause = Duration::from_micros(20);
        let mut readers = 0;
        while !lock::try_lock(&file, board.arbiter()).ok()? {
            // Nobody of the container is there. A neighbour, who can only read, is not waited for.
            readers = if lock::is_locked(&file, board.arbiter()).ok()? { 0 } else { readers + 1 };
            if readers == MOST_READERS {
                return None;
            }
            if since.elapsed() > patience {
                return None;
            }
            nap(pause);
            pause = (pause * 3 / 2).min(Duration::from_millis(2));
        }
        let mut bench = Bench::new(self, board, Some(&file));
        let decision = arbitrate(board, self.own_slot(), n, cap.request, true, &mut bench);
        // A child forked meanwhile may have the description too.
        let _ = lock::unlock(&file, board.arbiter());
        Some(decision)
    }
}

/// Where the arbiter sits.
///
/// Asking the kernel for every owner takes a while, and those who die meanwhile are found a moment later.
struct Bench<'a> {
    region: &'a Region,
    board: &'a Column<'a>,
    file: Option<&'a File>,
    since: Instant,
    pause: Duration,
    swept: Option<Instant>,
}

impl<'a> Bench<'a> {
    fn new(region: &'a Region, board: &'a Column<'a>, file: Option<&'a File>) -> Bench<'a> {
        Bench { region, board, file, since: Instant::now(), pause: Duration::ZERO, swept: None }
    }
}

impl Referee for Bench<'_> {
    fn sweep(&mut self) -> bool {
        if self.swept.is_some_and(|at| at.elapsed() < BETWEEN_SWEEPS) {
            return false;
        }
        self.swept = Some(Instant::now());
        self.file.is_some_and(|file| self.region.sweep(file, |slot| self.board.holds(slot)))
    }

    fn pause(&mut self) -> bool {
        if self.pause.is_zero() {
            std::thread::yield_now();
        } else {
            nap(self.pause);
        }
        self.pause = (self.pause * 2).clamp(Duration::from_micros(20), Duration::from_millis(2));
        self.since.elapsed() < FOR_OTHERS
    }
}
