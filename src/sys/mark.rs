//! Marks on open files that go with them to whoever receives them.
//!
//! A descriptor that the driver hands out for memory looks like every other one of its: they lead to one device file. What
//! travels with an open file, through `fork` and over sockets, are its locks: a read lock far beyond the end of the file, whose
//! place is the mark. It disturbs nobody, whoever has the file can read it in `/proc/self/fdinfo`, and it is listed in
//! `/proc/locks` for as long as the file is open anywhere, also in a message that nobody has received yet.

use std::ffi::CString;
use std::io;

use super::file::File;

/// All marks are at least this, which is more than the length of any file.
pub const FIRST: u64 = 1 << 62;

/// The mark that is made of a number.
pub fn of(number: u64) -> u64 {
    FIRST | number >> 2
}

/// Marks the file behind a descriptor of the program's; false where it cannot be, or nobody could read it.
pub fn put(fd: i32, mark: u64) -> bool {
    // SAFETY: all zeros is a valid `flock`. `l_pid` has to be zero for this command.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = libc::F_RDLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = mark as libc::off_t;
    lock.l_len = 1;
    // SAFETY: a number that is no descriptor is refused; `lock` is valid for reads.
    let put = unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, core::ptr::from_mut(&mut lock)) } == 0;
    put && get(fd) == Some(mark) && all_open().is_some_and(|open| open.contains(&mark))
}

/// The mark of the file behind a descriptor; `None` where it has none, or several.
pub fn get(fd: i32) -> Option<u64> {
    let name = CString::new(format!("/proc/self/fdinfo/{fd}")).ok()?;
    let text = read(&name).ok()?;
    let mut marks = text.lines().filter(|line| line.starts_with("lock:")).filter_map(mark_in);
    marks.next().filter(|_| marks.next().is_none())
}

/// The marks of all files that are open anywhere; `None` where the kernel does not say.
pub fn all_open() -> Option<Vec<u64>> {
    let mut marks = Vec::new();
    // While locks come and go, one that stays can be missed between two parts of the list, but hardly again and again.
    for _ in 0..3 {
        marks.extend(read(c"/proc/locks").ok()?.lines().filter_map(mark_in));
    }
    Some(marks)
}

/// The mark in a line such as `1: OFDLCK ADVISORY READ -1 00:06:116 4611706034425731772 4611706034425731772`, which in
/// one of the lists has another word before.
fn mark_in(line: &str) -> Option<u64> {
    let mut words = line.split_ascii_whitespace().skip_while(|word| *word != "OFDLCK").skip(1);
    (words.nth(1)? == "READ").then_some(())?;
    let start: u64 = words.nth(2)?.parse().ok()?;
    let end: u64 = words.next()?.parse().ok()?;
    (start >= FIRST && start == end).then_some(start)
}

fn read(name: &core::ffi::CStr) -> io::Result<String> {
    let file = File::open(name, libc::O_RDONLY)?;
    let mut bytes = Vec::new();
    loop {
        let done = bytes.len();
        bytes.resize(done + 4096, 0);
        let more = file.read_at(bytes.get_mut(done..).unwrap_or_default(), done as u64)?;
        bytes.truncate(done + more);
        if more == 0 {
            return Ok(String::from_utf8_lossy(&bytes).into_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_in_either_list_and_nothing_else_is_taken_for_one() {
        let mark = of(u64::MAX);
        let line = format!("1: OFDLCK ADVISORY  READ -1 00:06:116 {mark} {mark}");
        assert_eq!(mark_in(&line), Some(mark));
        assert_eq!(mark_in(&format!("lock:\t{line}")), Some(mark));
        for other in [
            "1: OFDLCK ADVISORY  READ -1 00:06:116 0 EOF".to_owned(),
            format!("1: OFDLCK ADVISORY  WRITE -1 00:06:116 {mark} {mark}"),
            format!("1: POSIX  ADVISORY  READ 7 00:06:116 {mark} {mark}"),
            format!("1: OFDLCK ADVISORY  READ -1 00:06:116 {mark} EOF"),
            "OFDLCK".to_owned(),
        ] {
            assert_eq!(mark_in(&other), None, "{other}");
        }
    }

    #[test]
    fn a_mark_goes_with_the_open_file_and_ends_with_it() {
        let file = File::open(c"/dev/null", libc::O_RDWR).expect("everybody has it");
        let mark = of(u64::from(std::process::id()) << 30);
        let is_open = |mark| all_open().expect("the kernel lists locks").contains(&mark);
        assert_eq!((get(file.fd()), is_open(mark)), (None, false));
        assert!(put(file.fd(), mark));
        // SAFETY: a new descriptor of the same open file.
        let copy = unsafe { libc::dup(file.fd()) };
        drop(file);
        assert_eq!((get(copy), is_open(mark)), (Some(mark), true));
        // SAFETY: the descriptor made above.
        unsafe { libc::close(copy) };
        assert_eq!((get(copy), is_open(mark)), (None, false));
    }
}
