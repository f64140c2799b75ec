//! Who this process is, as others can see it.

use core::ffi::CStr;

use super::file::{File, Status};

/// What a process says of itself in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Me {
    /// Process id in its own namespace.
    pub pid: u32,
    /// Effective user.
    pub uid: u32,
    /// Start time in clock ticks since boot; 0 without `/proc`.
    pub start: u64,
    /// Inode of the process id namespace; 0 without `/proc`.
    pub pid_namespace: u64,
    /// Name, NUL padded.
    pub comm: [u8; 16],
}

impl Me {
    /// Looks this process up.
    pub fn look() -> Me {
        Me {
            pid: std::process::id(),
            // SAFETY: no arguments, cannot fail.
            uid: unsafe { libc::geteuid() },
            start: start_time().unwrap_or(0),
            pid_namespace: Status::behind(c"/proc/self/ns/pid").map_or(0, |status| status.identity.inode),
            comm: comm(),
        }
    }
}

fn start_time() -> Option<u64> {
    let mut text = [0; 1024];
    let read = read_proc(c"/proc/self/stat", &mut text);
    // The name stands in parentheses and may contain anything, also spaces and parentheses.
    let after_name = read.rsplit(|byte| *byte == b')').next()?;
    core::str::from_utf8(after_name).ok()?.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn comm() -> [u8; 16] {
    let mut name = [0; 16];
    let mut text = [0; 64];
    let read = read_proc(c"/proc/self/comm", &mut text);
    let line = read.strip_suffix(b"\n").unwrap_or(read);
    name.iter_mut().zip(line.iter().take(15)).for_each(|(to, from)| *to = *from);
    name
}

fn read_proc<'a>(path: &CStr, text: &'a mut [u8]) -> &'a [u8] {
    let read = File::open(path, libc::O_RDONLY).and_then(|file| file.read_at(text, 0)).unwrap_or(0);
    text.get(..read).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_itself() {
        let me = Me::look();
        assert_eq!(me.pid, std::process::id());
        let stat = std::fs::read_to_string("/proc/self/stat").expect("proc is mounted");
        assert!(stat.contains(&format!(" {} ", me.start)), "{me:?}: {stat}");
        assert_ne!(me.pid_namespace, 0);
        let comm = std::fs::read_to_string("/proc/self/comm").expect("proc is mounted");
        assert_eq!(
            comm.trim_end().as_bytes(),
            CStr::from_bytes_until_nul(&me.comm).expect("padded").to_bytes()
        );
    }
}
