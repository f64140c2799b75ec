//! Users, masks and file systems that must not end sharing.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

use cuquota::ledger::{Snapshot, Want};

use crate::LIMIT;
use crate::common::skip::skip;
use crate::ledger_support::{GIB, Mount, Worker, attach, is_root, worker};

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

pub fn as_nobody(dir: &Path) {
    let (ledger, gpu) = attach(dir);
    let _ = ledger.reserve(gpu, Want::exactly(2 * GIB), LIMIT).expect_err("root has 3 GiB");
    ledger.reserve(gpu, Want::exactly(GIB), LIMIT).expect("fits");
}

#[test]
fn users_share_one_ledger() {
    if !is_root() {
        return skip("only root can become another user; run as root");
    }
    let dir = tempfile::tempdir().expect("temporary directory");
    fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o1777)).expect("ours");
    let (ledger, gpu) = attach(dir.path());
    ledger.reserve(gpu, Want::exactly(3 * GIB), LIMIT).expect("fits");
    let nobody = worker("as-nobody", dir.path()).uid(65534).gid(65534).spawn();
    let Ok(nobody) = nobody else {
        return skip("another user cannot start the test program; build where all can read");
    };
    Worker(nobody).succeeded();
    assert_eq!(ledger.peak(gpu), LIMIT);
}
