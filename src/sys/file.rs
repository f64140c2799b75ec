//! Files opened for a moment, without a trace in the program that we live in.
//!
//! The C library's `open`, `close` and `pread` are points where a thread can be cancelled, which must not happen inside a
//! hook, and other preloaded libraries may stand before them. So these are system calls. Whatever is open while another
//! thread forks is closed in the child: a description that a child inherits keeps its locks alive.

use core::ffi::CStr;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::io;
use std::sync::OnceLock;

use super::clock::coarse_millis;
use super::fork;

/// An open file, closed when dropped and in a forked child, and never inherited by a program started with `exec`.
#[derive(Debug)]
pub struct File {
    fd: i32,
}

/// Which file: a device and an inode on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
}

/// What `stat` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Which file it is.
    pub identity: Identity,
    /// Whether it is a regular file.
    pub regular: bool,
    /// Bytes in it.
    pub size: u64,
    /// Bytes that it takes on its file system.
    pub allocated: u64,
}

/// `flags` for a directory that other names are looked up in.
pub const DIRECTORY: i32 = libc::O_PATH | libc::O_DIRECTORY;

impl File {
    /// Opens a path. Never follows a symbolic link in its last component, never blocks on a FIFO, never becomes a
    /// controlling terminal.
    pub fn open(path: &CStr, flags: i32) -> io::Result<File> {
        File::open_at(libc::AT_FDCWD, path, flags, 0)
    }

    /// Opens a path to read from it, also behind a symbolic link.
    pub fn open_behind(path: &CStr) -> io::Result<File> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
        // SAFETY: `path` is NUL terminated and outlives the call.
        File::made(
            || unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0) } as i32
        )
    }

    /// Opens a name in this directory, as [`File::open`] does. `mode` counts if the flags create a file.
    pub fn open_in(&self, name: &CStr, flags: i32, mode: u32) -> io::Result<File> {
        File::open_at(self.fd, name, flags, mode)
    }

    /// Opens a directory in this one only to look names up in it, also behind a symbolic link.
    pub fn directory_in(&self, name: &CStr) -> io::Result<File> {
        let flags = DIRECTORY | libc::O_CLOEXEC;
        // SAFETY: `name` is NUL terminated and outlives the call; the descriptor is ours and open.
        File::made(|| unsafe { libc::syscall(libc::SYS_openat, self.fd, name.as_ptr(), flags, 0) } as i32)
    }

    fn open_at(dir: i32, path: &CStr, flags: i32, mode: u32) -> io::Result<File> {
        let flags = flags | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        // SAFETY: `path` is NUL terminated and outlives the call.
        File::made(|| unsafe { libc::syscall(libc::SYS_openat, dir, path.as_ptr(), flags, mode) } as i32)
    }

    fn made(make: impl FnOnce() -> i32) -> io::Result<File> {
        close_in_children();
        LAST_OPEN.store(coarse_millis(), Ordering::Relaxed);
        let fd = make();
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        HIGHEST.fetch_max(fd, Ordering::Relaxed);
        Ok(File { fd })
    }

    /// The descriptor, for calls that are not here.
    pub fn fd(&self) -> i32 {
        self.fd
    }

    /// What the file is now.
    pub fn status(&self) -> io::Result<Status> {
        let mut stat = MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: the descriptor is ours and open; `stat` has room for the answer.
        check(unsafe { libc::fstat(self.fd, stat.as_mut_ptr()) })?;
        // SAFETY: all zeros is a valid `stat`, and so is what the kernel wrote.
        Ok(Status::of(unsafe { stat.assume_init_ref() }))
    }

    /// Reads from an offset until `bytes` is full or the file ends; how many were read.
    pub fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(done as u64);
            // SAFETY: `rest` is valid for writes of its length; the descriptor is ours and open.
            let n = unsafe {
                libc::syscall(libc::SYS_pread64, self.fd, rest.as_mut_ptr(), rest.len(), at as libc::off_t)
            };
            match n {
                0 => break,
                n if n > 0 => done += n as usize,
                _ if interrupted() => {}
                _ => return Err(io::Error::last_os_error()),
            }
        }
        Ok(done)
    }

    /// Writes all of `bytes` at an offset.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(done as u64);
            // SAFETY: `rest` is valid for reads of its length; the descriptor is ours and open.
            let n = unsafe {
                libc::syscall(libc::SYS_pwrite64, self.fd, rest.as_ptr(), rest.len(), at as libc::off_t)
            };
            match n {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                n if n > 0 => done += n as usize,
                _ if interrupted() => {}
                _ => return Err(io::Error::last_os_error()),
            }
        }
        Ok(())
    }

    /// Makes the file `size` zero bytes that the file system has really set aside: storing to a mapping of it cannot
    /// run out of space later. An error where the process's file size limit (which would kill it) or the disk says no.
    pub fn allocate(&self, size: u64) -> io::Result<()> {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` has room for the answer.
        check(unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) })?;
        if limit.rlim_cur < size {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        loop {
            // SAFETY: no pointers; the descriptor is ours and open.
            let outcome = unsafe { libc::syscall(libc::SYS_fallocate, self.fd, 0, 0i64, size as i64) };
            match check(outcome as i32) {
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) => break,
                outcome => return outcome,
            }
        }
        let zeros = [0; 4096];
        let mut at = 0;
        while at < size {
            let n = (size - at).min(zeros.len() as u64);
            self.write_at(zeros.get(..n as usize).unwrap_or(&zeros), at)?;
            at += n;
        }
        Ok(())
    }

    /// Sets the permissions, whatever the umask says.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        // SAFETY: no pointers; the descriptor is ours and open.
        check(unsafe { libc::fchmod(self.fd, mode) })
    }

    /// Gives a file without a name (`O_TMPFILE`) a name in `dir`, unless that is taken. Needs `/proc`.
    pub fn name(&self, dir: &File, name: &CStr) -> io::Result<()> {
        let this = format!("/proc/self/fd/{}\0", self.fd);
        // SAFETY: both strings are NUL terminated and outlive the call; the descriptors are ours and open.
        check(unsafe {
            libc::linkat(libc::AT_FDCWD, this.as_ptr().cast(), dir.fd, name.as_ptr(), libc::AT_SYMLINK_FOLLOW)
        })
    }

    /// Gives the file `from` in this directory a second name, unless that is taken.
    pub fn link_in(&self, from: &CStr, to: &CStr) -> io::Result<()> {
        // SAFETY: both strings are NUL terminated and outlive the call; the descriptor is ours and open.
        check(unsafe { libc::linkat(self.fd, from.as_ptr(), self.fd, to.as_ptr(), 0) })
    }

    /// Removes a name from this directory.
    pub fn unlink_in(&self, name: &CStr) -> io::Result<()> {
        // SAFETY: `name` is NUL terminated and outlives the call; the descriptor is ours and open.
        check(unsafe { libc::unlinkat(self.fd, name.as_ptr(), 0) })
    }

    /// Whether it lies on a file system that stands before another one, as a container's root usually does.
    pub fn on_overlay(&self) -> bool {
        let mut stat = MaybeUninit::<libc::statfs>::zeroed();
        // SAFETY: the descriptor is ours and open; `stat` has room for the answer.
        let outcome = unsafe { libc::fstatfs(self.fd, stat.as_mut_ptr()) };
        // SAFETY: all zeros is a valid `statfs`, and so is what the kernel wrote.
        outcome == 0 && unsafe { stat.assume_init() }.f_type == libc::OVERLAYFS_SUPER_MAGIC
    }
}

impl Drop for File {
    fn drop(&mut self) {
        LAST_OPEN.store(coarse_millis(), Ordering::Relaxed);
        close(self.fd);
    }
}

/// A file that stays open for its locks in a program that knows nothing of it, and may close it or use its number for
/// something else.
#[derive(Debug)]
pub struct Kept {
    fd: AtomicI32,
    identity: Identity,
}

impl Kept {
    /// Keeps a file under a number that programs do not expect to be free, if there is one.
    pub fn new(file: File) -> io::Result<Kept> {
        let identity = file.status()?.identity;
        KEEPING.store(true, Ordering::Relaxed);
        // SAFETY: no pointers; the descriptor is ours and open.
        let high = File::made(|| unsafe { libc::fcntl(file.fd, libc::F_DUPFD_CLOEXEC, 500) });
        let file = ManuallyDrop::new(high.unwrap_or(file));
        Ok(Kept { fd: AtomicI32::new(file.fd), identity })
    }

    /// Closes it, if it is still what it was. Only the first call does anything.
    pub fn close(&self) {
        let fd = self.fd.swap(-1, Ordering::AcqRel);
        let file = ManuallyDrop::new(File { fd });
        if file.status().is_ok_and(|status| status.identity == self.identity) {
            close(fd);
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.close();
    }
}

impl Status {
    fn of(stat: &libc::stat) -> Status {
        Status {
            identity: Identity { device: stat.st_dev, inode: stat.st_ino },
            regular: stat.st_mode & libc::S_IFMT == libc::S_IFREG,
            size: stat.st_size.max(0) as u64,
            allocated: (stat.st_blocks.max(0) as u64).saturating_mul(512),
        }
    }

    /// What a path leads to; a symbolic link at its end is not followed.
    pub fn of_path(path: &CStr) -> io::Result<Status> {
        Status::at(path, libc::AT_SYMLINK_NOFOLLOW)
    }

    /// What a path leads to behind all symbolic links.
    pub fn behind(path: &CStr) -> io::Result<Status> {
        Status::at(path, 0)
    }

    fn at(path: &CStr, flags: i32) -> io::Result<Status> {
        let mut stat = MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: `path` is NUL terminated; `stat` has room for the answer; both outlive the call.
        check(unsafe { libc::fstatat(libc::AT_FDCWD, path.as_ptr(), stat.as_mut_ptr(), flags) })?;
        // SAFETY: all zeros is a valid `stat`, and so is what the kernel wrote.
        Ok(Status::of(unsafe { stat.assume_init_ref() }))
    }
}

/// Makes a directory with exactly this mode, whatever the umask says. Whether it was us that made it.
pub fn make_directory(path: &CStr, mode: u32) -> io::Result<bool> {
    // SAFETY: `path` is NUL terminated and outlives the call.
    match check(unsafe { libc::mkdir(path.as_ptr(), mode) }) {
        Ok(()) => {
            File::open(path, libc::O_RDONLY | libc::O_DIRECTORY)?.set_mode(mode)?;
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

fn check(outcome: i32) -> io::Result<()> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn interrupted() -> bool {
    io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
}

// A child cannot be told which descriptors of ours it got: `fork` copies the table of descriptors first and memory some time
// later, so that what memory says is about another moment. It looks at what it has.

/// When a file was last opened or closed here, in milliseconds of the coarse clock.
static LAST_OPEN: AtomicU64 = AtomicU64::new(0);
/// A file stays open.
static KEEPING: AtomicBool = AtomicBool::new(false);
/// No descriptor of ours was ever higher.
static HIGHEST: AtomicI32 = AtomicI32::new(255);
/// Longer than a `fork` takes, in milliseconds.
const FORKING: u64 = 5000;
static OURS: OnceLock<fn(&Status, [u8; 8]) -> bool> = OnceLock::new();
static CHILD_HANDLER: AtomicBool = AtomicBool::new(false);

/// Says how to tell our files by their status and their first bytes: a child that was forked while one was open closes it.
/// Called in a forked child of a program with threads: it may only compute.
pub fn recognise(ours: fn(&Status, [u8; 8]) -> bool) {
    let _ = OURS.set(ours);
}

fn close_in_children() {
    if !CHILD_HANDLER.load(Ordering::Relaxed) && !CHILD_HANDLER.swap(true, Ordering::AcqRel) {
        fork::at_fork_in_child(close_all);
    }
}

extern "C" fn close_all() {
    let recently = coarse_millis().wrapping_sub(LAST_OPEN.load(Ordering::Relaxed)) < FORKING;
    if (recently || KEEPING.load(Ordering::Relaxed))
        && let Some(ours) = OURS.get()
    {
        (0..=HIGHEST.load(Ordering::Relaxed)).filter(|fd| is_ours(*fd, *ours)).for_each(close);
    }
}

fn is_ours(fd: i32, ours: fn(&Status, [u8; 8]) -> bool) -> bool {
    // Not `drop`ped: it may be the program's.
    let file = ManuallyDrop::new(File { fd });
    let mut head = [0; 8];
    file.status().is_ok_and(|status| {
        // Reading disturbs nothing in a regular file.
        status.regular && file.read_at(&mut head, 0).is_ok() && ours(&status, head)
    })
}

fn close(fd: i32) {
    // SAFETY: closes a descriptor that the caller owns, and uses no memory.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}
