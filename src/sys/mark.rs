//! Marks on open files that go with them to whoever receives them.
//!
//! A descriptor that the driver hands out for memory looks like every other one of its: they lead to one device file. What
//! travels with an open file, through `fork` and over sockets, are its locks: a read lock far beyond the end of the file, whose
//! place is the mark. It disturbs nobody, whoever has the file can read it in `/proc/self/fdinfo`, and it is listed in
//! `/proc/locks` for as long as the file is open anywhere, also in a message that nobody has received yet.

use std::ffi::CString;
use std::io;

use super::file::File;

/// All marks are at places from here on, beyond the length of any file.
const FIRST: u64 = 1 << 62;

/// A mark that is on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Its place, to mark another open file of the same kind with.
    pub place: u64,
    /// What tells it from all others, also from one at the same place on another file, which a stranger could put there. Not 0.
    pub id: u64,
}

/// The place that is made of a number.
pub fn place(number: u64) -> u64 {
    FIRST | number >> 2
}

/// Marks the file behind a descriptor of the program's at a [`place`]; `None` where it cannot be, or nobody could read it.
pub fn put(fd: i32, place: u64) -> Option<Mark> {
    // SAFETY: all zeros is a valid `flock`. `l_pid` has to be zero for this command.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = libc::F_RDLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = place as libc::off_t;
    lock.l_len = 1;
    // SAFETY: a number that is no descriptor is refused; `lock` is valid for reads.
    let put = unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, core::ptr::from_mut(&mut lock)) } == 0;
    let mark = get(fd).filter(|mark| put && mark.place == place)?;
    all_open()?.contains(&mark.id).then_some(mark)
}

/// The mark of the file behind a descriptor; `None` where it has none, or several.
pub fn get(fd: i32) -> Option<Mark> {
    let name = CString::new(format!("/proc/self/fdinfo/{fd}")).ok()?;
    let text = read(&name).ok()?;
    let mut marks = text.lines().filter(|line| line.starts_with("lock:")).filter_map(mark_in);
    marks.next().filter(|_| marks.next().is_none())
}

/// The ids of the marks on all files that are open anywhere; `None` where the kernel does not say.
pub fn all_open() -> Option<Vec<u64>> {
    let mut marks = Vec::new();
    // While locks come and go, one that stays can be missed between two parts of the list, but hardly again and again.
    for _ in 0..3 {
        marks.extend(read(c"/proc/locks").ok()?.lines().filter_map(mark_in).map(|mark| mark.id));
    }
    Some(marks)
}

/// The mark in a line such as `1: OFDLCK ADVISORY READ -1 00:06:116 4611706034425731772 4611706034425731772`, which in
/// one of the lists has another word before. The word with the colons is the device and the inode.
fn mark_in(line: &str) -> Option<Mark> {
    let mut words = line.split_ascii_whitespace().skip_while(|word| *word != "OFDLCK").skip(1);
    (words.nth(1)? == "READ").then_some(())?;
    let file = words.nth(1)?;
    let place: u64 = words.next()?.parse().ok()?;
    let end: u64 = words.next()?.parse().ok()?;
    let step = |id: u64, byte: u8| (id ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    let id = file.bytes().chain(place.to_ne_bytes()).fold(0xCBF2_9CE4_8422_2325, step);
    (place >= FIRST && place == end).then_some(Mark { place, id: id.max(1) })
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
        let mark = place(u64::MAX);
        let line = format!("1: OFDLCK ADVISORY  READ -1 00:06:116 {mark} {mark}");
        let found = mark_in(&line).unwrap();
        assert_eq!(found.place, mark);
        assert_eq!(mark_in(&format!("lock:\t{line}")), Some(found));
        let elsewhere = mark_in(&line.replace("00:06:116", "00:06:117")).unwrap();
        assert!(elsewhere.place == mark && elsewhere.id != found.id);
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
        let place = place(u64::from(std::process::id()) << 30);
        let is_open = |mark: Mark| all_open().expect("the kernel lists locks").contains(&mark.id);
        assert_eq!(get(file.fd()), None);
        let mark = put(file.fd(), place).expect("marked");
        // SAFETY: a new descriptor of the same open file.
        let copy = unsafe { libc::dup(file.fd()) };
        drop(file);
        assert_eq!((get(copy), is_open(mark)), (Some(mark), true));
        // SAFETY: the descriptor made above.
        unsafe { libc::close(copy) };
        assert!(!is_open(mark));
    }
}
