//! How large an image of code is, which the driver is given without its size: an ELF file, a fat binary or the text of PTX, in
//! memory or in a file.
//!
//! Only headers and texts are read, and only what they say is there. Nothing in them is trusted: memory is asked for before it
//! is touched, sums stop at their ends, and what is not understood has no size.

use core::ffi::{CStr, c_void};

use super::file::{File, Status};

mod text;

/// What an image may take for each byte of it: code grows when it is compiled for a card, and is aligned there.
const FOR_A_BYTE: u64 = 8;
/// The same of what is compressed, or in a format that is not known.
const FOR_A_HIDDEN_BYTE: u64 = 64;
/// No image is larger than this many bytes.
const LARGEST: u64 = 4 << 30;
/// Sections and entries that are looked at.
const MOST_PARTS: u64 = 1 << 20;

const ELF: [u8; 4] = *b"\x7fELF";
const FAT_WRAPPER: u32 = 0x466243b1;
const FAT: u32 = 0xba55ed50;

/// Where an image lies.
enum Source {
    /// From an address of this process on.
    Memory(usize),
    /// At the beginning of a file.
    File(File),
}

/// The most bytes that the code and the variables of an image in memory take on a card, beside what any image may;
/// `u64::MAX` where that is not to be told.
///
/// # Safety
/// Nobody writes to the image meanwhile. It need not be one: what is not there is not read.
#[cold]
pub unsafe fn weight_in_memory(image: *const c_void) -> u64 {
    Source::Memory(image.addr()).weight(LARGEST).unwrap_or(u64::MAX)
}

/// The same of an image in a file.
#[cold]
pub fn weight_of_file(path: &CStr) -> u64 {
    // Opening something else than a file might do something.
    let regular = Status::behind(path).is_ok_and(|status| status.regular);
    let file = regular.then(|| File::open_behind(path).ok()).flatten();
    let size = file.as_ref().and_then(|file| file.status().ok()).map_or(0, |status| status.size);
    file.and_then(|file| Source::File(file).weight(size)).unwrap_or(u64::MAX)
}

impl Source {
    /// Reads from an offset until `bytes` is full or there is no more; how many were read.
    fn read(&self, bytes: &mut [u8], offset: u64) -> usize {
        match self {
            Source::File(file) => file.read_at(bytes, offset).unwrap_or(0),
            Source::Memory(base) => usize::try_from(offset)
                .ok()
                .and_then(|offset| base.checked_add(offset))
                .map_or(0, |address| copy(address, bytes)),
        }
    }

    /// So many bytes at an offset, if all of them are there.
    fn array<const N: usize>(&self, offset: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        (self.read(&mut bytes, offset) == N).then_some(bytes)
    }

    fn weight(&self, size: u64) -> Option<u64> {
        let head = self.array::<4>(0).unwrap_or_default();
        match u32::from_le_bytes(head) {
            FAT_WRAPPER => {
                let wrapper = self.array::<16>(0)?;
                // Another version has more than one image.
                if !matches!(self, Source::Memory(_)) || number::<4>(&wrapper, 4) != 1 {
                    return None;
                }
                Source::Memory(usize::try_from(number::<8>(&wrapper, 8)).ok()?).fat(LARGEST)
            }
            FAT => self.fat(size),
            _ if head == ELF => self.elf(0, size),
            _ => self.text(0, size).map(|(_, weight)| weight),
        }
    }

    /// An ELF file at an offset, of at most `size` bytes: all that is in it, and what its sections take beside.
    fn elf(&self, at: u64, size: u64) -> Option<u64> {
        const SECTION: u64 = 64;
        const NOBITS: u64 = 8;
        let header = self.array::<64>(at).filter(|header| header.starts_with(&ELF))?;
        let (class, order) = (number::<1>(&header, 4), number::<1>(&header, 5));
        let (table, entry) = (number::<8>(&header, 40), number::<2>(&header, 58));
        if (class, order, entry) != (2, 1, SECTION) || table == 0 || table > size {
            return None;
        }
        let section = |index: u64| self.array::<64>(at + table + index * SECTION);
        let count = match number::<2>(&header, 60) {
            // More than a header can tell are told by the first section.
            0 => number::<8>(&section(0)?, 32),
            count => count,
        };
        if count > MOST_PARTS {
            return None;
        }
        let segments =
            number::<8>(&header, 32).saturating_add(number::<2>(&header, 54) * number::<2>(&header, 56));
        let (mut end, mut beside) = (segments.max(table + count * SECTION), 0u64);
        for index in 0..count {
            let section = section(index)?;
            let bytes = number::<8>(&section, 32);
            match number::<4>(&section, 4) {
                NOBITS => beside = beside.saturating_add(bytes),
                // The first one is none.
                0 => {}
                _ => end = end.max(number::<8>(&section, 24).saturating_add(bytes)),
            }
        }
        Some(end.saturating_mul(FOR_A_BYTE).saturating_add(beside))
    }

    /// A fat binary of at most `size` bytes: images for several kinds of cards, of which all are counted.
    fn fat(&self, size: u64) -> Option<u64> {
        let header = self.array::<16>(0).filter(|header| number::<4>(header, 0) == u64::from(FAT))?;
        let (first, bytes) = (number::<2>(&header, 6), number::<8>(&header, 8));
        let end = first.checked_add(bytes).filter(|end| first >= 16 && *end <= size)?;
        let hidden = Some(end.saturating_mul(FOR_A_HIDDEN_BYTE));
        let (mut at, mut sum) = (first, 0u64);
        for _ in 0..MOST_PARTS {
            if at >= end {
                return Some(sum);
            }
            let Some(entry) = self.array::<16>(at) else { return hidden };
            let (skip, bytes) = (number::<4>(&entry, 4), number::<8>(&entry, 8));
            let from = at + skip;
            if skip < 16 || from > end || bytes > end - from {
                return hidden;
            }
            // What is compressed may look like the beginning of a text, but not like one to its end, where zeros fill it up.
            let hidden = bytes.saturating_mul(FOR_A_HIDDEN_BYTE);
            let known = match self.array::<4>(from) {
                Some(ELF) => self.elf(from, bytes),
                _ => self.text(from, bytes).filter(|(read, _)| bytes - read < 16).map(|(_, weight)| weight),
            };
            sum = sum.saturating_add(known.unwrap_or(hidden));
            at = from + bytes;
        }
        hidden
    }

    /// The text of PTX at an offset, up to a NUL, to its end, or `size` bytes: its length and its weight.
    fn text(&self, at: u64, size: u64) -> Option<(u64, u64)> {
        let (mut chunk, mut read, mut scan) = ([0; 4096], 0, text::Scan::default());
        while read < size {
            let most = chunk.len().min(usize::try_from(size - read).unwrap_or(usize::MAX));
            let got = self.read(chunk.get_mut(..most)?, at + read);
            let got = chunk.get(..got)?;
            let text = got.split(|byte| *byte == 0).next()?;
            for byte in text {
                // Not a text, then.
                if !(byte.is_ascii_graphic() || byte.is_ascii_whitespace() || byte & 0x80 != 0) {
                    return None;
                }
                scan.push(*byte);
            }
            read += text.len() as u64;
            if text.len() < most {
                break;
            }
        }
        Some((read, read.saturating_mul(FOR_A_BYTE).saturating_add(scan.variables()?)))
    }
}

/// The little-endian number of N bytes at an offset, which has to be there.
fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut wide = [0; 8];
    let part = bytes.get(at..at + N).unwrap_or_default();
    wide.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
    u64::from_le_bytes(wide)
}

/// Copies from an address of this process until `bytes` is full or no memory is there; how many bytes it were.
fn copy(address: usize, bytes: &mut [u8]) -> usize {
    const PAGE: usize = 4096;
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        let Some(from) = address.checked_add(done).filter(|from| is_readable(*from)) else { break };
        let len = rest.len().min(PAGE - from % PAGE);
        // SAFETY: `len` bytes of one page, which the kernel has just read from itself; `rest` has room for them and is ours
        // alone. The image is the program's, which must not change it while the driver reads it, that is, during this call.
        unsafe { core::ptr::copy_nonoverlapping(from as *const u8, rest.as_mut_ptr(), len) };
        done += len;
    }
    done
}

/// Whether there is memory to be read in the page of an address. The kernel is asked, by a request that it refuses in any case:
/// to change the set of blocked signals in a way that does not exist, for one reason if it could read the set and for another if
/// not.
fn is_readable(address: usize) -> bool {
    const NO_WAY: i32 = -1;
    const SET: usize = 8;
    // A set that lies in the page as a whole.
    let set = address & !(SET - 1);
    // SAFETY: nothing is changed: the kernel refuses this way to change the set, and reads the set only itself.
    let answer =
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, NO_WAY, set, core::ptr::null_mut::<u8>(), SET) };
    answer == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL)
}

#[cfg(test)]
mod tests;
