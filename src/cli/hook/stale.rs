//! Directories of containers that ended without their runtime calling the hook at poststop, as when it was killed.
//!
//! What such a container was promised would stay promised for ever. Its directory is removed when it is surely dead: no
//! process anywhere has it mounted, and none of its programs lives. A container has its directory mounted from before its
//! first program starts until its last process is gone, whatever engine runs it, in whatever namespaces; so `/proc` says it all
//! to whoever may read all of it. Where something cannot be read, nothing is removed.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cuquota::ledger::Snapshot;

use crate::cli::status::ledgers_in;

/// A directory that is younger may belong to a container that is being made.
const YOUNG: Duration = Duration::from_secs(60);
/// What is put before the name of a directory that is being removed; no container's name begins like this.
const DOOMED: &str = ".removed-";

/// The containers below `node` that are surely dead, by their ids.
pub fn find(node: &Path) -> Vec<String> {
    let suspects: Vec<String> = ids(node).into_iter().filter(|id| looks_dead(&node.join(id))).collect();
    if suspects.is_empty() {
        return suspects;
    }
    match mounted(Path::new("/proc")) {
        Ok(mounted) => suspects.into_iter().filter(|id| !mounted.contains(id)).collect(),
        Err(_) => Vec::new(),
    }
}

/// Removes them; which were. One that cannot be removed is left to the next.
pub fn remove(node: &Path) -> Vec<String> {
    let _ = names(node)
        .iter()
        .filter(|name| name.starts_with(DOOMED))
        .try_for_each(|left| fs::remove_dir_all(node.join(left)));
    let seen = |id: &String| fs::symlink_metadata(node.join(id)).ok().map(|found| found.ino());
    let before: Vec<(String, Option<u64>)> =
        ids(node).into_iter().map(|id| (id.clone(), seen(&id))).collect();
    let dead: BTreeSet<String> = find(node).into_iter().collect();
    let dead = before.into_iter().filter(|(id, _)| dead.contains(id));
    dead.filter(|(id, inode)| remove_one(node, id, *inode).is_ok()).map(|(id, _)| id).collect()
}

/// A container of this name may be made anew at this very moment: the directory is taken out of its way, and put back if it is
/// not the one that was judged.
fn remove_one(node: &Path, id: &str, inode: Option<u64>) -> io::Result<()> {
    let (from, doomed) = (node.join(id), node.join(format!("{DOOMED}{id}-{}", std::process::id())));
    fs::rename(&from, &doomed)?;
    if fs::symlink_metadata(&doomed).ok().map(|found| found.ino()) != inode {
        fs::rename(&doomed, &from)?;
        return Err(io::ErrorKind::Interrupted.into());
    }
    fs::remove_dir_all(&doomed)
}

fn names(node: &Path) -> Vec<String> {
    let entries = fs::read_dir(node).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The names of containers in the hook's directory.
pub fn ids(node: &Path) -> Vec<String> {
    let mut ids = names(node);
    ids.retain(|name| !name.starts_with('.') && node.join(name).is_dir());
    ids.sort();
    ids
}

/// What can be seen in the directory itself.
fn looks_dead(dir: &Path) -> bool {
    let age = fs::symlink_metadata(dir).and_then(|found| found.modified()).ok();
    let age = age.and_then(|made| SystemTime::now().duration_since(made).ok());
    // What a hostile container put in the place of a ledger says nothing.
    let lives = |path: PathBuf| {
        Snapshot::read(&path).is_ok_and(|ledger| ledger.processes.iter().any(|process| process.alive))
    };
    age.is_some_and(|age| age > YOUNG) && !ledgers_in(&dir.join("state")).into_iter().any(lives)
}

/// The ids in all paths that any process has mounted and that a container's directory could be. An error where any process's
/// mounts cannot be read.
fn mounted(proc: &Path) -> io::Result<HashSet<String>> {
    let (mut found, mut seen) = (HashSet::new(), HashSet::new());
    for entry in proc.read_dir()? {
        let process = entry?.path();
        let is_process = process.file_name().is_some_and(|name| name.as_encoded_bytes()[0].is_ascii_digit());
        if !is_process {
            continue;
        }
        // Processes of one namespace have the same mounts, and most are of one namespace. Which it is of may not be seen of a
        // process with more rights than ours; its mounts may.
        let namespace = fs::read_link(process.join("ns/mnt")).ok();
        if namespace.as_ref().is_some_and(|namespace| seen.contains(namespace)) {
            continue;
        }
        if let Some(mounts) = unless_gone(fs::read(process.join("mountinfo")))? {
            seen.extend(namespace);
            found.extend(String::from_utf8_lossy(&mounts).lines().filter_map(container_in));
        }
    }
    Ok(found)
}

/// Processes end while one looks.
fn unless_gone<T>(looked: io::Result<T>) -> io::Result<Option<T>> {
    match looked {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(ESRCH) => Ok(None),
        // A process that is a zombie has no mounts any more.
        Err(error) if error.raw_os_error() == Some(EINVAL) => Ok(None),
        Err(error) => Err(error),
    }
}

const ESRCH: i32 = 3;
const EINVAL: i32 = 22;

/// The id in a line of `mountinfo`, if what is mounted could be a part of a container's directory: `…/ID/state`.
fn container_in(line: &str) -> Option<String> {
    let (above, part) = line.split(' ').nth(3)?.rsplit_once('/')?;
    let id = above.rsplit('/').next()?;
    matches!(part, "state" | "etc" | "ld.so.preload").then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn old(node: &Path, id: &str) -> PathBuf {
        let dir = node.join(id);
        fs::create_dir_all(dir.join("state")).unwrap();
        fs::File::open(&dir).unwrap().set_modified(SystemTime::now() - 2 * YOUNG).unwrap();
        dir
    }

    #[test]
    fn only_what_is_old_and_mounted_nowhere_is_dead() {
        let node = tempfile::tempdir().unwrap();
        old(node.path(), "dead");
        fs::create_dir(node.path().join("young")).unwrap();
        fs::create_dir(node.path().join(format!("{DOOMED}earlier-1"))).unwrap();
        fs::write(node.path().join("file"), "").unwrap();
        // Reading all of `/proc` takes root.
        if mounted(Path::new("/proc")).is_err() {
            assert_eq!(find(node.path()), Vec::<String>::new());
            return;
        }
        assert_eq!(find(node.path()), ["dead"]);
        assert_eq!(remove(node.path()), ["dead"]);
        assert_eq!(
            names(node.path()).into_iter().collect::<BTreeSet<_>>(),
            BTreeSet::from(["file".into(), "young".into()])
        );
    }

    #[test]
    fn one_that_was_made_anew_meanwhile_is_put_back() {
        let node = tempfile::tempdir().unwrap();
        let dir = old(node.path(), "again");
        let other = fs::symlink_metadata(node.path()).unwrap().ino();
        assert!(remove_one(node.path(), "again", Some(other)).is_err());
        assert!(dir.join("state").is_dir());
    }

    #[test]
    fn a_mounted_directory_is_known_by_the_end_of_its_path() {
        let line = |root: &str| format!("63 62 0:25 {root} /run/cuquota rw,nosuid - tmpfs tmpfs rw");
        assert_eq!(container_in(&line("/cuquota-node/c1/state")), Some("c1".to_owned()));
        assert_eq!(container_in(&line("/c1/etc")), Some("c1".to_owned()));
        assert_eq!(container_in(&line("/cuquota-node")), None);
        assert_eq!(container_in("63 62"), None);
    }

    #[test]
    fn a_process_whose_mounts_cannot_be_read_makes_all_uncertain() {
        let proc = tempfile::tempdir().unwrap();
        fs::create_dir_all(proc.path().join("17/ns")).unwrap();
        assert!(mounted(proc.path()).unwrap().is_empty(), "it has ended");
        // Not a link: as where it may not be read.
        fs::create_dir(proc.path().join("17/mountinfo")).unwrap();
        std::os::unix::fs::symlink("mnt:[4026531840]", proc.path().join("17/ns/mnt")).unwrap();
        assert!(mounted(proc.path()).is_err());
    }
}
