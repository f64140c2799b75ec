//! Processes that are killed, stopped or forked at any instruction: nothing of theirs outlives them, nobody waits for them.

mod common;
mod ledger_support;

use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cuquota::ledger::layout::{Gpu, gpu_offset, slot_offset};
use cuquota::ledger::{GpuIndex, Ledger, Snapshot, Want};
use cuquota::sys::file::File;
use cuquota::sys::lock;
use ledger_support::{GIB, MIB, Mount, Page, Worker, attach, within};

workers!(run);

const LIMIT: u64 = 4 * GIB;
/// Numbers on the page.
const READY: usize = 0;
const GRANDCHILD: usize = 8;

fn run(role: &str, dir: &Path) {
    match role {
        "alone" => busy(dir, false),
        "with-grandchild" => busy(dir, true),
        "arbiter" => sit_at_the_arbiter(dir),
        "closes-all" => close_all(dir),
        "execs" => exec(dir),
        "no-descriptors" => no_descriptors(dir),
        other => panic!("no such role: {other}"),
    }
}

/// Allocates and frees on four threads until killed, near the limit, and forks a child that does nothing if told to.
fn busy(dir: &Path, fork: bool) {
    let (ledger, gpu) = attach(dir);
    let page = Page::of(dir);
    std::thread::scope(|scope| {
        for seed in 1..=4u64 {
            let ledger = &ledger;
            scope.spawn(move || churn(ledger, gpu, seed));
        }
        page.number(READY).store(1, Ordering::SeqCst);
        if fork {
            std::thread::sleep(Duration::from_micros(u64::from(std::process::id()) * 7919 % 4000));
            // SAFETY: the child calls nothing but `pause` and `_exit`.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: waits for a signal that kills it.
                unsafe { libc::pause() };
                // SAFETY: ends the child.
                unsafe { libc::_exit(0) };
            }
            page.number(GRANDCHILD).store(child as u64, Ordering::SeqCst);
        }
    });
}

fn churn(ledger: &Ledger, gpu: GpuIndex, mut seed: u64) {
    seed = seed.wrapping_mul(u64::from(std::process::id()));
    loop {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let bytes = (1 + (seed >> 33) % 1500) * MIB;
        ledger.housekeeping();
        if ledger.reserve(gpu, Want::exactly(bytes), LIMIT).is_ok() {
            if seed & 3 == 0 {
                std::thread::sleep(Duration::from_micros(seed >> 20 & 511));
            }
            ledger.give_back(gpu, bytes);
        }
    }
}

/// C22: 1,000 kills at random instants; in every other round a forked grandchild lives on.
#[test]
fn a_killed_process_leaves_its_budget_within_a_second() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (ledger, gpu) = attach(dir.path());
    let page = Page::of(dir.path());
    let mut slowest = Duration::ZERO;
    for round in 0..1000u64 {
        page.number(READY).store(0, Ordering::SeqCst);
        page.number(GRANDCHILD).store(0, Ordering::SeqCst);
        let with_grandchild = round % 2 == 1;
        let worker = Worker::start(if with_grandchild { "with-grandchild" } else { "alone" }, dir.path());
        within(Duration::from_secs(20), || page.number(READY).load(Ordering::SeqCst) == 1)
            .expect("it starts");
        if with_grandchild {
            let forked = || page.number(GRANDCHILD).load(Ordering::SeqCst) != 0;
            within(Duration::from_secs(20), forked).expect("it forks");
        }
        std::thread::sleep(Duration::from_micros(round * 7919 % 15_000));
        drop(worker);
        let took =
            within(Duration::from_secs(1), || ledger.reserve(gpu, Want::exactly(LIMIT), LIMIT).is_ok());
        slowest =
            slowest.max(took.unwrap_or_else(|| {
                panic!("round {round}: {:?}", Snapshot::read(&dir.path().join("ledger")))
            }));
        ledger.give_back(gpu, LIMIT);
        let grandchild = page.number(GRANDCHILD).load(Ordering::SeqCst) as i32;
        if grandchild != 0 {
            // SAFETY: our worker's child, which ends by no other way than this.
            unsafe { libc::kill(grandchild, libc::SIGKILL) };
        }
    }
    println!("slowest of 1000: {slowest:?}");
}

#[test]
fn the_usage_shown_to_others_recovers_by_itself_within_a_second() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (ledger, gpu) = attach(dir.path());
    for _ in 0..10 {
        let page = Page::of(dir.path());
        page.number(READY).store(0, Ordering::SeqCst);
        let worker = Worker::start("alone", dir.path());
        within(Duration::from_secs(20), || ledger.used(gpu) > 0).expect("it allocates");
        drop(worker);
        let recovered = || {
            ledger.housekeeping();
            ledger.used(gpu) == 0
        };
        within(Duration::from_secs(1), recovered).expect("its usage is gone");
    }
}

fn sit_at_the_arbiter(dir: &Path) {
    let (_ledger, _gpu) = attach(dir);
    let path = std::ffi::CString::new(dir.join("ledger").to_str().expect("plain")).expect("no NUL");
    let file = File::open(&path, libc::O_RDWR).expect("the ledger is there");
    assert!(lock::try_lock(&file, gpu_offset(0) as u64).expect("a lock"));
    // Announced, as an arbiter is.
    let hint = gpu_offset(0) + std::mem::offset_of!(Gpu, arbitrating);
    file.write_at(&1u32.to_ne_bytes(), hint as u64).expect("writable");
    Page::of(dir).number(READY).store(1, Ordering::SeqCst);
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

#[test]
fn nobody_waits_a_second_for_an_arbiter_that_is_stopped() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (ledger, gpu) = attach(dir.path());
    let page = Page::of(dir.path());
    let worker = Worker::start("arbiter", dir.path());
    within(Duration::from_secs(20), || page.number(READY).load(Ordering::SeqCst) == 1).expect("it starts");
    worker.signal(libc::SIGSTOP);
    let timed = |want: u64, fits: bool| {
        let since = Instant::now();
        assert_eq!(ledger.reserve(gpu, Want::exactly(want), LIMIT).is_ok(), fits, "{want}");
        since.elapsed()
    };
    let granted = timed(2 * GIB, true);
    assert!(granted < Duration::from_millis(300), "{granted:?}");
    // Eight at once do not wait for each other either.
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert!(timed(3 * GIB, false) < Duration::from_secs(1)));
        }
    });
    assert!(timed(2 * GIB, true) < Duration::from_secs(1));
    drop(worker);
    assert!(timed(MIB, false) < Duration::from_millis(300));
}

#[test]
fn a_process_stopped_at_any_instruction_holds_nobody_up() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (ledger, gpu) = attach(dir.path());
    let page = Page::of(dir.path());
    let worker = Worker::start("alone", dir.path());
    within(Duration::from_secs(20), || page.number(READY).load(Ordering::SeqCst) == 1).expect("it starts");
    for round in 0..200u64 {
        std::thread::sleep(Duration::from_micros(round * 7919 % 3000));
        worker.signal(libc::SIGSTOP);
        for want in [LIMIT, 64 * MIB, 3 * GIB] {
            let since = Instant::now();
            if ledger.reserve(gpu, Want::exactly(want), LIMIT).is_ok() {
                ledger.give_back(gpu, want);
            }
            assert!(since.elapsed() < Duration::from_secs(1), "round {round}: {:?}", since.elapsed());
        }
        worker.signal(libc::SIGCONT);
    }
}

/// An overlay does not let the mapping hold the lock: a descriptor does, which a forked child must not keep.
#[test]
fn on_an_overlay_too_a_grandchild_keeps_nothing_of_a_killed_process() {
    let Some(overlay) = Mount::overlay() else { return };
    let (ledger, gpu) = attach(&overlay.path());
    let page = Page::of(&overlay.path());
    for round in 0..20 {
        page.number(GRANDCHILD).store(0, Ordering::SeqCst);
        let worker = Worker::start("with-grandchild", &overlay.path());
        let forked = || page.number(GRANDCHILD).load(Ordering::SeqCst) != 0;
        within(Duration::from_secs(20), forked).expect("it forks");
        std::thread::sleep(Duration::from_millis(round));
        drop(worker);
        let free = || ledger.reserve(gpu, Want::exactly(LIMIT), LIMIT).is_ok();
        within(Duration::from_secs(1), free).expect("all is free");
        ledger.give_back(gpu, LIMIT);
        // SAFETY: our worker's child, which ends by no other way than this.
        unsafe { libc::kill(page.number(GRANDCHILD).load(Ordering::SeqCst) as i32, libc::SIGKILL) };
    }
}

/// There the charge is out of sight until the program's next request.
#[test]
fn on_an_overlay_a_program_that_closes_all_descriptors_registers_anew() {
    let Some(overlay) = Mount::overlay() else { return };
    let (ledger, gpu) = attach(&overlay.path());
    let page = Page::of(&overlay.path());
    let worker = Worker::start("closes-all", &overlay.path());
    within(Duration::from_secs(20), || page.number(READY).load(Ordering::SeqCst) == 1).expect("it starts");
    let _ = ledger.reserve(gpu, Want::exactly(2 * GIB), LIMIT).expect_err("the other has 3 GiB");
    let seen = Snapshot::read(&overlay.path().join("ledger")).expect("readable");
    assert_eq!(seen.gpus[0].used, 3 * GIB + MIB, "{seen:?}");
    drop(worker);
    ledger.reserve(gpu, Want::exactly(LIMIT), LIMIT).expect("all is free");
}

/// Has no descriptor left to open anything with.
fn no_descriptors(dir: &Path) {
    let (ledger, gpu) = attach(dir);
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: lowers a limit of this process.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none) }, 0);
    let since = Instant::now();
    ledger.reserve(gpu, Want::exactly(2 * GIB), LIMIT).expect("fits");
    let _ = ledger.reserve(gpu, Want::exactly(2 * GIB), LIMIT).expect_err("the other has 1 GiB");
    ledger.reserve(gpu, Want::exactly(GIB), LIMIT).expect("fits");
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(ledger.housekeeping(), None);
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
}

#[test]
fn a_process_out_of_descriptors_is_still_served() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (ledger, gpu) = attach(dir.path());
    ledger.reserve(gpu, Want::exactly(GIB), LIMIT).expect("fits");
    Worker::start("no-descriptors", dir.path()).succeeded();
    ledger.reserve(gpu, Want::exactly(3 * GIB), LIMIT).expect("it has gone");
}

/// Closes every descriptor, as daemons do, and goes on.
fn close_all(dir: &Path) {
    let (ledger, gpu) = attach(dir);
    ledger.reserve(gpu, Want::exactly(3 * GIB), LIMIT).expect("fits");
    // SAFETY: nothing in this process uses a descriptor by number afterwards.
    unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0) };
    std::thread::sleep(Duration::from_millis(20));
    ledger.housekeeping();
    ledger.reserve(gpu, Want::exactly(MIB), LIMIT).expect("fits");
    Page::of(dir).number(READY).store(1, Ordering::SeqCst);
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

#[test]
fn a_program_that_closes_all_descriptors_keeps_its_charge() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (ledger, gpu) = attach(dir.path());
    let page = Page::of(dir.path());
    let worker = Worker::start("closes-all", dir.path());
    within(Duration::from_secs(20), || page.number(READY).load(Ordering::SeqCst) == 1).expect("it starts");
    let _ = ledger.reserve(gpu, Want::exactly(2 * GIB), LIMIT).expect_err("the other has 3 GiB");
    assert_eq!(ledger.used(gpu), 3 * GIB + MIB);
    drop(worker);
    ledger.reserve(gpu, Want::exactly(LIMIT), LIMIT).expect("all is free");
}

fn exec(dir: &Path) {
    use std::os::unix::process::CommandExt;
    let (ledger, gpu) = attach(dir);
    ledger.reserve(gpu, Want::exactly(3 * GIB), LIMIT).expect("fits");
    Page::of(dir).number(READY).store(1, Ordering::SeqCst);
    panic!("{}", std::process::Command::new("sleep").arg("60").exec());
}

#[test]
fn what_a_process_had_goes_when_it_becomes_another_program() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (ledger, gpu) = attach(dir.path());
    let page = Page::of(dir.path());
    let _worker = Worker::start("execs", dir.path());
    within(Duration::from_secs(20), || page.number(READY).load(Ordering::SeqCst) == 1).expect("it starts");
    let free = || ledger.reserve(gpu, Want::exactly(LIMIT), LIMIT).is_ok();
    within(Duration::from_secs(1), free).expect("the program it was has gone");
}

#[test]
fn joining_leaves_no_descriptor_and_no_thread() {
    let dir = tempfile::tempdir().expect("temporary directory");
    // Another test's descriptors come and go: look at those that lead here.
    let ours = || {
        let fds = std::fs::read_dir("/proc/self/fd").expect("proc is mounted").flatten();
        fds.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to.starts_with(dir.path()))).count()
    };
    let (ledger, gpu) = attach(dir.path());
    ledger.reserve(gpu, Want::exactly(LIMIT), LIMIT).expect("fits");
    let _ = ledger.reserve(gpu, Want::exactly(LIMIT), LIMIT).expect_err("full");
    ledger.housekeeping();
    assert_eq!(ours(), 0);
    // The slot's lock is there all the same.
    let file = std::fs::File::open(dir.path().join("ledger")).expect("readable");
    // SAFETY: all zeros is a valid `flock`.
    let mut ask: libc::flock = unsafe { std::mem::zeroed() };
    (ask.l_type, ask.l_start, ask.l_len) = (libc::F_RDLCK as i16, slot_offset(0) as i64, 1);
    // SAFETY: the descriptor is open, `ask` is valid.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut ask) };
    assert_eq!(ask.l_type, libc::F_WRLCK as i16);
}
