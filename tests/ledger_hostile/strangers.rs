//! Strangers who can read the ledger, and put read locks on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cuquota::ledger::{Snapshot, Want};

use crate::LIMIT;
use crate::ledger_support::stranger::{self, Stranger};
use crate::ledger_support::{GIB, MIB, Mount, Page, Worker, attach, within};

/// Of those who share while a stranger has locks.
const MEMBERS: u64 = 4;
/// On the page: members that have had their parts.
const STARTED: usize = 0;

/// Holds its part until it is killed.
pub fn shares(dir: &Path) {
    let (ledger, gpu) = attach(dir);
    ledger.reserve(gpu, Want::exactly(LIMIT / MEMBERS), LIMIT).expect("its part");
    Page::of(dir.parent().expect("a parent")).number(STARTED).fetch_add(1, Ordering::SeqCst);
    loop {
        ledger.housekeeping();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!((ledger.own_used(gpu), ledger.sharing()), (LIMIT / MEMBERS, Ok(())));
    }
}

/// A container's state, and beside it a page of numbers that no stranger finds.
fn with_state() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let state = dir.path().join("state");
    fs::create_dir(&state).expect("a directory");
    drop(attach(&state));
    (dir, state)
}

/// Starts members one after the other or all at once; all have their parts when this returns.
#[track_caller]
fn members(dir: &Path, state: &Path, count: u64) -> Vec<Worker> {
    let page = Page::of(dir);
    let before = page.number(STARTED).load(Ordering::SeqCst);
    let started = (0..count).map(|_| Worker::start("shares", state)).collect();
    let all = || page.number(STARTED).load(Ordering::SeqCst) == before + count;
    within(Duration::from_secs(10), all).expect("all share");
    started
}

#[test]
fn a_stranger_that_locks_all_for_reading_keeps_nobody_from_sharing_and_lets_no_dead_seem_alive() {
    // Before anybody comes, when half of them are there, and without end in pieces.
    for (role, early) in
        [(stranger::LOCKS_ALL, true), (stranger::LOCKS_ALL, false), (stranger::LOCKS_PIECES, true)]
    {
        let (dir, state) = with_state();
        let first = early.then(|| Stranger::start(role, &state));
        let mut members_of_it = members(dir.path(), &state, MEMBERS / 2);
        let _stranger = first.unwrap_or_else(|| Stranger::start(role, &state));
        members_of_it.extend(members(dir.path(), &state, MEMBERS / 2));
        let (ledger, gpu) = attach(&state);
        for round in 0..6 {
            let since = Instant::now();
            let _ = ledger.reserve(gpu, Want::exactly(MIB), LIMIT).expect_err("all have their parts");
            assert!(since.elapsed() < Duration::from_millis(500), "{role}: {:?}", since.elapsed());
            // Each is counted, and once.
            assert_eq!(ledger.used(gpu), LIMIT, "{role}, round {round}");
            let seen = Snapshot::read(&state.join("ledger")).expect("readable");
            let living: Vec<_> = seen.processes.iter().filter(|process| process.alive).collect();
            assert_eq!((living.len() as u64, seen.gpus[0].used), (MEMBERS + 1, LIMIT), "{role}: {seen:?}");
            let oldest = members_of_it.remove(0);
            drop(oldest);
            let part = Want::exactly(LIMIT / MEMBERS);
            within(Duration::from_secs(1), || ledger.reserve(gpu, part, LIMIT).is_ok()).unwrap_or_else(
                || panic!("{role}: the dead holds on: {:?}", Snapshot::read(&state.join("ledger"))),
            );
            let _ = ledger.reserve(gpu, Want::exactly(MIB), LIMIT).expect_err("only that");
            ledger.give_back(gpu, LIMIT / MEMBERS);
            members_of_it.extend(members(dir.path(), &state, 1));
        }
        assert_eq!(ledger.newly_lost(), None, "{role}");
        drop(members_of_it);
        within(Duration::from_secs(1), || ledger.reserve(gpu, Want::exactly(LIMIT), LIMIT).is_ok())
            .expect("all went");
        // What showed that they lived does not stay; the last to go is cleared by whoever sweeps next.
        let files = fs::read_dir(&state).expect("readable").count();
        assert!(files <= 3, "{files} files are left");
    }
}

#[test]
fn on_an_overlay_a_stranger_with_read_locks_keeps_nobody_from_sharing_either() {
    let Some(overlay) = Mount::overlay() else { return };
    drop(attach(&overlay.path()));
    let _stranger = Stranger::start(stranger::LOCKS_ALL, &overlay.path());
    let ((a, in_a), (b, in_b)) = (attach(&overlay.path()), attach(&overlay.path()));
    a.reserve(in_a, Want::exactly(3 * GIB), LIMIT).expect("fits");
    let _ = b.reserve(in_b, Want::exactly(2 * GIB), LIMIT).expect_err("the other has 3 GiB");
    drop(a);
    b.reserve(in_b, Want::exactly(2 * GIB), LIMIT).expect("the other has gone");
}
