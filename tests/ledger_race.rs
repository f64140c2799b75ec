//! Many processes and threads ask for the same memory at the same moment.

mod common;
mod ledger_support;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cuquota::ledger::Want;
use ledger_support::{GIB, MIB, Page, Worker, attach};

workers!(run);

const PROCESSES: u32 = 4;
const THREADS: u32 = 8;
const ROUNDS: u64 = 10_000;

/// Numbers on the page.
const GRANTED: usize = 0;
const NONE: usize = 8;
const SEVERAL: usize = 16;
const HELD: usize = 24;
const MET: usize = 48;
const REFUSED: usize = 32;
const OVER: usize = 40;

fn run(role: &str, dir: &Path) {
    match role {
        "one-fits" => each_thread(dir, one_fits),
        "duel" => duel(dir),
        "all-fit" => each_thread(dir, all_fit),
        "churn" => each_thread(dir, churn),
        "start" => start(dir),
        other => panic!("no such role: {other}"),
    }
}

type Body = fn(&cuquota::ledger::Ledger, cuquota::ledger::GpuIndex, &Page, u64);

fn each_thread(dir: &Path, body: Body) {
    let (ledger, gpu) = attach(dir);
    let page = Page::of(dir);
    std::thread::scope(|scope| {
        for seed in 1..=u64::from(THREADS) {
            let (ledger, page) = (&ledger, &page);
            scope.spawn(move || body(ledger, gpu, page, seed * u64::from(std::process::id())));
        }
    });
    assert_eq!(ledger.own_used(gpu), 0);
}

/// Runs the workers in a ledger that has had so many members before: the more slots there are to look at, the longer is the
/// time between publishing and having checked, and the more often do requests meet in it.
fn run_all(role: &str, processes: u32, members_before: usize) -> (tempfile::TempDir, Page) {
    let dir = tempfile::tempdir().expect("temporary directory");
    drop((0..members_before).map(|_| attach(dir.path())).collect::<Vec<_>>());
    let page = Page::of(dir.path());
    let workers: Vec<Worker> = (0..processes).map(|_| Worker::start(role, dir.path())).collect();
    workers.into_iter().for_each(Worker::succeeded);
    (dir, page)
}

fn read(page: &Page, at: usize) -> u64 {
    page.number(at).load(Ordering::SeqCst)
}

/// A little lower every time, so that nobody keeps a lease from the round before and all have to ask.
fn limit(round: u64) -> u64 {
    GIB - round * 4096
}

fn one_fits(ledger: &cuquota::ledger::Ledger, gpu: cuquota::ledger::GpuIndex, page: &Page, _: u64) {
    let barrier = page.barrier(PROCESSES * THREADS);
    let granted = page.number(GRANTED);
    for round in 0..ROUNDS {
        barrier.wait();
        let won = ledger.reserve(gpu, Want::exactly(600 * MIB), limit(round)).is_ok();
        if won {
            granted.fetch_add(1, Ordering::SeqCst);
        }
        if barrier.wait() {
            let count = |at: usize| page.number(at).fetch_add(1, Ordering::SeqCst);
            match granted.swap(0, Ordering::SeqCst) {
                0 => drop(count(NONE)),
                1 => {}
                _ => drop(count(SEVERAL)),
            }
        }
        if won {
            ledger.give_back(gpu, 600 * MIB);
        }
    }
}

/// C21: with a check and an add that are two steps, two of them succeed now and then; with a lock-free retry, none.
#[test]
fn of_32_threads_in_4_processes_exactly_one_gets_what_only_fits_once() {
    let since = Instant::now();
    let (dir, page) = run_all("one-fits", PROCESSES, 0);
    assert_eq!((read(&page, SEVERAL), read(&page, NONE)), (0, 0), "rounds with several, with none");
    let (ledger, gpu) = attach(dir.path());
    assert_eq!(ledger.used(gpu), 0);
    assert_eq!(ledger.refusals(gpu), ROUNDS * u64::from(PROCESSES * THREADS - 1));
    assert!(since.elapsed() < Duration::from_secs(170), "{:?}", since.elapsed());
}

/// Meets the other without sleeping, which is the only way to be there at the same moment.
fn meet(page: &Page, round: u64) {
    page.number(MET).fetch_add(1, Ordering::SeqCst);
    let since = Instant::now();
    let mut spins = 0u32;
    while page.number(MET).load(Ordering::SeqCst) < 2 * round {
        std::hint::spin_loop();
        spins += 1;
        if spins.is_multiple_of(10_000) {
            std::thread::yield_now();
            assert!(since.elapsed() < Duration::from_secs(60), "the other does not come");
        }
    }
}

fn duel(dir: &Path) {
    let (ledger, gpu) = attach(dir);
    let page = Page::of(dir);
    for round in 1..=ROUNDS {
        meet(&page, 3 * round - 2);
        let won = ledger.reserve(gpu, Want::exactly(600 * MIB), limit(round)).is_ok();
        page.number(GRANTED).fetch_add(u64::from(won), Ordering::SeqCst);
        meet(&page, 3 * round - 1);
        match page.number(GRANTED).load(Ordering::SeqCst) {
            n if n < round => drop(page.number(NONE).fetch_add(1, Ordering::SeqCst)),
            n if n > round => drop(page.number(SEVERAL).fetch_add(1, Ordering::SeqCst)),
            _ => {}
        }
        if won {
            ledger.give_back(gpu, 600 * MIB);
        }
        meet(&page, 3 * round);
    }
}

#[test]
fn of_two_processes_at_the_very_same_moment_exactly_one_gets_what_only_fits_once() {
    let (_dir, page) = run_all("duel", 2, 1000);
    assert_eq!((read(&page, SEVERAL), read(&page, NONE)), (0, 0), "rounds with several, with none");
    assert_eq!(read(&page, GRANTED), ROUNDS);
}

fn all_fit(ledger: &cuquota::ledger::Ledger, gpu: cuquota::ledger::GpuIndex, page: &Page, _: u64) {
    let barrier = page.barrier(PROCESSES * THREADS);
    let share = GIB / u64::from(PROCESSES * THREADS);
    for _ in 0..ROUNDS / 10 {
        barrier.wait();
        if ledger.reserve(gpu, Want::exactly(share), GIB).is_ok() {
            ledger.give_back(gpu, share);
        } else {
            page.number(REFUSED).fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[test]
fn requests_that_all_fit_together_are_all_granted() {
    let (dir, page) = run_all("all-fit", PROCESSES, 0);
    assert_eq!(read(&page, REFUSED), 0);
    let (ledger, gpu) = attach(dir.path());
    assert_eq!((ledger.used(gpu), ledger.refusals(gpu)), (0, 0));
}

fn churn(ledger: &cuquota::ledger::Ledger, gpu: cuquota::ledger::GpuIndex, page: &Page, mut seed: u64) {
    const LIMIT: u64 = 20 * MIB;
    let held: &AtomicU64 = page.number(HELD);
    for _ in 0..10_000 {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let bytes = (1 + (seed >> 33) % 768) * 4096;
        if ledger.reserve(gpu, Want::exactly(bytes), LIMIT).is_ok() {
            if held.fetch_add(bytes, Ordering::SeqCst) + bytes > LIMIT {
                page.number(OVER).fetch_add(1, Ordering::SeqCst);
            }
            if seed & 63 == 0 {
                std::thread::sleep(Duration::from_micros(seed >> 20 & 127));
            }
            held.fetch_sub(bytes, Ordering::SeqCst);
            ledger.give_back(gpu, bytes);
        }
    }
}

#[test]
fn no_more_than_the_limit_is_held_at_any_instant_and_nothing_is_left_over() {
    let (dir, page) = run_all("churn", PROCESSES, 0);
    assert_eq!((read(&page, OVER), read(&page, HELD)), (0, 0));
    let (ledger, gpu) = attach(dir.path());
    assert_eq!(ledger.used(gpu), 0);
    ledger.reserve(gpu, Want::exactly(20 * MIB), 20 * MIB).expect("all of it is free again");
}

fn start(dir: &Path) {
    let page = Page::of(dir);
    page.barrier(200).wait();
    let (ledger, gpu) = attach(dir);
    ledger.reserve(gpu, Want::exactly(MIB), 200 * MIB).expect("everybody's share is there");
    page.number(HELD).fetch_add(1, Ordering::SeqCst);
    page.barrier(200).wait();
}

/// C40: a node-wide lock with sleeps took a minute.
#[test]
fn two_hundred_processes_that_start_at_once_all_join() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let page = Page::of(dir.path());
    let workers: Vec<Worker> = (0..200).map(|_| Worker::start("start", dir.path())).collect();
    workers.into_iter().for_each(Worker::succeeded);
    assert_eq!(read(&page, HELD), 200);
    let (ledger, gpu) = attach(dir.path());
    assert_eq!(ledger.peak(gpu), 200 * MIB);
    ledger.reserve(gpu, Want::exactly(200 * MIB), 200 * MIB).expect("they have all gone");
}
