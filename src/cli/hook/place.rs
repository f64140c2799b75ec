//! The directory that a container has on its machine: its quota file, its state, its list of preloaded libraries.
//!
//! ```text
//! /run/cuquota-node/ID/etc/quota.toml    the quota, /etc/cuquota inside; edit it and the container follows
//!                      ld.so.preload     /etc/ld.so.preload inside
//!                      state/            /run/cuquota inside, the only part that the container can write
//!                      state/peers/      where it sees all of /run/cuquota-node, read-only
//! ```

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::cli::failure::{Context, Failure};

/// Where the directories of all containers lie. Not below `/run/cuquota`: there the host's own programs keep their
/// state, if somebody made it for them.
pub const NODE: &str = "/run/cuquota-node";

/// A container's directory.
pub struct Place {
    dir: PathBuf,
}

impl Place {
    /// That of container `id` below `node`.
    pub fn of(node: &Path, id: &str) -> Result<Self, Failure> {
        let node = std::path::absolute(node).context("find the current directory", "give --node in full")?;
        Ok(Place { dir: node.join(id) })
    }

    pub fn etc(&self) -> PathBuf {
        self.dir.join("etc")
    }

    pub fn preload_list(&self) -> PathBuf {
        self.dir.join("ld.so.preload")
    }

    pub fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    /// Makes the directories. Any user of the container may put state into its directory, and remove only their own.
    pub fn make(&self) -> Result<(), Failure> {
        for (dir, mode) in [
            (self.dir.clone(), 0o755),
            (self.etc(), 0o755),
            (self.state(), 0o1777),
            (self.state().join("peers"), 0o755),
        ] {
            let made = fs::create_dir_all(&dir)
                // Whatever the runtime's umask is.
                .and_then(|()| fs::set_permissions(&dir, Permissions::from_mode(mode)));
            made.context(format_args!("make {}", dir.display()), NEEDS_ROOT)?;
        }
        Ok(())
    }

    /// Removes all of it; it need not be there.
    pub fn remove(&self) -> Result<(), Failure> {
        match fs::remove_dir_all(&self.dir) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).context(format_args!("remove {}", self.dir.display()), NEEDS_ROOT)
            }
            _ => Ok(()),
        }
    }

    pub fn write_quota(&self, text: &str) -> Result<(), Failure> {
        write(&self.etc().join("quota.toml"), text.as_bytes())
    }

    pub fn write_preload_list(&self, list: &[u8]) -> Result<(), Failure> {
        write(&self.preload_list(), list)
    }
}

const NEEDS_ROOT: &str =
    "the hook needs to be root on the machine itself: containers in a user namespace cannot use it";

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let written =
        fs::write(path, bytes).and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o644)));
    written.context(format_args!("write {}", path.display()), "is the disk full?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_made_written_and_removed_and_removing_it_twice_is_no_error() {
        let node = tempfile::tempdir().unwrap();
        let place = Place::of(node.path(), "c1").unwrap();
        place.make().unwrap();
        place.write_quota("limit = \"4GiB\"\n").unwrap();
        let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(place.state()), 0o1777);
        assert_eq!(mode(place.etc().join("quota.toml")), 0o644);
        place.remove().unwrap();
        place.remove().unwrap();
        assert_eq!(fs::read_dir(node.path()).unwrap().count(), 0);
    }
}
