//! A private directory for one run, and the containers in it: each has a quota file and a directory of state.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use cuquota::config::Source;
use tempfile::TempDir;

use super::failure::{Context, Failure};

/// Variables to set for a program.
pub type Variables = Vec<(&'static str, OsString)>;

/// How the name of a session's directory begins, and how many letters follow.
const PREFIX: &str = "cuquota-";
const RANDOM: usize = 6;

/// Where the sessions of this user that are there now keep their state.
pub fn states() -> Vec<PathBuf> {
    let user = std::fs::metadata("/proc/self").map(|this| this.uid()).ok();
    let is_session = |dir: &PathBuf| {
        let name = dir.file_name().map(OsStr::as_bytes).unwrap_or_default();
        name.starts_with(PREFIX.as_bytes())
            && name.len() == PREFIX.len() + RANDOM
            && dir.symlink_metadata().is_ok_and(|found| found.is_dir() && Some(found.uid()) == user)
    };
    let sessions = below(&std::env::temp_dir()).filter(is_session);
    sessions
        .flat_map(|dir| [dir.clone()].into_iter().chain(below(&dir)))
        .map(|dir| dir.join("state"))
        .collect()
}

fn below(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// A temporary directory that only this user can enter; it goes when the session is dropped.
pub struct Session {
    dir: TempDir,
}

impl Session {
    pub fn new() -> Result<Self, Failure> {
        let dir = tempfile::Builder::new().prefix(PREFIX).rand_bytes(RANDOM).tempdir();
        Ok(Session {
            dir: dir.context(
                "create a temporary directory",
                "is /tmp full, or read-only? TMPDIR names another directory",
            )?,
        })
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Writes `quota` into a directory of its own and makes room for the state beside it.
    pub fn container(&self, name: &str, quota: &str) -> Result<Container, Failure> {
        let dir = self.dir().join(name);
        let (file, state) = (dir.join("quota.toml"), dir.join("state"));
        let made = std::fs::create_dir_all(&state).and_then(|()| std::fs::write(&file, quota));
        made.context(
            format_args!("write {}", file.display()),
            "is /tmp full? TMPDIR names another directory",
        )?;
        Ok(Container { quota: file, state })
    }

    /// `LD_PRELOAD` with `library` before whatever is preloaded already.
    pub fn preload(&self, library: &Path) -> Result<(&'static str, OsString), Failure> {
        let blank = |path: &Path| {
            path.as_os_str().as_bytes().iter().any(|b| matches!(b, b':' | b' ' | b'\t' | b'\n'))
        };
        let mut path = library.to_owned();
        if blank(&path) {
            // The loader would take such a path for two: reach it through a link.
            path = self.dir().join("libcuquota.so");
            let linked = std::os::unix::fs::symlink(library, &path);
            linked.context(
                format_args!("link {}", path.display()),
                "move the library to a path without blanks",
            )?;
        }
        if blank(&path) {
            return Err(Failure::new(
                format_args!("{} has a blank or a colon in it, which LD_PRELOAD cannot hold", path.display()),
                "move the library, or set TMPDIR to a directory without them",
            ));
        }
        Ok(("LD_PRELOAD", joined(&path, std::env::var_os("LD_PRELOAD"))))
    }
}

/// What the programs of one container share.
pub struct Container {
    /// Its quota file.
    pub quota: PathBuf,
    /// The directory of its ledger.
    pub state: PathBuf,
}

impl Container {
    /// The variables that put a program into this container.
    pub fn variables(&self) -> Variables {
        vec![
            (Source::CONFIG_VARIABLE, self.quota.clone().into()),
            (Source::STATE_VARIABLE, self.state.clone().into()),
        ]
    }
}

/// The list of paths in `variable` with `path` put first.
pub fn prepend(path: &Path, variable: &str) -> Result<OsString, Failure> {
    if path.as_os_str().as_bytes().contains(&b':') {
        return Err(Failure::new(
            format_args!("{} has a colon in it, which {variable} cannot hold", path.display()),
            "set TMPDIR to a directory without one",
        ));
    }
    Ok(joined(path, std::env::var_os(variable)))
}

fn joined(first: &Path, rest: Option<OsString>) -> OsString {
    let mut list = first.as_os_str().to_owned();
    if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
        list.push(OsStr::new(":"));
        list.push(rest);
    }
    list
}

/// The exit code that stands for how a child ended: its own, or 128 and the signal's number.
pub fn exit_code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(125);
    u8::try_from(code).unwrap_or(125)
}
