//! A sign of life that no stranger can forge or forestall.
//!
//! The sign of life of a process is a write lock. Neighbours may read a container's ledger, and whoever can read a
//! file can put read locks on it, which keep a write lock from being taken. So a process that finds its slot's byte taken
//! in that way shows its life elsewhere: in a file that is made for it, locked from beginning to end while it has no name yet,
//! and only then named after the owner's number. Where a write lock is, no other lock can be put.
//!
//! Such files lie beside the ledger. They go with their owner, or else when somebody clears its slot.

use std::ffi::{CStr, CString};
use std::io;

use super::layout::{MAGIC, slot_offset};
use super::lost::Fault;
use super::owner::{self, NOBODY};
use crate::sys::file::{DIRECTORY, File, Identity, Kept, Status};
use crate::sys::mapping::Mapping;
use crate::sys::{lock, names, random};

/// Bytes of the file: the magic number, by which a forked child knows it.
pub(super) const SIZE: u64 = 8;
const MODE: libc::mode_t = 0o666;
const PREFIX: &[u8] = b"guard-";
/// Names that are looked at for the dead.
const MOST_NAMES: usize = 4096;
/// A page: what is mapped, and never touched.
const PAGE: usize = 4096;

/// Whether an owner is alive. `ledger` is the file with its slot, and `open` opens a name beside that for reading.
pub(super) fn is_alive(
    ledger: &File,
    slot: usize,
    owner: u64,
    open: impl FnOnce(&CStr) -> io::Result<File>,
) -> io::Result<bool> {
    if owner == NOBODY {
        return Ok(false);
    }
    if !owner::is_guarded(owner) {
        return lock::is_locked(ledger, slot_offset(slot) as u64);
    }
    match open(&name(owner)) {
        Ok(file) => lock::is_locked(&file, 0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// A number that no other owner has.
pub(super) fn fresh_number(guarded: bool) -> u64 {
    owner::number(random::bits(), guarded)
}

/// The name of an owner's file.
pub(super) fn name(owner: u64) -> CString {
    CString::new(format!("guard-{owner:016x}")).unwrap_or_default()
}

/// A name beside `path`.
#[inline(never)]
pub(super) fn beside(path: &CStr, name: &CStr) -> CString {
    let dir = path.to_bytes().rsplitn(2, |byte| *byte == b'/').nth(1).unwrap_or(b".");
    CString::new([dir, b"/", name.to_bytes()].concat()).unwrap_or_default()
}

/// This process's own. Held for as long as it lives, as a slot's lock is: by a mapping, or where the file system does not let
/// that hold it (overlay) by a descriptor.
pub(super) struct Guard {
    owner: u64,
    path: CString,
    identity: Identity,
    map: Mapping,
    keeper: Option<Kept>,
}

impl Guard {
    /// Makes one beside the ledger.
    #[cold]
    pub fn make(ledger: &CStr) -> Result<Guard, Fault> {
        let dir = beside(ledger, c"");
        let dir = File::open(&dir, DIRECTORY).map_err(Fault::system("open its directory"))?;
        clear_away(&dir);
        let mut keep = false;
        for _ in 0..16 {
            let owner = fresh_number(true);
            let path = beside(ledger, &name(owner));
            let Some(file) = locked(&dir, &name(owner))? else { continue };
            let identity = file.status().map_err(Fault::system("look at it"))?.identity;
            let map = Mapping::shared(&file, PAGE).map_err(Fault::system("map it out of reach of forks"))?;
            let keeper = if keep {
                Some(Kept::new(file).map_err(Fault::system("keep it open"))?)
            } else {
                drop(file);
                None
            };
            let guard = Guard { owner, path, identity, map, keeper };
            if guard.is_held() {
                return Ok(guard);
            }
            keep = true;
        }
        Err(Fault::Moving)
    }

    /// The number of its owner.
    pub fn owner(&self) -> u64 {
        self.owner
    }

    /// Whether others see that we are alive.
    pub fn is_held(&self) -> bool {
        self.has_its_name()
            && File::open(&self.path, libc::O_RDONLY)
                .is_ok_and(|file| lock::is_locked(&file, 0).unwrap_or(true))
    }

    /// Whether its name still leads to it.
    pub fn has_its_name(&self) -> bool {
        Status::of_path(&self.path).is_ok_and(|status| status.identity == self.identity)
    }

    /// Ends it for good; see [`Region::abandon`](super::region::Region::abandon).
    pub fn abandon(&self) {
        self.map.detach();
        if let Some(keeper) = &self.keeper {
            keeper.close();
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.has_its_name() {
            remove(&self.path);
        }
    }
}

/// Removes a file that is no sign of life any more, if we may.
pub(super) fn remove(path: &CStr) {
    if let Ok(dir) = File::open(&beside(path, c""), DIRECTORY) {
        let name = path.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let _ = CString::new(name).map(|name| dir.unlink_in(&name));
    }
}

/// A new file that is locked as a whole and has this name; `None` where somebody else was faster.
fn locked(dir: &File, name: &CStr) -> Result<Option<File>, Fault> {
    let fill = |file: &File| {
        file.write_at(&MAGIC.to_ne_bytes(), 0).map_err(Fault::system("write it"))?;
        file.set_mode(MODE).map_err(Fault::system("open it to all users"))?;
        lock::try_lock_all(file).map_err(Fault::system("lock it"))
    };
    if let Ok(file) = dir.open_in(c".", libc::O_RDWR | libc::O_TMPFILE, MODE) {
        let locked = fill(&file)?;
        if locked && file.name(dir, name).is_ok() {
            return Ok(Some(file));
        }
    }
    // No `/proc` to name it by. A stranger could lock a file that has its name already; it has to guess when.
    let file = dir
        .open_in(name, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, MODE)
        .map_err(Fault::system("make a sign of life beside it"))?;
    match fill(&file) {
        Ok(true) => Ok(Some(file)),
        outcome => {
            let _ = dir.unlink_in(name);
            outcome.map(|_| None)
        }
    }
}

/// Removes the files of the dead, where we may.
fn clear_away(dir: &File) {
    let Ok(list) = dir.open_in(c".", libc::O_RDONLY | libc::O_DIRECTORY, 0) else { return };
    let found = names::names(&list, MOST_NAMES).unwrap_or_default();
    for name in found.iter().filter(|name| name.to_bytes().starts_with(PREFIX)) {
        let is_dead = dir
            .open_in(name, libc::O_RDONLY, 0)
            .is_ok_and(|file| lock::is_locked(&file, 0).is_ok_and(|locked| !locked));
        if is_dead {
            let _ = dir.unlink_in(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger_in(dir: &tempfile::TempDir) -> CString {
        CString::new(dir.path().join("ledger").into_os_string().into_encoded_bytes()).unwrap()
    }

    fn is_alive_beside(ledger: &CStr, owner: u64) -> bool {
        let any = File::open(c"/", DIRECTORY).unwrap();
        is_alive(&any, 0, owner, |name| File::open(&beside(ledger, name), libc::O_RDONLY)).unwrap()
    }

    #[test]
    fn an_owner_is_alive_for_as_long_as_its_guard_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = ledger_in(&dir);
        let guard = Guard::make(&ledger).unwrap();
        let owner = guard.owner();
        assert!(owner::is_guarded(owner) && is_alive_beside(&ledger, owner));
        assert!(!is_alive_beside(&ledger, owner ^ 2) && !is_alive_beside(&ledger, NOBODY));
        drop(guard);
        assert!(!is_alive_beside(&ledger, owner));
        assert_eq!(dir.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn no_lock_of_any_kind_can_be_put_on_a_guard() {
        let dir = tempfile::tempdir().unwrap();
        let guard = Guard::make(&ledger_in(&dir)).unwrap();
        let file = File::open(&guard.path, libc::O_RDWR).unwrap();
        for at in [0, 1, 7, 8, 4096, 1 << 40] {
            assert!(!lock::try_lock(&file, at).unwrap() && lock::is_locked(&file, at).unwrap(), "{at}");
        }
    }

    #[test]
    fn what_dead_owners_left_is_cleared_away_and_the_living_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = ledger_in(&dir);
        let living = Guard::make(&ledger).unwrap();
        std::fs::write(dir.path().join("guard-8000000000000001"), MAGIC.to_ne_bytes()).unwrap();
        let next = Guard::make(&ledger).unwrap();
        assert_eq!(dir.path().read_dir().unwrap().count(), 2);
        assert!(living.is_held() && next.is_held());
    }
}
