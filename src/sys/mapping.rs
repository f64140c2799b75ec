//! Memory shared through a file.

use core::ptr::{self, NonNull};
use std::io;

use super::file::File;

/// A file mapped for reading and writing, shared with all who map it, and not present in forked children.
///
/// The mapping keeps the open file description that it was made through, and with it the description's locks, until it is
/// unmapped, or the process calls `exec` or ends in whatever way. File systems that stand before another one (overlay)
/// keep a description of their own instead; whoever counts on this has to look.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is an address range; nothing about it belongs to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; what lies in the range is only handed out as a pointer.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of a file opened for reading and writing. An error where the kernel cannot keep the mapping
    /// from forked children.
    pub fn shared(file: &File, len: usize) -> io::Result<Mapping> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let Some(base) = NonNull::new(base.cast::<u8>()) else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let mapping = Mapping { base, len };
        // SAFETY: exactly the range just mapped.
        if unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_DONTFORK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(mapping)
    }

    /// The first byte. Valid for `len` bytes for as long as the mapping lives; touching bytes beyond the end of a file that was
    /// made shorter raises SIGBUS, until [`Mapping::detach`].
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Puts private zeros in the file's place, at the same addresses, for threads that still look there.
    pub fn detach(&self) -> bool {
        // SAFETY: replaces exactly our own range, by memory that is as valid for all the atomics in it.
        let base = unsafe {
            libc::mmap(
                self.base.as_ptr().cast(),
                self.len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        base != libc::MAP_FAILED
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that was mapped, which nobody borrows any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
