//! Which ledger a container uses when nobody names a directory. Each worker has file systems of its own, in a mount namespace.

mod common;
mod ledger_support;

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cuquota::config::StatePlace;
use cuquota::ledger::{Ledger, Want};
use ledger_support::{GIB, GPU, MIB, Worker, is_root, within, worker};

workers!(run);

const LIMIT: u64 = 4 * GIB;

fn run(role: &str, _: &Path) {
    match role {
        "temporary" => private_mounts(temporary_directory),
        "prepared" => private_mounts(prepared_directory),
        "late" => private_mounts(directory_made_late),
        "overlay" => private_mounts(overlay_is_avoided),
        "only-overlay" => private_mounts(overlay_if_need_be),
        "foreign" => private_mounts(foreign_directories),
        "link" => private_mounts(links_are_not_followed),
        "two-roots" => private_mounts(two_roots),
        "second" => second(),
        other => panic!("no such role: {other}"),
    }
}

fn c(text: &str) -> CString {
    CString::new(text).expect("no NUL")
}

fn mount(kind: &str, on: &Path, options: &str) {
    let (kind, on, options) = (c(kind), c(on.to_str().expect("plain")), c(options));
    // SAFETY: NUL terminated strings that outlive the call.
    let outcome =
        unsafe { libc::mount(kind.as_ptr(), on.as_ptr(), kind.as_ptr(), 0, options.as_ptr().cast()) };
    assert_eq!(outcome, 0, "{kind:?} on {on:?}: {}", std::io::Error::last_os_error());
}

/// Empty `/run`, `/tmp` and `/dev/shm` that only this process and its children see.
fn private_mounts(test: fn(&Path)) {
    // SAFETY: no pointers; this process has one thread.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, 0);
    let flags = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: the strings are NUL terminated, the others may be null for this kind of call.
    let outcome =
        unsafe { libc::mount(std::ptr::null(), c"/".as_ptr(), std::ptr::null(), flags, std::ptr::null()) };
    assert_eq!(outcome, 0);
    for path in ["/run", "/tmp", "/dev/shm"] {
        mount("tmpfs", Path::new(path), "size=64m,mode=1777");
    }
    let scratch = Path::new("/run/scratch");
    fs::create_dir(scratch).expect("a directory");
    test(scratch);
}

fn run_privately(role: &str) {
    // SAFETY: in a child of our own that ends at once.
    let can_unshare = unsafe {
        match libc::fork() {
            0 => libc::_exit(libc::unshare(libc::CLONE_NEWNS)),
            pid => {
                let mut status = -1;
                libc::waitpid(pid, &raw mut status, 0);
                status == 0
            }
        }
    };
    if !is_root() || !can_unshare {
        return common::skip::skip("cannot have mounts of its own; run as root with CAP_SYS_ADMIN");
    }
    Worker::start(role, Path::new("/")).succeeded();
}

fn attach() -> Ledger {
    let ledger = Ledger::attach(&StatePlace::Default, None);
    ledger.sharing().expect("shared");
    ledger
}

fn directory_of(ledger: &Ledger) -> PathBuf {
    ledger.path().expect("shared").parent().expect("in a directory").to_owned()
}

fn mode(path: &str) -> u32 {
    fs::symlink_metadata(path).expect("there").permissions().mode() & 0o7777
}

/// Another process of the same container, of another user.
fn second() {
    let ledger = attach();
    let gpu = ledger.gpu(GPU).expect("room");
    let _ = ledger.reserve(gpu, Want::exactly(2 * GIB), LIMIT).expect_err("the first has 3 GiB");
}

fn has_a_second(_: &Ledger) {
    let copy = Path::new("/run/this-test");
    fs::copy("/proc/self/exe", copy).expect("a copy that others may start");
    fs::set_permissions(copy, PermissionsExt::from_mode(0o755)).expect("ours");
    let mut second = std::process::Command::new(copy);
    let template = worker("second", Path::new("/"));
    second.envs(template.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let status = second.uid(65534).gid(65534).status().expect("it starts");
    assert!(status.success(), "{status}");
}

fn temporary_directory(_: &Path) {
    let ledger = attach();
    assert_eq!(directory_of(&ledger), Path::new("/tmp/cuquota"));
    assert_eq!((mode("/tmp/cuquota"), Path::new("/run/cuquota").exists()), (0o1777, false));
    let gpu = ledger.gpu(GPU).expect("room");
    ledger.reserve(gpu, Want::exactly(3 * GIB), LIMIT).expect("fits");
    has_a_second(&ledger);
}

#[test]
fn it_is_in_tmp_if_nothing_is_prepared() {
    run_privately("temporary");
}

fn prepared_directory(_: &Path) {
    fs::create_dir("/run/cuquota").expect("a directory");
    fs::set_permissions("/run/cuquota", PermissionsExt::from_mode(0o1777)).expect("ours");
    assert_eq!(directory_of(&attach()), Path::new("/run/cuquota"));
    assert!(!Path::new("/tmp/cuquota").exists());
}

#[test]
fn it_is_in_run_where_that_is_prepared() {
    run_privately("prepared");
}

/// A process that could not see the better place when it started, and one that could.
fn directory_made_late(_: &Path) {
    let first = attach();
    let gpu = first.gpu(GPU).expect("room");
    first.reserve(gpu, Want::exactly(3 * GIB), LIMIT).expect("fits");
    fs::create_dir("/run/cuquota").expect("a directory");
    // Whoever comes later goes where the others are.
    let second = attach();
    assert_eq!(directory_of(&second), Path::new("/tmp/cuquota"));
    // And if one has made a ledger there all the same, everybody goes to the better place.
    fs::copy(
        second.path().expect("shared"),
        Path::new("/run/cuquota").join(second.path().expect("shared").file_name().expect("a name")),
    )
    .expect("a ledger");
    let moved = || {
        first.housekeeping();
        second.housekeeping();
        directory_of(&first) == Path::new("/run/cuquota")
            && directory_of(&second) == Path::new("/run/cuquota")
    };
    within(Duration::from_secs(5), moved).expect("they move");
    let in_second = second.gpu(GPU).expect("room");
    let _ = second.reserve(in_second, Want::exactly(2 * GIB), LIMIT).expect_err("the first has 3 GiB");
    second.reserve(in_second, Want::exactly(GIB), LIMIT).expect("fits");
}

#[test]
fn all_processes_end_up_in_the_same_place() {
    run_privately("late");
}

fn overlay_on(path: &str, dir: &Path) {
    for inside in ["lower", "upper", "work"] {
        fs::create_dir_all(dir.join(inside)).expect("a directory");
    }
    let dir = dir.display();
    mount(
        "overlay",
        Path::new(path),
        &format!("lowerdir={dir}/lower,upperdir={dir}/upper,workdir={dir}/work"),
    );
}

fn overlay_is_avoided(dir: &Path) {
    overlay_on("/tmp", dir);
    assert_eq!(directory_of(&attach()), Path::new("/dev/shm/cuquota"));
    assert!(!Path::new("/tmp/cuquota").exists());
}

/// `/tmp` is usually on a container's root, an overlay, which cannot keep a lock without a descriptor.
#[test]
fn it_is_in_shared_memory_where_tmp_is_an_overlay() {
    run_privately("overlay");
}

fn overlay_if_need_be(dir: &Path) {
    overlay_on("/tmp", dir);
    mount("proc", Path::new("/dev/shm"), "");
    let ledger = attach();
    assert_eq!(directory_of(&ledger), Path::new("/tmp/cuquota"));
    let gpu = ledger.gpu(GPU).expect("room");
    ledger.reserve(gpu, Want::exactly(3 * GIB), LIMIT).expect("fits");
    has_a_second(&ledger);
}

#[test]
fn an_overlay_is_better_than_nothing() {
    run_privately("only-overlay");
}

fn foreign_directories(_: &Path) {
    // Somebody has been there before, and we are not root.
    for path in ["/run/cuquota", "/tmp/cuquota"] {
        fs::create_dir(path).expect("a directory");
        fs::set_permissions(path, PermissionsExt::from_mode(0o700)).expect("ours");
    }
    // SAFETY: gives up rights for good; this process has one thread.
    assert_eq!(unsafe { libc::setresuid(65534, 65534, 65534) }, 0);
    assert_eq!(directory_of(&attach()), Path::new("/dev/shm/cuquota"));
}

#[test]
fn a_directory_of_somebody_else_is_passed_by() {
    run_privately("foreign");
}

fn links_are_not_followed(_: &Path) {
    fs::create_dir("/dev/shm/elsewhere").expect("a directory");
    std::os::unix::fs::symlink("/dev/shm/elsewhere", "/tmp/cuquota").expect("a link");
    assert_eq!(directory_of(&attach()), Path::new("/dev/shm/cuquota"));
    assert_eq!(fs::read_dir("/dev/shm/elsewhere").expect("readable").count(), 0);
}

#[test]
fn a_link_in_place_of_a_directory_is_passed_by() {
    run_privately("link");
}

/// Two containers that share `/tmp`, and a process that changes its root after it has joined.
fn two_roots(dir: &Path) {
    let ledger = attach();
    let gpu = ledger.gpu(GPU).expect("room");
    ledger.reserve(gpu, Want::exactly(LIMIT), LIMIT).expect("fits");
    for inside in ["proc", "tmp"] {
        fs::create_dir(dir.join(inside)).expect("a directory");
    }
    let (from, to) = (c("/tmp"), c(dir.join("tmp").to_str().expect("plain")));
    // SAFETY: NUL terminated strings that outlive the call, the others may be null for this kind of call.
    let outcome =
        unsafe { libc::mount(from.as_ptr(), to.as_ptr(), std::ptr::null(), libc::MS_BIND, std::ptr::null()) };
    assert_eq!(outcome, 0);
    let root = c(dir.to_str().expect("plain"));
    // SAFETY: a NUL terminated string that outlives the call.
    assert_eq!(unsafe { libc::chroot(root.as_ptr()) }, 0);
    let other = attach();
    let in_other = other.gpu(GPU).expect("room");
    assert_eq!(directory_of(&other), Path::new("/tmp/cuquota"));
    other.reserve(in_other, Want::exactly(MIB), LIMIT).expect("another budget");
    // The first is still where it was, though its path leads nowhere now.
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(ledger.housekeeping(), None);
    assert_eq!(ledger.used(gpu), LIMIT);
    assert_ne!(ledger.path(), other.path());
}

#[test]
fn containers_that_share_a_directory_do_not_share_a_budget() {
    run_privately("two-roots");
}
