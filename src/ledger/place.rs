//! Finding the container's ledger, or making it.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::account::fnv;
use super::guard;
use super::layout::{FILE_SIZE, Preamble};
use super::lost::{Fault, SharingLost};
use crate::config::StatePlace;
use crate::sys::file::{DIRECTORY, File, Identity, Status, make_directory, recognise};

/// A ledger that is open and looks right.
pub(super) struct Opened {
    pub file: File,
    pub path: CString,
    pub identity: Identity,
    /// Whether the file system shows that all of it is allocated.
    pub allocated: bool,
}

/// Directory mode: anybody may make files, nobody may remove those of others.
const DIRECTORY_MODE: u32 = 0o1777;
/// A ledger is everybody's.
const FILE_MODE: u32 = 0o666;

/// A directory where the ledger may be, and its name there.
struct Candidate {
    /// Whether we make the directory if it is not there. `/run/cuquota` is for whoever runs the container to make: only some
    /// users could, and all must agree.
    ours_to_make: bool,
    dir: CString,
    name: CString,
    path: CString,
}

/// Why a candidate was not taken.
enum Skip {
    /// It cannot be used: try the next one.
    Unusable(SharingLost),
    /// It is the place, and something is wrong with it: using another would split the budget in silence.
    Wrong(SharingLost),
}

/// Opens the ledger at `place`, or makes it.
///
/// One that exists anywhere is preferred to making one, so that processes with different rights agree. A new one is not made on an
/// overlay if there is another place: see [`Mapping`](crate::sys::mapping::Mapping).
pub(super) fn open(place: &StatePlace) -> Result<Opened, SharingLost> {
    recognise(|status, head| {
        (check_status(status, false).is_ok() || status.size == guard::SIZE)
            && u64::from_ne_bytes(head) == Preamble::OURS.magic
    });
    let candidates = candidates(place);
    let mut reason = None;
    for (make, on_overlay) in [(false, true), (true, false), (true, true)] {
        for candidate in &candidates {
            match candidate.open(make, on_overlay) {
                Ok(Some(opened)) => return Ok(opened),
                Ok(None) => {}
                Err(Skip::Unusable(why)) => reason = reason.or(Some(why)),
                Err(Skip::Wrong(why)) => return Err(why),
            }
        }
    }
    Err(reason.unwrap_or_else(|| Fault::System("use it", 0).at(c"the state directory")))
}

/// The ledger that a process started now would use, if there is one already.
pub(super) fn existing(place: &StatePlace) -> Option<(CString, Status)> {
    candidates(place)
        .into_iter()
        .find_map(|candidate| Status::of_path(&candidate.path).ok().map(|status| (candidate.path, status)))
}

/// Path of the ledger that a process of this container started now would join, if there is one.
pub fn find(place: &StatePlace) -> Option<PathBuf> {
    existing(place).map(|(path, _)| PathBuf::from(std::ffi::OsStr::from_bytes(path.as_bytes())))
}

fn candidates(place: &StatePlace) -> Vec<Candidate> {
    let name = match place {
        StatePlace::Default => format!("ledger-{:016x}", container()),
        StatePlace::Explicit(_) => "ledger".to_owned(),
    };
    let ours_to_make = |dir: &Path| *place != StatePlace::Default || !dir.starts_with("/run");
    place.candidates().filter_map(|dir| Candidate::new(dir, &name, ours_to_make(dir))).collect()
}

/// Tells containers that share a directory apart. Every container has its own root, and an overlay its own device.
fn container() -> u64 {
    let Identity { device, inode } = root();
    fnv(&(u128::from(device) << 64 | u128::from(inode)).to_le_bytes())
}

/// What `/` is to this process: changes with `chroot`.
pub(super) fn root() -> Identity {
    Status::behind(c"/").map_or(Identity { device: 0, inode: 0 }, |status| status.identity)
}

impl Candidate {
    fn new(dir: &Path, name: &str, ours_to_make: bool) -> Option<Candidate> {
        // The program may change its working directory; the ledger stays where it was.
        let dir = std::path::absolute(dir).ok()?;
        Some(Candidate {
            ours_to_make,
            path: CString::new(dir.join(name).as_os_str().as_bytes()).ok()?,
            dir: CString::new(dir.as_os_str().as_bytes()).ok()?,
            name: CString::new(name).ok()?,
        })
    }

    /// Opens the ledger here. `None` where there is none and `make` or the overlay say not to make it.
    fn open(&self, make: bool, on_overlay: bool) -> Result<Option<Opened>, Skip> {
        let unusable = |fault: Fault| Skip::Unusable(fault.at(&self.path));
        let dir = match File::open(&self.dir, DIRECTORY) {
            Ok(dir) => dir,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if !make || !self.ours_to_make || (!on_overlay && self.parent_on_overlay()) {
                    return Ok(None);
                }
                make_directory(&self.dir, DIRECTORY_MODE)
                    .and_then(|_| File::open(&self.dir, DIRECTORY))
                    .map_err(|error| unusable(Fault::system("make its directory")(error)))?
            }
            Err(error) => return Err(unusable(Fault::system("open its directory")(error))),
        };
        for _ in 0..8 {
            // Not created by this call: with O_CREAT the kernel refuses other users' files in a sticky directory.
            match dir.open_in(&self.name, libc::O_RDWR, 0) {
                Ok(file) => {
                    return self.checked(file).map(Some).map_err(|fault| Skip::Wrong(fault.at(&self.path)));
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(self.refused(error));
                }
                Err(_) if !make || (!on_overlay && dir.on_overlay()) => return Ok(None),
                Err(_) => self.create(&dir).map_err(unusable)?,
            }
        }
        Err(unusable(Fault::Moving))
    }

    fn parent_on_overlay(&self) -> bool {
        let parent = self.dir.to_bytes().rsplitn(2, |byte| *byte == b'/').nth(1).unwrap_or(b"/");
        // Its own last component may well be a link, such as /var/run.
        let inside = [parent, b"/."].concat();
        CString::new(inside)
            .is_ok_and(|parent| File::open(&parent, DIRECTORY).is_ok_and(|dir| dir.on_overlay()))
    }

    /// A link or a directory in the ledger's place is wrong; a file that we may not write belongs to somebody else.
    fn refused(&self, error: io::Error) -> Skip {
        let code = error.raw_os_error();
        let lost = Fault::system("open it for writing")(error).at(&self.path);
        match code {
            Some(libc::EACCES | libc::EPERM | libc::EROFS) => Skip::Unusable(lost),
            _ => Skip::Wrong(lost),
        }
    }

    /// Looks at a ledger before it is mapped.
    fn checked(&self, file: File) -> Result<Opened, Fault> {
        let status = file.status().map_err(Fault::system("look at it"))?;
        check_status(&status, false)?;
        let mut head = [0; Preamble::SIZE + 4];
        file.read_at(&mut head, 0).map_err(Fault::system("read it"))?;
        check_preamble(Preamble::parse(&head))?;
        let allocated = super::layout::u32_at(&head, Preamble::SIZE) == Some(1);
        check_status(&status, allocated)?;
        Ok(Opened { file, path: self.path.clone(), identity: status.identity, allocated })
    }

    /// Makes a whole ledger and puts it in place at once, unless somebody was faster.
    fn create(&self, dir: &File) -> Result<(), Fault> {
        let flags = libc::O_RDWR | libc::O_TMPFILE;
        if let Ok(file) = dir.open_in(c".", flags, FILE_MODE) {
            fill(&file)?;
            match file.name(dir, &self.name) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
                // No `/proc` here.
                Err(_) => {}
            }
        }
        let name = CString::new(format!(".ledger.{}.{:p}", std::process::id(), dir)).unwrap_or_default();
        let file = dir
            .open_in(&name, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, FILE_MODE)
            .map_err(Fault::system("make it"))?;
        let outcome = fill(&file).and_then(|()| match dir.link_in(&name, &self.name) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(Fault::system("name it")(error))
            }
            _ => Ok(()),
        });
        let _ = dir.unlink_in(&name);
        outcome
    }
}

/// An empty ledger, all of it on the disk already.
fn fill(file: &File) -> Result<(), Fault> {
    file.allocate(FILE_SIZE as u64).map_err(Fault::system("set its space aside"))?;
    let status = file.status().map_err(Fault::system("look at it"))?;
    let allocated = status.allocated >= FILE_SIZE as u64;
    file.write_at(&Preamble::OURS.bytes(allocated), 0).map_err(Fault::system("write it"))?;
    file.set_mode(FILE_MODE).map_err(Fault::system("open it to all users"))
}

/// What can be seen from outside.
pub(super) fn check_status(status: &Status, allocated: bool) -> Result<(), Fault> {
    let expected = FILE_SIZE as u64;
    if !status.regular {
        return Err(Fault::NotAFile);
    }
    if status.size != expected {
        return Err(Fault::Size { found: status.size, expected });
    }
    if allocated && status.allocated < expected {
        return Err(Fault::NotAllocated);
    }
    Ok(())
}

/// The constants at the head.
pub(super) fn check_preamble(found: Option<Preamble>) -> Result<(), Fault> {
    match found {
        Some(Preamble::OURS) => Ok(()),
        Some(Preamble { magic, version, .. })
            if magic == Preamble::OURS.magic && version != Preamble::OURS.version =>
        {
            Err(Fault::Version { found: version, expected: Preamble::OURS.version })
        }
        Some(Preamble { magic, .. }) if magic == Preamble::OURS.magic => Err(Fault::Damaged("its head")),
        _ => Err(Fault::NotALedger),
    }
}
