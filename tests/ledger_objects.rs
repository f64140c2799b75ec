//! Memory that several processes hold: counted once, until the last of them has closed it or is dead.

mod common;
mod ledger_support;

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cuquota::config::StatePlace;
use cuquota::ledger::layout::{CHARGES, FILE_SIZE, OBJECT_TABLE, OBJECTS};
use cuquota::ledger::{GpuIndex, Key, Ledger, Shared, Snapshot, Want};
use cuquota::sys::mark;
use ledger_support::{GIB, MIB, Page, Worker, attach, within};

workers!(run);

const LIMIT: u64 = 64 * GIB;
/// Numbers on the page: from here on, how many objects a worker has shared and when, by its number.
const READY: usize = 0;
const SHARED: usize = 8;

fn run(role: &str, dir: &Path) {
    match role {
        "shares-one" => share_one(dir),
        "opens-one" => open_one(dir),
        "churns" => churn(dir),
        other => panic!("no such role: {other}"),
    }
}

const ONE: Key = [1, 1];

fn share(ledger: &Ledger, gpu: GpuIndex, key: Key, bytes: u64, mark: u64) -> Shared {
    ledger.reserve(gpu, Want::exactly(bytes), LIMIT).expect("fits");
    ledger.share(gpu, key, bytes, mark)
}

/// As a program frees what it shares.
fn unshare(ledger: &Ledger, gpu: GpuIndex, shared: Shared, bytes: u64) {
    let closing = ledger.close_shared(shared);
    ledger.give_back(gpu, bytes);
    drop(closing);
}

fn share_one(dir: &Path) {
    let (ledger, gpu) = attach(dir);
    share(&ledger, gpu, ONE, GIB, 0);
    Page::of(dir).number(READY).store(1, Ordering::SeqCst);
    // SAFETY: waits for a signal that kills it.
    unsafe { libc::pause() };
}

fn open_one(dir: &Path) {
    let (ledger, _) = attach(dir);
    ledger.open_shared(ONE).expect("it is shared");
    Page::of(dir).number(READY).fetch_add(1, Ordering::SeqCst);
    // SAFETY: waits for a signal that kills it.
    unsafe { libc::pause() };
}

fn start(role: &str, dir: &Path, ready: u64) -> Worker {
    let worker = Worker::start(role, dir);
    let page = Page::of(dir);
    within(Duration::from_secs(20), || page.number(READY).load(Ordering::SeqCst) >= ready)
        .expect("it starts");
    worker
}

/// What all see after anybody has looked for the dead.
#[track_caller]
fn becomes(ledger: &Ledger, gpu: GpuIndex, bytes: u64) {
    let settled = || {
        ledger.housekeeping();
        ledger.used(gpu) == bytes
    };
    if within(Duration::from_secs(2), settled).is_none() {
        panic!("{} and not {bytes}", ledger.used(gpu));
    }
}

fn seen_from_outside(dir: &Path) -> (u64, u64) {
    let snapshot = Snapshot::read(&dir.join("ledger")).expect("readable");
    (snapshot.gpus[0].used, snapshot.gpus[0].shared)
}

#[test]
fn it_is_counted_once_whoever_gives_it_back_first() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let ((a, in_a), (b, in_b), (c, _)) = (attach(dir.path()), attach(dir.path()), attach(dir.path()));
    for creator_first in [true, false] {
        let shared = share(&a, in_a, ONE, GIB, 0);
        let (opened, again) = (b.open_shared(ONE).expect("known"), b.open_shared(ONE).expect("known"));
        assert_eq!((opened, opened.gpu), (again, Some(in_b)));
        let third = c.open_shared(ONE).expect("known");
        assert_eq!((a.used(in_a), b.used(in_b), b.own_used(in_b)), (GIB, GIB, 0));
        assert_eq!(seen_from_outside(dir.path()), (GIB, 0));
        if creator_first {
            unshare(&a, in_a, shared, GIB);
            assert_eq!(seen_from_outside(dir.path()), (GIB, GIB));
        }
        drop(b.close_shared(opened.shared));
        drop(b.close_shared(again.shared));
        assert_eq!(a.used(in_a), GIB);
        drop(c.close_shared(third.shared));
        if !creator_first {
            assert_eq!(a.used(in_a), GIB);
            unshare(&a, in_a, shared, GIB);
        }
        assert_eq!((a.used(in_a), seen_from_outside(dir.path())), (0, (0, 0)));
        assert_eq!(b.open_shared(ONE), None);
    }
}

#[test]
fn what_is_counted_for_itself_leaves_no_room_for_more() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let ((a, in_a), (b, in_b)) = (attach(dir.path()), attach(dir.path()));
    let limit = 2 * GIB;
    let shared = share(&a, in_a, ONE, GIB, 0);
    let opened = b.open_shared(ONE).expect("known");
    unshare(&a, in_a, shared, GIB);
    for (ledger, gpu) in [(&a, in_a), (&b, in_b)] {
        // Also not by what the creator had leased before.
        let refusal = ledger.reserve(gpu, Want::exactly(GIB + MIB), limit).expect_err("is held");
        assert_eq!(refusal.used, GIB);
        ledger.reserve(gpu, Want::exactly(GIB), limit).expect("exactly fits");
        ledger.give_back(gpu, GIB);
    }
    assert_eq!(b.peak(in_b), 2 * GIB);
    drop(b.close_shared(opened.shared));
    a.reserve(in_a, Want::exactly(limit), limit).expect("all is free");
}

#[test]
fn one_that_is_killed_leaves_it_to_the_others_and_the_last_to_nobody() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (ledger, gpu) = attach(dir.path());
    for creator_first in [true, false] {
        Page::of(dir.path()).number(READY).store(0, Ordering::SeqCst);
        let creator = start("shares-one", dir.path(), 1);
        let mut openers: Vec<Worker> = (0..4).map(|n| start("opens-one", dir.path(), 2 + n)).collect();
        assert_eq!(ledger.used(gpu), GIB);
        let last = if creator_first {
            drop(creator);
            openers.pop().expect("four")
        } else {
            creator
        };
        for gone in openers {
            drop(gone);
            assert!(ledger.used(gpu) >= GIB);
            assert_eq!(seen_from_outside(dir.path()).0, GIB);
        }
        ledger.reserve(gpu, Want::exactly(LIMIT - GIB), LIMIT).expect("the rest is free");
        let _ = ledger.reserve(gpu, Want::exactly(MIB), LIMIT).expect_err("that is held");
        ledger.give_back(gpu, LIMIT - GIB);
        becomes(&ledger, gpu, GIB);
        drop(last);
        assert_eq!(seen_from_outside(dir.path()), (0, 0));
        ledger.reserve(gpu, Want::exactly(LIMIT), LIMIT).expect("nobody holds it");
        ledger.give_back(gpu, LIMIT);
    }
}

#[test]
fn a_slot_taken_anew_inherits_nothing() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (ledger, gpu) = attach(dir.path());
    let creator = start("shares-one", dir.path(), 1);
    let opener = start("opens-one", dir.path(), 2);
    drop(creator);
    drop(opener);
    // Takes the slot of one of them before anybody has swept, and holds nothing.
    let (other, _) = attach(dir.path());
    becomes(&ledger, gpu, 0);
    assert_eq!(other.open_shared(ONE), None);
}

#[test]
fn a_name_that_is_given_anew_leads_to_the_new_memory() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let ((a, in_a), (b, _), (c, _)) = (attach(dir.path()), attach(dir.path()), attach(dir.path()));
    let old = share(&a, in_a, ONE, GIB, 0);
    let older = b.open_shared(ONE).expect("known");
    unshare(&a, in_a, old, GIB);
    let new = share(&a, in_a, ONE, 2 * GIB, 0);
    let newer = c.open_shared(ONE).expect("known");
    assert_eq!(a.used(in_a), 3 * GIB);
    unshare(&a, in_a, new, 2 * GIB);
    assert_eq!(a.used(in_a), 3 * GIB);
    drop(b.close_shared(older.shared));
    assert_eq!(a.used(in_a), 2 * GIB);
    drop(c.close_shared(newer.shared));
    assert_eq!(a.used(in_a), 0);
}

#[test]
fn what_an_open_descriptor_keeps_is_counted_until_it_is_closed() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let ((a, in_a), (b, in_b)) = (attach(dir.path()), attach(dir.path()));
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false);
    let file = file.open(dir.path().join("exported")).expect("a file");
    let place = mark::place(u64::from(std::process::id()) << 32 | 77 << 20);
    let mark = mark::put(file.as_raw_fd(), place).expect("marked");
    // What anybody else puts there keeps nothing.
    let stranger = std::fs::File::open("/dev/null").expect("there");
    mark::put(stranger.as_raw_fd(), place).expect("marked");
    let copy = file.try_clone().expect("a descriptor");
    let shared = share(&a, in_a, ONE, GIB, mark.id);
    unshare(&a, in_a, shared, GIB);
    drop(a);
    drop(file);
    b.reserve(in_b, Want::exactly(MIB), LIMIT).expect("fits");
    assert_eq!((b.used(in_b), seen_from_outside(dir.path())), (GIB + MIB, (GIB + MIB, GIB)));
    std::thread::sleep(Duration::from_millis(300));
    becomes(&b, in_b, GIB + MIB);
    drop(copy);
    becomes(&b, in_b, MIB);
}

#[test]
fn without_sharing_and_with_a_full_table_whoever_opens_it_pays() {
    let private = Ledger::attach(&StatePlace::Explicit("/proc/nowhere".into()), None);
    let gpu = private.gpu(ledger_support::GPU).expect("room");
    let shared = share(&private, gpu, ONE, GIB, 0);
    let own = private.open_shared(ONE).expect("its own");
    drop(private.close_shared(own.shared));
    assert_eq!((private.open_shared([2, 2]), private.used(gpu)), (None, GIB));
    unshare(&private, gpu, shared, GIB);
    assert_eq!(private.used(gpu), 0);

    let dir = tempfile::tempdir().expect("temporary directory");
    let ((a, in_a), (b, _)) = (attach(dir.path()), attach(dir.path()));
    let all: Vec<Shared> = (0..OBJECTS as u64).map(|n| share(&a, in_a, [n, 9], MIB, 0)).collect();
    let one_more = share(&a, in_a, ONE, MIB, 0);
    assert!(b.open_shared([0, 9]).is_some() && b.open_shared(ONE).is_none());
    assert_eq!(a.used(in_a), (OBJECTS as u64 + 1) * MIB);
    for shared in all.into_iter().chain([one_more]) {
        unshare(&a, in_a, shared, MIB);
    }
    assert_eq!(a.used(in_a), MIB);
}

#[test]
fn in_a_file_that_replaces_a_lost_one_all_is_entered_again() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let ((a, in_a), (b, in_b)) = (attach(dir.path()), attach(dir.path()));
    let (gone, kept) = (share(&a, in_a, ONE, GIB, 0), share(&a, in_a, [2, 2], 2 * GIB, 0));
    let opened = b.open_shared(ONE).expect("known");
    unshare(&a, in_a, gone, GIB);
    std::fs::remove_file(dir.path().join("ledger")).expect("there");
    becomes(&b, in_b, GIB);
    becomes(&a, in_a, 3 * GIB);
    becomes(&b, in_b, 3 * GIB);
    let second = b.open_shared([2, 2]).expect("known in the new file");
    unshare(&a, in_a, kept, 2 * GIB);
    becomes(&a, in_a, 3 * GIB);
    drop(b.close_shared(second.shared));
    drop(b.close_shared(opened.shared));
    assert_eq!(a.used(in_a), 0);
}

/// The key of a worker's object tells its size.
fn key_of(worker: u64, n: u64) -> (Key, u64) {
    ([worker << 32 | n, 3], (1 + n % 7) * 32 * MIB)
}

/// Shares, opens what the others share, and closes all of it at random until killed.
fn churn(dir: &Path) {
    let (ledger, gpu) = attach(dir);
    let page = Page::of(dir);
    let me = u64::from(std::process::id());
    page.number(READY).fetch_add(1, Ordering::SeqCst);
    let (mut own, mut opened): (HashMap<u64, Shared>, Vec<Shared>) = Default::default();
    let mut seed = me;
    for n in 1.. {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ledger.housekeeping();
        let (key, bytes) = key_of(me, n);
        if ledger.reserve(gpu, Want::exactly(bytes), LIMIT).is_ok() {
            own.insert(n, ledger.share(gpu, key, bytes, 0));
            page.number(SHARED + (seed >> 33) as usize % 32).store(me << 32 | n, Ordering::SeqCst);
        }
        let other = page.number(SHARED + (seed >> 40) as usize % 32).load(Ordering::SeqCst);
        opened.extend(ledger.open_shared([other, 3]).map(|opened| opened.shared));
        if own.len() > (seed >> 50) as usize % 8 {
            let n = *own.keys().next().expect("some");
            if let Some(shared) = own.remove(&n) {
                unshare(&ledger, gpu, shared, key_of(me, n).1);
            }
        }
        if opened.len() > (seed >> 54) as usize % 8 {
            drop(ledger.close_shared(opened.swap_remove(0)));
        }
    }
}

#[test]
fn killed_at_any_instruction_nobody_leaves_too_little_or_too_much() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (ledger, gpu) = attach(dir.path());
    let page = Page::of(dir.path());
    let mut held_at_all = 0;
    for round in 0..150u64 {
        page.number(READY).store(0, Ordering::SeqCst);
        let workers: Vec<Worker> = (0..3).map(|_| Worker::start("churns", dir.path())).collect();
        within(Duration::from_secs(20), || page.number(READY).load(Ordering::SeqCst) == 3).expect("start");
        let (mut held, since) = (HashMap::new(), Instant::now());
        while since.elapsed() < Duration::from_micros(round * 7919 % 20_000) {
            let name = page.number(SHARED + held.len() % 32).load(Ordering::SeqCst);
            if held.len() < 32
                && !held.contains_key(&name)
                && let Some(opened) = ledger.open_shared([name, 3])
            {
                held.insert(name, opened.shared);
            }
        }
        drop(workers);
        let bytes: u64 = held.keys().map(|name| key_of(0, name & 0xFFFF_FFFF).1).sum();
        assert!(ledger.used(gpu) >= bytes, "round {round}: {} of {bytes}", ledger.used(gpu));
        assert_eq!(seen_from_outside(dir.path()).0, bytes, "round {round}");
        let rest = LIMIT - bytes;
        let fits = || ledger.reserve(gpu, Want::exactly(rest), LIMIT).is_ok();
        within(Duration::from_secs(1), fits).unwrap_or_else(|| panic!("round {round}: {}", ledger.used(gpu)));
        assert_eq!(ledger.used(gpu), LIMIT, "round {round}");
        ledger.give_back(gpu, rest);
        held_at_all += held.len();
        held.into_values().for_each(|shared| drop(ledger.close_shared(shared)));
        assert_eq!(ledger.used(gpu), 0, "round {round}");
    }
    assert!(held_at_all > 100, "{held_at_all}");
}

#[test]
fn noise_in_the_table_ends_nothing_and_is_gone_soon() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let ((a, in_a), (b, in_b)) = (attach(dir.path()), attach(dir.path()));
    let file = OpenOptions::new().write(true).open(dir.path().join("ledger")).expect("writable");
    let mut seed = 1u64;
    for round in 0..12 {
        let shared = share(&a, in_a, ONE, GIB, 0);
        let opened = b.open_shared(ONE).expect("known");
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            [0, 0xFF, (seed >> 56) as u8][round % 3]
        })
        .take(FILE_SIZE - CHARGES)
        .collect();
        let from = if round % 2 == 0 { 0 } else { OBJECT_TABLE - CHARGES };
        file.write_at(&noise[from..], (CHARGES + from) as u64).expect("writable");
        // All of it is used, whatever the head says.
        let end = std::mem::offset_of!(cuquota::ledger::layout::Header, objects_end) as u64;
        file.write_at(&u32::MAX.to_ne_bytes(), end).expect("writable");
        file.write_at(&noise[..8], end + 4).expect("writable");
        let since = Instant::now();
        let _ = (a.used(in_a), b.open_shared([5, 5]), seen_from_outside(dir.path()));
        let _ = a.reserve(in_a, Want::exactly(GIB), LIMIT).map(|()| a.give_back(in_a, GIB));
        assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
        // What each of them puts right takes a few looks, a tenth of a second apart.
        let since = Instant::now();
        let right = || {
            a.housekeeping();
            b.housekeeping();
            since.elapsed() > Duration::from_millis(350) && a.used(in_a) == GIB && b.used(in_b) == GIB
        };
        within(Duration::from_secs(10), right)
            .unwrap_or_else(|| panic!("round {round}: {} {}", a.used(in_a), b.used(in_b)));
        unshare(&a, in_a, shared, GIB);
        becomes(&b, in_b, GIB);
        drop(b.close_shared(opened.shared));
        becomes(&b, in_b, 0);
    }
}

#[test]
fn status_shows_what_is_held_and_in_no_process_of_its_own() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let ((a, in_a), (b, _)) = (attach(dir.path()), attach(dir.path()));
    let shared = share(&a, in_a, ONE, GIB, 0);
    let _opened = b.open_shared(ONE).expect("known");
    let status = |more: &[&str]| {
        let run = common::Run::new(common::cuquota()).arg("status").args(["--state"]).arg(dir.path());
        run.args(more.iter().copied()).finish()
    };
    assert!(!status(&[]).stdout.contains("(shared)"));
    unshare(&a, in_a, shared, GIB);
    let told = status(&[]).stdout;
    assert!(told.lines().any(|line| line.contains("(shared)") && line.contains("1 GiB")), "{told}");
    let json: serde_json::Value = serde_json::from_str(&status(&["--json"]).stdout).expect("JSON");
    let gpu = &json["containers"][0]["gpus"][0];
    let bytes = ["used_bytes", "shared_bytes", "resident_bytes"].map(|key| gpu[key].as_u64());
    assert_eq!(bytes, [Some(GIB); 3]);
}
