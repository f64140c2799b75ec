//! Open-file-description locks: the kernel's word on who is alive.
//!
//! Such a lock belongs to an open file description, conflicts across containers and process id namespaces, and goes when
//! the last reference to the description does, at SIGKILL too. Two descriptions exclude each other within one process.

use std::io;

use super::file::File;

/// Takes the write lock on one byte of a file opened for writing; false where somebody has it.
pub fn try_lock(file: &File, at: u64) -> io::Result<bool> {
    set(file, one_byte(libc::F_WRLCK, at))
}

fn set(file: &File, mut lock: libc::flock) -> io::Result<bool> {
    match command(file, libc::F_OFD_SETLK, &mut lock) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Takes the write lock on all bytes that a file has or could have; false where somebody has a lock on any.
pub fn try_lock_all(file: &File) -> io::Result<bool> {
    // No length is to the end, wherever that is.
    set(file, libc::flock { l_len: 0, ..one_byte(libc::F_WRLCK, 0) })
}

/// Releases the lock on one byte, also for a child that has inherited the description.
pub fn unlock(file: &File, at: u64) -> io::Result<()> {
    command(file, libc::F_OFD_SETLK, &mut one_byte(libc::F_UNLCK, at))
}

/// Whether another description has the write lock on this byte. Works on a file opened for reading only.
pub fn is_locked(file: &File, at: u64) -> io::Result<bool> {
    // A reader can take a read lock to look alive; asking as a reader, only a writer's lock stands in the way.
    let mut lock = one_byte(libc::F_RDLCK, at);
    command(file, libc::F_OFD_GETLK, &mut lock)?;
    Ok(lock.l_type != libc::F_UNLCK as libc::c_short)
}

fn one_byte(kind: i32, at: u64) -> libc::flock {
    // SAFETY: all zeros is a valid `flock`. `l_pid` has to be zero for these commands.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = at as libc::off_t;
    lock.l_len = 1;
    lock
}

fn command(file: &File, command: i32, lock: &mut libc::flock) -> io::Result<()> {
    loop {
        // SAFETY: the descriptor is open for as long as `file` is borrowed; `lock` is valid for reads and writes.
        if unsafe { libc::fcntl(file.fd(), command, core::ptr::from_mut(lock)) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(error);
        }
    }
}
