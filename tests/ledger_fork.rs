//! A ledger belongs to the process that attached: a forked child has nothing, keeps nothing alive, and starts anew.

mod common;
mod ledger_support;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cuquota::config::StatePlace;
use cuquota::ledger::{Ledger, Snapshot, Want};
use cuquota::sys::fork::ForkLocal;
use ledger_support::{GIB, GPU, MIB, Worker, attach, within};

workers!(run);

const LIMIT: u64 = 4 * GIB;
static LEDGER: ForkLocal<Ledger> = ForkLocal::new();

fn run(role: &str, dir: &Path) {
    match role {
        "forks-children" => forks_children(dir),
        "forks-while-busy" => forks_while_busy(dir),
        other => panic!("no such role: {other}"),
    }
}

fn ledger(dir: &Path) -> &'static Ledger {
    LEDGER.get_or_init(|| Ledger::attach(&StatePlace::Explicit(dir.to_owned()), None))
}

enum How {
    Fork,
    RawClone,
}

/// The exit status of a child that runs `body`.
fn child(how: How, body: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child uses memory, files and the allocator, which glibc keeps usable after `fork`; after a raw clone this
    // process has one thread only. It ends by `_exit`.
    let pid = unsafe {
        match how {
            How::Fork => i64::from(libc::fork()),
            How::RawClone => libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0),
        }
    };
    if pid == 0 {
        let status = body();
        // SAFETY: ends the child.
        unsafe { libc::_exit(status) };
    }
    let mut status = -1;
    // SAFETY: waits for the child just made.
    unsafe { libc::waitpid(pid as i32, &raw mut status, 0) };
    status
}

fn forks_children(dir: &Path) {
    let parent = ledger(dir);
    let gpu = parent.gpu(GPU).expect("room");
    parent.reserve(gpu, Want::exactly(2 * GIB), LIMIT).expect("fits");
    for round in 0..50 {
        for how in [How::Fork, How::RawClone] {
            let status = child(how, || {
                let inherited = LEDGER.get().is_some();
                let own = ledger(dir);
                let gpu = own.gpu(GPU).expect("room");
                let seen = (own.used(gpu), own.own_used(gpu));
                let fits = own.reserve(gpu, Want::exactly(GIB), LIMIT).is_ok();
                let too_much = own.reserve(gpu, Want::exactly(2 * GIB), LIMIT).is_ok();
                i32::from(inherited || seen != (2 * GIB, 0) || !fits || too_much)
            });
            assert_eq!(status, 0, "round {round}");
            // What it had went with it, what the parent has stayed.
            parent.reserve(gpu, Want::exactly(2 * GIB), LIMIT).expect("the child has gone");
            assert_eq!((parent.used(gpu), parent.own_used(gpu)), (4 * GIB, 4 * GIB));
            parent.give_back(gpu, 2 * GIB);
        }
    }
    let snapshot = Snapshot::read(&dir.join("ledger")).expect("readable");
    let alive: Vec<u32> = snapshot.processes.iter().filter(|p| p.alive).map(|p| p.pid).collect();
    assert_eq!(alive, [std::process::id()]);
}

#[test]
fn a_child_counts_for_nothing_and_starts_anew() {
    let dir = tempfile::tempdir().expect("temporary directory");
    Worker::start("forks-children", dir.path()).succeeded();
}

/// Forks while other threads have descriptors open and locks taken for a moment; the children live on.
fn forks_while_busy(dir: &Path) {
    let (parent, gpu) = (ledger(dir), ledger(dir).gpu(GPU).expect("room"));
    let (other, in_other) = attach(dir);
    other.reserve(in_other, Want::exactly(MIB), LIMIT).expect("fits");
    let done = AtomicBool::new(false);
    let mut children = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // Refused: goes by the arbiter, with a descriptor and a lock.
                    let _ = parent.reserve(gpu, Want::exactly(LIMIT), LIMIT).expect_err("the other has some");
                }
            });
        }
        for _ in 0..150 {
            // SAFETY: the child only waits for the signal that ends it.
            match unsafe { libc::fork() } {
                0 => loop {
                    // SAFETY: as above.
                    unsafe { libc::pause() };
                },
                pid => children.push(pid),
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    let inherited = || -> Vec<PathBuf> {
        let fds = |pid| std::fs::read_dir(format!("/proc/{pid}/fd")).expect("proc is mounted").flatten();
        let links = children.iter().flat_map(fds).filter_map(|fd| std::fs::read_link(fd.path()).ok());
        links.filter(|to| to.starts_with(dir)).collect()
    };
    // The last of them may not have got so far yet.
    let none = within(Duration::from_secs(5), || inherited().is_empty());
    let inherited = inherited();
    for pid in children {
        // SAFETY: our own child, not reaped yet.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        // SAFETY: as above.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    }
    assert!(none.is_some(), "{inherited:?}");
}

#[test]
fn a_child_forked_at_any_moment_inherits_no_descriptor() {
    let dir = tempfile::tempdir().expect("temporary directory");
    Worker::start("forks-while-busy", dir.path()).succeeded();
    let (ledger, gpu) = attach(dir.path());
    let free = || ledger.reserve(gpu, Want::exactly(LIMIT), LIMIT).is_ok();
    within(Duration::from_secs(1), free).expect("all have gone");
}
