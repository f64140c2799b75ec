//! The container's file system before it becomes `/`. An image may hold any links: every path is resolved as the
//! container will see it, so that none leads out.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::mount::{MountFlags, MountPropagationFlags};

use crate::cli::failure::{Context, Failure};

/// The largest file that is read from an image.
const MOST_BYTES: u64 = 64 << 20;

/// What a container may do with what is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read it.
    Read,
    /// Read it and run it.
    Execute,
    /// Read and write it.
    Write,
}

/// The directory that becomes the container's `/`.
pub struct Rootfs {
    dir: OwnedFd,
    path: PathBuf,
}

impl Rootfs {
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let opened =
            rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let dir = opened
            .map_err(io::Error::from)
            .context(format_args!("open the container's root {}", path.display()), IN_ITS_NAMESPACE)?;
        Ok(Rootfs { dir, path: path.to_owned() })
    }

    fn resolve(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        Ok(rustix::fs::openat2(&self.dir, path, flags | OFlags::CLOEXEC, Mode::empty(), inside)?)
    }

    /// Whether there is anything at this path.
    pub fn has(&self, path: &Path) -> bool {
        self.resolve(path, OFlags::PATH).is_ok()
    }

    /// Whether what is at `path` in the container is this directory of the machine.
    pub fn shows(&self, path: &Path, directory: &Path) -> bool {
        let inside = self.resolve(path, OFlags::PATH).and_then(|found| Ok(rustix::fs::fstat(found)?));
        let outside = rustix::fs::stat(directory);
        match (inside, outside) {
            (Ok(inside), Ok(outside)) => (inside.st_dev, inside.st_ino) == (outside.st_dev, outside.st_ino),
            _ => false,
        }
    }

    /// The bytes of a file of the image; `None` if there is none.
    pub fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, Failure> {
        let read = || -> io::Result<Option<Vec<u8>>> {
            let found = match self.resolve(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY) {
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
                {
                    return Ok(None);
                }
                found => File::from(found?),
            };
            if !found.metadata()?.is_file() {
                return Err(io::Error::other("it is not a file"));
            }
            let mut bytes = Vec::new();
            found.take(MOST_BYTES).read_to_end(&mut bytes)?;
            Ok(Some(bytes))
        };
        read().context(
            format_args!("read {} of the image", path.display()),
            "is the image damaged? it must be a file that root can read",
        )
    }

    /// The names in a directory of the image; none if there is no such directory.
    pub fn list(&self, path: &Path) -> Vec<String> {
        let Ok(dir) = self.resolve(path, OFlags::RDONLY | OFlags::DIRECTORY) else { return Vec::new() };
        let Ok(entries) = rustix::fs::Dir::read_from(&dir) else { return Vec::new() };
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Mounts `from`, a file or directory of the machine, at `at` in the container, over what is there.
    pub fn mount(&self, from: &Path, at: &Path, access: Access) -> Result<(), Failure> {
        self.try_mount(from, at, access).context(
            format_args!("mount {} at {} in {}", from.display(), at.display(), self.path.display()),
            IN_ITS_NAMESPACE,
        )
    }

    fn try_mount(&self, from: &Path, at: &Path, access: Access) -> io::Result<()> {
        self.make_directories(at.parent().unwrap_or(Path::new("/")))?;
        let target = if from.is_dir() {
            self.make_directories(at)?;
            self.resolve(at, OFlags::PATH)?
        } else {
            self.make_file(at)?
        };
        // Not recursive: what is mounted below the machine's directory stays the machine's.
        rustix::mount::mount_bind(from, through(&target))?;
        let mounted = self.resolve(at, OFlags::PATH)?;
        let mut flags = MountFlags::BIND | MountFlags::NOSUID | MountFlags::NODEV;
        if access != Access::Write {
            flags |= MountFlags::RDONLY;
        }
        if access != Access::Execute {
            flags |= MountFlags::NOEXEC;
        }
        rustix::mount::mount_remount(through(&mounted), flags, c"")?;
        rustix::mount::mount_change(through(&mounted), MountPropagationFlags::PRIVATE)?;
        Ok(())
    }

    /// Makes the directory and all above it. A link on the way is followed inside the container only; one that leads
    /// nowhere is an error.
    fn make_directories(&self, path: &Path) -> io::Result<()> {
        let mut done = PathBuf::from("/");
        for component in path.components() {
            let Component::Normal(name) = component else { continue };
            let parent = self.resolve(&done, OFlags::PATH | OFlags::DIRECTORY)?;
            match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            done.push(name);
        }
        self.resolve(path, OFlags::PATH | OFlags::DIRECTORY).map(drop)
    }

    /// Opens the file, made empty if it is not there.
    fn make_file(&self, path: &Path) -> io::Result<OwnedFd> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let parent = self.resolve(parent, OFlags::PATH | OFlags::DIRECTORY)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(0o644)) {
            Ok(_) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let found = self.resolve(path, OFlags::PATH)?;
        match FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode) {
            FileType::Directory => Err(io::ErrorKind::IsADirectory.into()),
            _ => Ok(found),
        }
    }
}

/// The path of an open file that names it and nothing else, whatever is renamed meanwhile.
fn through(file: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

const IN_ITS_NAMESPACE: &str = "the runtime must run this hook as root at its createContainer stage, where the \
                                container's mounts are made";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn image() -> (tempfile::TempDir, Rootfs) {
        let dir = tempfile::tempdir().unwrap();
        let rootfs = Rootfs::open(dir.path()).unwrap();
        (dir, rootfs)
    }

    #[test]
    fn links_of_an_image_do_not_lead_out_of_it() {
        let (dir, rootfs) = image();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "x").unwrap();
        symlink(outside.path(), dir.path().join("etc")).unwrap();
        symlink("../../../../../../../etc/hostname", dir.path().join("up")).unwrap();
        assert_eq!(rootfs.read(Path::new("/etc/secret")).unwrap(), None);
        assert_eq!(rootfs.read(Path::new("/up")).unwrap(), None);
        assert!(rootfs.make_directories(Path::new("/etc/cuquota")).is_err());
        assert!(!outside.path().join("cuquota").exists());
    }

    #[test]
    fn links_inside_it_are_followed_as_the_container_will() {
        let (dir, rootfs) = image();
        std::fs::create_dir_all(dir.path().join("usr/lib")).unwrap();
        std::fs::write(dir.path().join("usr/lib/a"), "b").unwrap();
        symlink("/usr/lib", dir.path().join("lib")).unwrap();
        assert_eq!(rootfs.read(Path::new("/lib/a")).unwrap().unwrap(), b"b");
        rootfs.make_directories(Path::new("/lib/c/d")).unwrap();
        assert!(dir.path().join("usr/lib/c/d").is_dir());
        rootfs.make_file(Path::new("/lib/e")).unwrap();
        assert!(dir.path().join("usr/lib/e").is_file());
        assert!(rootfs.make_file(Path::new("/lib/c")).is_err(), "a directory is no file");
    }

    #[test]
    fn what_is_not_a_file_is_not_read() {
        let (dir, rootfs) = image();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        rustix::fs::mkfifoat(&rootfs.dir, "p", Mode::from_raw_mode(0o644)).unwrap();
        assert!(rootfs.read(Path::new("/d")).is_err());
        assert!(rootfs.read(Path::new("/p")).is_err());
        assert_eq!(rootfs.read(Path::new("/d/x/y")).unwrap(), None);
    }
}
