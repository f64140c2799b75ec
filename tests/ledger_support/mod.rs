//! What the ledger's tests share: worker processes (the test program started again), and memory to meet them in.
#![allow(dead_code)] // each test uses a part of it

pub mod stranger;

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cuquota::config::StatePlace;
use cuquota::ledger::{GpuIndex, Ledger};
use cuquota::sys::file::File;
use cuquota::sys::mapping::Mapping;

pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;
pub const GPU: [u8; 16] = *b"GPU-0123456789ab";

const ROLE: &str = "LEDGER_TEST_ROLE";
const DIRECTORY: &str = "LEDGER_TEST_DIR";

/// Has `$run` called with the role and the directory where this program was started as a worker, before the test harness.
#[macro_export]
macro_rules! workers {
    ($run:path) => {
        extern "C" fn before_main() {
            if let Some((role, dir)) = $crate::ledger_support::role() {
                $run(&role, &dir);
                std::process::exit(0);
            }
        }
        // SAFETY: the loader calls what is here once the libraries are set up, and ignores arguments and answer.
        #[used]
        #[unsafe(link_section = ".init_array")]
        static BEFORE_MAIN: extern "C" fn() = before_main;
    };
}

pub fn role() -> Option<(String, std::path::PathBuf)> {
    let role = std::env::var(ROLE).ok()?;
    Some((role, std::env::var_os(DIRECTORY)?.into()))
}

/// Starts this program as a worker.
pub fn worker(role: &str, dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.env(ROLE, role).env(DIRECTORY, dir).stdin(Stdio::null());
    command
}

/// A started worker, killed and reaped when dropped.
pub struct Worker(pub Child);

impl Worker {
    pub fn start(role: &str, dir: &Path) -> Worker {
        Worker(worker(role, dir).spawn().expect("this program starts"))
    }

    pub fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: signals a child that has not been reaped, so that its id is still its own.
        assert_eq!(unsafe { libc::kill(self.pid(), signal) }, 0);
    }

    pub fn succeeded(mut self) {
        let status = self.0.wait().expect("a child to wait for");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The ledger in `dir`, which has to be shared.
pub fn attach(dir: &Path) -> (Ledger, GpuIndex) {
    let ledger = Ledger::attach(&StatePlace::Explicit(dir.to_owned()), None);
    ledger.sharing().expect("the directory is fine");
    let gpu = ledger.gpu(GPU).expect("room for one GPU");
    (ledger, gpu)
}

/// Polls until `done`, at most this long; how long it took.
pub fn within(limit: Duration, mut done: impl FnMut() -> bool) -> Option<Duration> {
    let since = Instant::now();
    loop {
        if done() {
            return Some(since.elapsed());
        }
        if since.elapsed() > limit {
            return None;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// A page of numbers that all workers of a test see.
pub struct Page(Mapping);

impl Page {
    /// The page of the test in `dir`, all zeros at first.
    pub fn of(dir: &Path) -> Page {
        let path = dir.join("page");
        std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .expect("a file")
            .set_len(4096)
            .expect("room");
        let path = CString::new(path.as_os_str().as_bytes()).expect("no NUL in a path");
        let file = File::open(&path, libc::O_RDWR).expect("just made");
        Page(Mapping::shared(&file, 4096).expect("a mapping"))
    }

    pub fn number(&self, at: usize) -> &AtomicU64 {
        assert!(at < 256);
        // SAFETY: within the first half of the page, aligned, atomics only.
        unsafe { self.0.base().cast::<AtomicU64>().add(at).as_ref() }
    }

    fn half(&self, at: usize) -> &AtomicU32 {
        assert!(at < 256);
        // SAFETY: within the second half of the page, aligned, atomics only.
        unsafe { self.0.base().add(2048).cast::<AtomicU32>().add(at).as_ref() }
    }

    /// A barrier for this many threads of whatever processes.
    pub fn barrier(&self, threads: u32) -> Barrier<'_> {
        Barrier { waiting: self.half(0), round: self.half(32), threads }
    }
}

/// Waits in the kernel: more threads meet here than there are processors.
pub struct Barrier<'a> {
    waiting: &'a AtomicU32,
    round: &'a AtomicU32,
    threads: u32,
}

impl Barrier<'_> {
    /// Waits for the others; true for one of them. Ends the process if they do not come within a minute.
    pub fn wait(&self) -> bool {
        let round = self.round.load(Ordering::SeqCst);
        if self.waiting.fetch_add(1, Ordering::SeqCst) + 1 == self.threads {
            self.waiting.store(0, Ordering::SeqCst);
            self.round.fetch_add(1, Ordering::SeqCst);
            // SAFETY: wakes whoever waits at the address of a number that outlives the call.
            unsafe { libc::syscall(libc::SYS_futex, self.round.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
            return true;
        }
        let since = Instant::now();
        while self.round.load(Ordering::SeqCst) == round {
            let limit = libc::timespec { tv_sec: 1, tv_nsec: 0 };
            // SAFETY: waits at the address of a number that outlives the call, for at most the time given.
            unsafe {
                libc::syscall(libc::SYS_futex, self.round.as_ptr(), libc::FUTEX_WAIT, round, &raw const limit)
            };
            if since.elapsed() > Duration::from_secs(60) {
                eprintln!("the others did not come to the barrier");
                std::process::exit(2);
            }
        }
        false
    }
}

pub fn is_root() -> bool {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Something mounted for as long as this lives.
pub struct Mount(tempfile::TempDir);

impl Mount {
    /// An overlay, which a container's root usually is.
    pub fn overlay() -> Option<Mount> {
        Mount::new("overlay", |dir| {
            let dir = dir.display();
            format!("lowerdir={dir}/lower,upperdir={dir}/upper,workdir={dir}/work")
        })
    }

    /// `mount -t KIND -o OPTIONS`, or a visible skip.
    pub fn new(kind: &str, options: impl Fn(&Path) -> String) -> Option<Mount> {
        let dir = tempfile::tempdir().expect("temporary directory");
        for inside in ["lower", "upper", "work", "on"] {
            std::fs::create_dir(dir.path().join(inside)).expect("a directory");
        }
        let options = options(dir.path());
        let mount = std::process::Command::new("mount")
            .args(["-t", kind, "-o", &options, kind])
            .arg(dir.path().join("on"))
            .output();
        match mount {
            Ok(output) if is_root() && output.status.success() => Some(Mount(dir)),
            _ => {
                crate::common::skip::skip(&format!("cannot mount a {kind}; run as root with CAP_SYS_ADMIN"));
                None
            }
        }
    }

    pub fn path(&self) -> std::path::PathBuf {
        self.0.path().join("on")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
