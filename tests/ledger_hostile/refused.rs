//! Files and disks that are not to be shared: the process is held to the whole limit on its own, and says why.

use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use cuquota::ledger::layout::{FILE_SIZE, VERSION};
use cuquota::ledger::{Snapshot, Want};

use crate::ledger_support::{GIB, MIB, Mount, attach};
use crate::{LIMIT, explicit, is_private, with_ledger};

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
