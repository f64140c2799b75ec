//! Writing a line somewhere without keeping anything open.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, Ordering};

/// What stderr was when the program started, as device and inode in one; 0 where there was none.
static STDERR: AtomicU64 = AtomicU64::new(0);

fn identity(descriptor: i32) -> Option<u64> {
    // SAFETY: all-zero is a valid `stat`, and fstat fills it or fails.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: `stat` is writable; any descriptor number may be asked about.
    let known = unsafe { libc::fstat(descriptor, &mut stat) } == 0;
    known.then(|| (stat.st_dev.rotate_left(40) ^ stat.st_ino).max(1))
}

/// Remembers what stderr is, before the program can put something else there.
pub fn remember_stderr() {
    STDERR.store(identity(libc::STDERR_FILENO).unwrap_or(0), Ordering::Relaxed);
}

/// Writes `line` with one system call, to the end of `file` or to stderr; keeps errno. Does nothing where there
/// was no stderr when the program started, or the file cannot be opened.
pub fn write_line(line: &[u8], file: Option<&CStr>) {
    // SAFETY: errno is the calling thread's own.
    let errno = unsafe { *libc::__errno_location() };
    match file {
        Some(path) => {
            let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC | libc::O_NOCTTY;
            // SAFETY: `path` is a C string.
            let descriptor = unsafe { libc::open(path.as_ptr(), flags, 0o644) };
            if descriptor >= 0 {
                // SAFETY: the buffer is `line`; the descriptor was opened here and is closed once.
                unsafe {
                    libc::write(descriptor, line.as_ptr().cast(), line.len());
                    libc::close(descriptor);
                }
            }
        }
        None if STDERR.load(Ordering::Relaxed) != 0 => {
            // SAFETY: the buffer is `line`.
            unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
        }
        None => {}
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}
