//! Reading the quota file, whatever lies at its path.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::error::{Place, QuotaError};
use super::quota::Quota;

/// What tells one version of a file from the next without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Version {
    /// The version that lies at `path` now, links followed.
    pub fn at(path: &Path) -> io::Result<Self> {
        std::fs::metadata(path).map(|metadata| Version::of(&metadata))
    }

    fn of(metadata: &Metadata) -> Self {
        Version {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Seconds since 1970 at which it last changed.
    pub fn changed_at(&self) -> i64 {
        self.changed.0.max(self.modified.0)
    }
}

/// A file that was read while it did not change.
pub(super) struct Contents {
    pub text: String,
    pub version: Version,
}

/// How often a file that changes while it is read is read again.
const ATTEMPTS: u32 = 5;

/// Reads the text at `path`. Neither blocks on a pipe nor reads a device.
pub(super) fn read(path: &Path) -> Result<Contents, QuotaError> {
    for _ in 0..ATTEMPTS {
        if let Some(contents) = read_once(path)? {
            return Ok(contents);
        }
    }
    Err(QuotaError::whole(
        path,
        "the quota file changes while it is being read",
        "write a new version beside it and rename it into place",
    ))
}

/// One attempt; `None` if the file changed meanwhile.
fn read_once(path: &Path) -> Result<Option<Contents>, QuotaError> {
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path);
    let mut file = opened.map_err(|error| unreadable(path, &error))?;
    let before = file.metadata().map_err(|error| unreadable(path, &error))?;
    if before.is_dir() {
        return Err(a_directory(path));
    }
    if !before.is_file() {
        return Err(no_file(path));
    }
    let mut bytes = Vec::new();
    let read = Read::by_ref(&mut file).take(Quota::MAX_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(path, &error))?;
    let version = Version::of(&before);
    if after(&file, path)? != version {
        return Ok(None);
    }
    if bytes.len() as u64 > Quota::MAX_BYTES {
        return Err(QuotaError::whole(
            path,
            "the quota file is larger than 1 MiB",
            "is this the right file? a quota file has a few lines",
        ));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(Contents { text, version })),
        Err(error) => Err(not_utf8(path, error.as_bytes(), error.utf8_error().valid_up_to())),
    }
}

fn after(file: &File, path: &Path) -> Result<Version, QuotaError> {
    file.metadata().map(|metadata| Version::of(&metadata)).map_err(|error| unreadable(path, &error))
}

fn a_directory(path: &Path) -> QuotaError {
    QuotaError::whole(
        path,
        "the quota file is a directory (a container engine makes one where the file to mount is missing)",
        "mount a file there",
    )
}

fn no_file(path: &Path) -> QuotaError {
    QuotaError::whole(path, "the quota file is a pipe, socket or device", "put a regular file there")
}

fn unreadable(path: &Path, error: &io::Error) -> QuotaError {
    let (message, remedy) = match error.kind() {
        ErrorKind::NotFound if std::fs::symlink_metadata(path).is_ok() => {
            ("the quota file is a link to nothing".to_owned(), "mount what it points to")
        }
        ErrorKind::NotFound => ("the quota file is missing".to_owned(), "put a quota file there"),
        ErrorKind::PermissionDenied => (
            "the quota file cannot be read by this user".to_owned(),
            "make it readable to all (chmod 0644), and every directory above it searchable (0755)",
        ),
        ErrorKind::IsADirectory => return a_directory(path),
        // What opening a socket is answered.
        _ if error.raw_os_error() == Some(libc::ENXIO) => return no_file(path),
        _ => (format!("the quota file cannot be read: {error}"), "put a readable file there"),
    };
    QuotaError::whole(path, message, remedy)
}

fn not_utf8(path: &Path, bytes: &[u8], valid: usize) -> QuotaError {
    // The place is in what could be read; the offending byte itself cannot be shown.
    let text = String::from_utf8_lossy(bytes).into_owned();
    let at = String::from_utf8_lossy(&bytes[..valid]).len();
    let byte = bytes.get(valid).copied().unwrap_or_default();
    QuotaError {
        place: Some(Box::new(Place::of(&text, at..at))),
        value: Some(format!("byte 0x{byte:02x}")),
        ..QuotaError::whole(path, "the quota file is not UTF-8 text", "save it as UTF-8 (not UTF-16)")
    }
}
