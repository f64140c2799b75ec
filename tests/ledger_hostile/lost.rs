//! Ledgers that are cut, overwritten, removed or replaced while they are in use.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use cuquota::ledger::layout::GPU_TABLE;
use cuquota::ledger::{Snapshot, Want};

use crate::ledger_support::{GIB, Worker, attach};
use crate::{LIMIT, is_held};

pub fn cut_while_running(dir: &Path) {
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
