//! A neighbour that can only read a container's state, and puts read locks on all that it finds there.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use super::worker;

/// Locks everything, once and again, and keeps what it has.
pub const LOCKS_ALL: &str = "stranger-locks-all";
/// Locks and unlocks pieces at random, without end.
pub const LOCKS_PIECES: &str = "stranger-locks-pieces";

/// The process; killed when dropped.
pub struct Stranger(Child);

impl Stranger {
    /// Starts it on a directory of state; it has been over everything once when this returns.
    #[track_caller]
    pub fn start(role: &str, state: &Path) -> Stranger {
        let mut child = worker(role, state).stdout(Stdio::piped()).spawn().expect("this program starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        assert_eq!(line, "locked\n");
        Stranger(child)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Its roles; false where the role is another.
pub fn run(role: &str, state: &Path) -> bool {
    match role {
        LOCKS_ALL => locks(state, |file, _| lock_all(file), Duration::from_millis(2)),
        LOCKS_PIECES => locks(state, lock_pieces, Duration::ZERO),
        _ => return false,
    }
    true
}

fn locks(state: &Path, mut lock: impl FnMut(&File, &mut u64), pause: Duration) {
    let mut open: Vec<(PathBuf, File)> = Vec::new();
    let mut seed = u64::from(std::process::id());
    for round in 0_u64.. {
        for entry in state.read_dir().expect("a directory").flatten().filter(|entry| entry.path().is_file()) {
            let path = entry.path();
            if !open.iter().any(|(known, _)| *known == path)
                && let Ok(file) = File::open(&path)
            {
                open.push((path, file));
            }
        }
        open.retain(|(path, _)| path.exists());
        open.iter().for_each(|(_, file)| lock(file, &mut seed));
        if round == 0 {
            println!("locked");
            std::io::stdout().flush().expect("a pipe");
        }
        std::thread::sleep(pause);
    }
}

fn lock_all(file: &File) {
    let length = file.metadata().map_or(0, |metadata| metadata.len() as i64);
    if !set(file, libc::F_RDLCK, 0, 0) {
        // The living have something locked against it; around that it has all. A slot and an entry begin at such bytes.
        (0..length.max(64)).step_by(64).for_each(|at| {
            set(file, libc::F_RDLCK, at, 64);
        });
        set(file, libc::F_RDLCK, length, 0);
    }
}

fn lock_pieces(file: &File, seed: &mut u64) {
    let length = file.metadata().map_or(0, |metadata| metadata.len()).max(4096);
    for _ in 0..200 {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let (at, of) = ((*seed >> 33) % length, (*seed >> 13) % 100_000 + 1);
        let kind = if *seed >> 62 == 0 { libc::F_UNLCK } else { libc::F_RDLCK };
        // Mostly where the first slots are.
        let at = if *seed >> 60 & 1 == 0 { at } else { at % 32_768 };
        set(file, kind, at as i64, of as i64);
    }
}

/// Whether it has the lock.
fn set(file: &File, kind: i32, at: i64, length: i64) -> bool {
    // SAFETY: all zeros is a valid `flock`.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_start, lock.l_len) = (kind as i16, at, length);
    // SAFETY: the descriptor is open and `lock` outlives the call.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) == 0 }
}
