//! Ledgers that are not what they should be: the process is held to the whole limit on its own, and says why.

mod common;
mod ledger_support;

use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cuquota::config::StatePlace;
use cuquota::ledger::layout::{FILE_SIZE, GPU_TABLE, SLOT_TABLE, Slot, VERSION, slot_offset};
use cuquota::ledger::{Ledger, Snapshot, Want};
use ledger_support::stranger::{self, Stranger};
use ledger_support::{GIB, GPU, MIB, Mount, Page, Worker, attach, is_root, within};

workers!(run);

/// Of those who share while a stranger has locks.
const MEMBERS: u64 = 4;

const LIMIT: u64 = 4 * GIB;
/// Numbers on the page.
const STOP: usize = 0;
const OVER: usize = 8;
const ROUNDS: usize = 16;

fn run(role: &str, dir: &Path) {
    if stranger::run(role, dir) {
        return;
    }
    match role {
        "shares" => shares(dir),
        "cut-while-running" => cut_while_running(dir),
        "beside-a-vandal" => beside_a_vandal(dir),
        "as-nobody" => as_nobody(dir),
        other => panic!("no such role: {other}"),
    }
}

fn explicit(dir: &Path) -> Ledger {
    Ledger::attach(&StatePlace::Explicit(dir.to_owned()), None)
}

/// Sharing is off for this reason, said once, and the limit holds all the same.
#[track_caller]
fn is_private(ledger: &Ledger, why: &str) {
    let lost = ledger.sharing().expect_err("this is not to be shared").to_string();
    assert!(lost.contains(why), "{lost}");
    assert_eq!(ledger.newly_lost().map(ToString::to_string), Some(lost));
    assert_eq!(ledger.newly_lost(), None);
    is_held(ledger);
}

#[track_caller]
fn is_held(ledger: &Ledger) {
    let gpu = ledger.gpu(GPU).expect("room");
    let before = ledger.own_used(gpu);
    ledger.reserve(gpu, Want::exactly(LIMIT - before), LIMIT).expect("fits");
    let _ = ledger.reserve(gpu, Want::exactly(1), LIMIT).expect_err("the limit holds");
    assert_eq!((ledger.used(gpu), ledger.own_used(gpu)), (LIMIT, LIMIT));
    ledger.give_back(gpu, LIMIT - before);
    assert_eq!(ledger.own_used(gpu), before);
}

fn with_ledger() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("temporary directory");
    drop(attach(dir.path()));
    dir
}

#[test]
fn what_is_not_a_ledger_is_refused_and_left_alone() {
    for (content, why) in [
        (vec![], "has 0 bytes"),
        (b"hello".to_vec(), "has 5 bytes"),
        (vec![0; FILE_SIZE], "is not a ledger"),
        (vec![0xFF; FILE_SIZE], "is not a ledger"),
        (vec![1; FILE_SIZE + 1], "bytes where a ledger has"),
    ] {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("ledger");
        fs::write(&path, &content).expect("writable");
        is_private(&explicit(dir.path()), why);
        assert_eq!(fs::read(&path).expect("readable"), content);
        let shown = Snapshot::read(&path).expect_err("not readable either").to_string();
        assert!(shown.contains(why), "{shown}");
    }
}

#[test]
fn a_ledger_cut_short_another_version_and_a_hole_are_refused() {
    let dir = with_ledger();
    let path = dir.path().join("ledger");
    let file = OpenOptions::new().write(true).open(&path).expect("writable");
    file.write_at(&(VERSION + 1).to_ne_bytes(), 8).expect("writable");
    let versions = format!("version {}, this is version {VERSION}", VERSION + 1);
    is_private(&explicit(dir.path()), &versions);
    file.write_at(&VERSION.to_ne_bytes(), 8).expect("writable");
    file.write_at(&7u32.to_ne_bytes(), 16).expect("writable");
    is_private(&explicit(dir.path()), "its head has been overwritten");
    let dir = with_ledger();
    let file = OpenOptions::new().write(true).open(dir.path().join("ledger")).expect("writable");
    file.set_len(FILE_SIZE as u64 - 4096).expect("writable");
    is_private(&explicit(dir.path()), "bytes where a ledger has");
    file.set_len(FILE_SIZE as u64).expect("writable");
    is_private(&explicit(dir.path()), "has holes");
}

#[test]
fn links_directories_and_pipes_in_its_place_are_refused() {
    let elsewhere = with_ledger();
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("ledger");
    symlink(elsewhere.path().join("ledger"), &path).expect("a link");
    is_private(&explicit(dir.path()), "cannot open it for writing");
    assert!(Snapshot::read(&path).is_err());
    fs::remove_file(&path).expect("a link");
    symlink("nowhere", &path).expect("a link");
    is_private(&explicit(dir.path()), "cannot open it for writing");
    assert!(!dir.path().join("nowhere").exists());
    fs::remove_file(&path).expect("a link");
    fs::create_dir(&path).expect("a directory");
    is_private(&explicit(dir.path()), "cannot open it for writing");
    fs::remove_dir(&path).expect("a directory");
    let pipe = CString::new(path.to_str().expect("plain")).expect("no NUL");
    // SAFETY: a NUL terminated path.
    assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o666) }, 0);
    is_private(&explicit(dir.path()), "is not a regular file");
    let linked = dir.path().join("linked");
    symlink(elsewhere.path(), &linked).expect("a link");
    is_private(&explicit(&linked), "cannot open its directory");
    is_private(&explicit(&dir.path().join("no/such/parent")), "cannot make its directory");
}

#[test]
fn a_new_ledger_is_everybodys_whatever_the_umask() {
    let parent = tempfile::tempdir().expect("temporary directory");
    let dir = parent.path().join("state");
    // SAFETY: changes a number of this process; other tests set the modes they need by themselves.
    let before = unsafe { libc::umask(0o077) };
    drop(attach(&dir));
    // SAFETY: as above.
    unsafe { libc::umask(before) };
    let mode = |path: &Path| fs::symlink_metadata(path).expect("there").permissions().mode() & 0o7777;
    assert_eq!((mode(&dir), mode(&dir.join("ledger"))), (0o1777, 0o666));
    let names: Vec<_> = fs::read_dir(&dir).expect("readable").flatten().map(|e| e.file_name()).collect();
    assert_eq!(names, ["ledger"], "nothing else is left there");
}

fn cut_while_running(dir: &Path) {
    let (ledger, gpu) = attach(dir);
    ledger.reserve(gpu, Want::exactly(3 * GIB), LIMIT).expect("fits");
    OpenOptions::new().write(true).truncate(true).open(dir.join("ledger")).expect("writable");
    std::thread::sleep(Duration::from_millis(20));
    let said = ledger.housekeeping().map(ToString::to_string).unwrap_or_default();
    assert!(said.contains("has 0 bytes"), "{said}");
    assert_eq!(ledger.used(gpu), 3 * GIB);
    is_held(&ledger);
    // A thread that still looked into the file finds memory there.
    ledger.give_back(gpu, 3 * GIB);
    assert_eq!(ledger.used(gpu), 0);
}

#[test]
fn a_ledger_cut_while_in_use_ends_sharing_and_not_the_program() {
    let dir = tempfile::tempdir().expect("temporary directory");
    Worker::start("cut-while-running", dir.path()).succeeded();
}

#[test]
fn a_ledger_overwritten_while_in_use_ends_sharing() {
    let dir = tempfile::tempdir().expect("temporary directory");
    for (at, why) in
        [(0, "is not a ledger"), (GPU_TABLE as u64 + 8, "its table of GPUs has been overwritten")]
    {
        let (ledger, gpu) = attach(dir.path());
        ledger.reserve(gpu, Want::exactly(GIB), LIMIT).expect("fits");
        let path = dir.path().join("ledger");
        OpenOptions::new()
            .write(true)
            .open(&path)
            .expect("writable")
            .write_at(&[0xAA; 8], at)
            .expect("writable");
        std::thread::sleep(Duration::from_millis(20));
        assert!(ledger.housekeeping().expect("noticed").to_string().contains(why));
        assert_eq!(ledger.own_used(gpu), GIB);
        is_held(&ledger);
        fs::remove_file(path).expect("removable");
    }
}

#[test]
fn a_ledger_that_was_removed_is_made_again_with_what_its_members_have() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let ((a, in_a), (b, in_b)) = (attach(dir.path()), attach(dir.path()));
    a.reserve(in_a, Want::exactly(GIB), LIMIT).expect("fits");
    b.reserve(in_b, Want::exactly(2 * GIB), LIMIT).expect("fits");
    for _ in 0..5 {
        fs::remove_file(dir.path().join("ledger")).expect("there");
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!((a.housekeeping(), b.housekeeping()), (None, None));
        assert_eq!((a.used(in_a), b.used(in_b)), (3 * GIB, 3 * GIB));
        let _ = a.reserve(in_a, Want::exactly(2 * GIB), LIMIT).expect_err("the other has 2 GiB");
        let seen = Snapshot::read(&dir.path().join("ledger")).expect("made again");
        assert_eq!((seen.processes.len(), seen.gpus[0].used), (2, 3 * GIB));
    }
}

#[test]
fn a_ledger_that_is_replaced_without_end_is_left_to_itself() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (ledger, gpu) = attach(dir.path());
    ledger.reserve(gpu, Want::exactly(GIB), LIMIT).expect("fits");
    let lost = (0..200).find_map(|_| {
        let _ = fs::remove_file(dir.path().join("ledger"));
        std::thread::sleep(Duration::from_millis(10));
        ledger.housekeeping().map(ToString::to_string)
    });
    assert!(lost.expect("given up").contains("again and again"));
    is_held(&ledger);
}

#[test]
fn a_word_made_too_small_or_too_large_is_put_right() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let ((a, in_a), (b, in_b)) = (attach(dir.path()), attach(dir.path()));
    a.reserve(in_a, Want::exactly(GIB), LIMIT).expect("fits");
    let words = SLOT_TABLE as u64 + 64;
    let file = OpenOptions::new().write(true).open(dir.path().join("ledger")).expect("writable");
    for damage in [0u64, u64::MAX, 0xFFFF_FFFF_0000_0000] {
        file.write_at(&damage.to_ne_bytes(), words).expect("writable");
        // By its own account it has 1 GiB already, whatever the file says.
        let _ = a.reserve(in_a, Want::exactly(LIMIT - GIB + 1), LIMIT).expect_err("does not fit");
        let right = || {
            a.housekeeping();
            b.used(in_b) == GIB
        };
        ledger_support::within(Duration::from_secs(2), right).expect("put right");
        b.reserve(in_b, Want::exactly(3 * GIB), LIMIT).expect("fits");
        b.give_back(in_b, 3 * GIB);
    }
}

#[test]
fn a_request_that_seems_under_way_for_ever_does_not_slow_refusals_down_for_ever() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let ((a, in_a), (b, in_b)) = (attach(dir.path()), attach(dir.path()));
    a.reserve(in_a, Want::exactly(GIB), LIMIT).expect("fits");
    let file = OpenOptions::new().write(true).open(dir.path().join("ledger")).expect("writable");
    let in_flight = (slot_offset(0) + std::mem::offset_of!(Slot, in_flight)) as u64;
    file.write_at(&7u32.to_ne_bytes(), in_flight).expect("writable");
    let refused_in = || {
        let since = Instant::now();
        let _ = b.reserve(in_b, Want::exactly(LIMIT), LIMIT).expect_err("does not fit");
        since.elapsed()
    };
    assert!(refused_in() < Duration::from_secs(1));
    let fast = || {
        a.housekeeping();
        refused_in() < Duration::from_millis(50)
    };
    ledger_support::within(Duration::from_secs(5), fast).expect("put right");
}

fn beside_a_vandal(dir: &Path) {
    let ledger = Ledger::attach(&StatePlace::Explicit(dir.to_owned()), None);
    let gpu = ledger.gpu(GPU).expect("room in our own account");
    let page = Page::of(dir);
    let mut seed = u64::from(std::process::id());
    let mut held = 0;
    while page.number(STOP).load(Ordering::SeqCst) == 0 {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let bytes = (seed >> 33) % 512 * MIB;
        ledger.housekeeping();
        let since = Instant::now();
        if held < 3 * GIB && ledger.reserve(gpu, Want::exactly(bytes), LIMIT).is_ok() {
            held += bytes;
        } else {
            ledger.give_back(gpu, held);
            held = 0;
        }
        assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
        assert_eq!(ledger.own_used(gpu), held);
        if held > LIMIT {
            page.number(OVER).fetch_add(1, Ordering::SeqCst);
        }
        page.number(ROUNDS).fetch_add(1, Ordering::SeqCst);
    }
    // Afterwards as well.
    ledger.give_back(gpu, held);
    assert_eq!(ledger.own_used(gpu), 0);
}

#[test]
fn noise_written_over_a_ledger_in_use_harms_nobody() {
    // Over the slots, over the table of GPUs as well, over all of it.
    for from in [SLOT_TABLE, GPU_TABLE, 0] {
        let dir = with_ledger();
        let page = Page::of(dir.path());
        let workers: Vec<Worker> = (0..2).map(|_| Worker::start("beside-a-vandal", dir.path())).collect();
        let file = OpenOptions::new().write(true).open(dir.path().join("ledger")).expect("writable");
        let mut seed = from as u64 + 1;
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(2) {
            let noise: Vec<u8> = std::iter::repeat_with(|| {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (seed >> 56) as u8
            })
            .take(4096)
            .collect();
            let at = from + (seed >> 8) as usize % (FILE_SIZE - from - noise.len());
            file.write_at(&noise, at as u64).expect("writable");
            // Now and then where it hurts most.
            let first = from.max(GPU_TABLE) + (seed >> 40) as usize % 2048;
            file.write_at(&noise[..64], first as u64).expect("writable");
            std::thread::sleep(Duration::from_millis(1));
        }
        page.number(STOP).store(1, Ordering::SeqCst);
        workers.into_iter().for_each(Worker::succeeded);
        assert_eq!(page.number(OVER).load(Ordering::SeqCst), 0);
        assert!(page.number(ROUNDS).load(Ordering::SeqCst) > 20);
    }
}

/// Holds its part until it is killed.
fn shares(dir: &Path) {
    let (ledger, gpu) = attach(dir);
    ledger.reserve(gpu, Want::exactly(LIMIT / MEMBERS), LIMIT).expect("its part");
    Page::of(dir.parent().expect("a parent")).number(ROUNDS).fetch_add(1, Ordering::SeqCst);
    loop {
        ledger.housekeeping();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!((ledger.own_used(gpu), ledger.sharing()), (LIMIT / MEMBERS, Ok(())));
    }
}

/// A container's state, and beside it a page of numbers that no stranger finds.
fn with_state() -> (tempfile::TempDir, std::path::PathBuf) {
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
    let before = page.number(ROUNDS).load(Ordering::SeqCst);
    let started = (0..count).map(|_| Worker::start("shares", state)).collect();
    let all = || page.number(ROUNDS).load(Ordering::SeqCst) == before + count;
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

#[test]
fn a_number_of_an_owner_that_was_overwritten_is_put_back() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let ((a, in_a), (b, in_b)) = (attach(dir.path()), attach(dir.path()));
    a.reserve(in_a, Want::exactly(3 * GIB), LIMIT).expect("fits");
    let file = OpenOptions::new().write(true).open(dir.path().join("ledger")).expect("writable");
    let owner = slot_offset(0) + std::mem::offset_of!(Slot, owner);
    for noise in [0_u64, 12, 1 << 63 | 12] {
        file.write_at(&noise.to_ne_bytes(), owner as u64).expect("writable");
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(a.housekeeping(), None);
        let _ = b.reserve(in_b, Want::exactly(2 * GIB), LIMIT).expect_err("the other has 3 GiB");
        let seen = Snapshot::read(&dir.path().join("ledger")).expect("readable");
        assert!(seen.processes.len() == 2 && seen.processes.iter().all(|process| process.alive), "{seen:?}");
    }
}

#[test]
fn a_full_disk_is_said_at_once_and_kills_nobody_later() {
    let Some(disk) = Mount::new("tmpfs", |_| "size=256k".to_owned()) else { return };
    is_private(&explicit(&disk.path()), "cannot set its space aside: No space left on device");
    let left: Vec<_> = fs::read_dir(disk.path()).expect("readable").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_read_only_disk_is_said_and_read_all_the_same() {
    let Some(disk) = Mount::new("tmpfs", |_| "size=8m".to_owned()) else { return };
    let empty = disk.path().join("empty");
    fs::create_dir(&empty).expect("a directory");
    let (other, in_other) = attach(&disk.path());
    other.reserve(in_other, Want::exactly(GIB), LIMIT).expect("fits");
    let copy = tempfile::tempdir().expect("temporary directory");
    let mount =
        |args: &[&str]| std::process::Command::new("mount").args(args).status().expect("mount").success();
    let (from, to) = (disk.path(), copy.path().to_owned());
    assert!(mount(&["--bind", from.to_str().expect("plain"), to.to_str().expect("plain")]));
    assert!(mount(&["-o", "remount,bind,ro", to.to_str().expect("plain")]));
    is_private(&explicit(&to), "cannot open it for writing: Read-only file system");
    is_private(&explicit(&to.join("empty")), "cannot make it: Read-only file system");
    // As a neighbour's ledger is read.
    let seen = Snapshot::read(&to.join("ledger")).expect("readable");
    assert_eq!((seen.gpus[0].used, seen.processes[0].alive), (GIB, true));
    assert!(std::process::Command::new("umount").arg(&to).status().expect("umount").success());
}

/// An overlay's mapping does not keep the description that it was made through.
#[test]
fn on_an_overlay_a_member_counts_as_alive_all_the_same() {
    let Some(overlay) = Mount::overlay() else { return };
    let ((a, in_a), (b, in_b)) = (attach(&overlay.path()), attach(&overlay.path()));
    a.reserve(in_a, Want::exactly(3 * GIB), LIMIT).expect("fits");
    let _ = b.reserve(in_b, Want::exactly(2 * GIB), LIMIT).expect_err("the other has 3 GiB");
    let seen = Snapshot::read(&overlay.path().join("ledger")).expect("readable");
    assert!(seen.processes.len() == 2 && seen.processes.iter().all(|process| process.alive), "{seen:?}");
    drop(a);
    b.reserve(in_b, Want::exactly(2 * GIB), LIMIT).expect("the other has gone");
}

fn as_nobody(dir: &Path) {
    let (ledger, gpu) = attach(dir);
    let _ = ledger.reserve(gpu, Want::exactly(2 * GIB), LIMIT).expect_err("root has 3 GiB");
    ledger.reserve(gpu, Want::exactly(GIB), LIMIT).expect("fits");
}

#[test]
fn users_share_one_ledger() {
    if !is_root() {
        return common::skip::skip("only root can become another user; run as root");
    }
    use std::os::unix::process::CommandExt;
    let dir = tempfile::tempdir().expect("temporary directory");
    fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o1777)).expect("ours");
    let (ledger, gpu) = attach(dir.path());
    ledger.reserve(gpu, Want::exactly(3 * GIB), LIMIT).expect("fits");
    let nobody = ledger_support::worker("as-nobody", dir.path()).uid(65534).gid(65534).spawn();
    let Ok(nobody) = nobody else {
        return common::skip::skip("another user cannot start the test program; build where all can read");
    };
    Worker(nobody).succeeded();
    assert_eq!(ledger.peak(gpu), LIMIT);
}

#[test]
fn a_private_ledger_still_counts_per_gpu() {
    let ledger = explicit(Path::new("/proc/no/such"));
    let (a, b) = (ledger.gpu([1; 16]).expect("room"), ledger.gpu([2; 16]).expect("room"));
    ledger.reserve(a, Want::exactly(LIMIT), LIMIT).expect("fits");
    ledger.reserve(b, Want::exactly(MIB), LIMIT).expect("another GPU");
    assert_eq!((ledger.used(a), ledger.used(b), ledger.peak(a)), (LIMIT, MIB, LIMIT));
    let _ = ledger.reserve(a, Want::exactly(1), LIMIT).expect_err("full");
    assert_eq!((ledger.refusals(a), ledger.refusals(b)), (1, 0));
}
