//! Where the quota file and the state of a container lie.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::error::QuotaError;
use crate::sys;

/// The quota file of this process, and the place of its container's ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The quota file, as an absolute path.
    pub quota: PathBuf,
    /// Where the ledger is kept.
    pub state: StatePlace,
}

impl Source {
    /// The file that, where it exists, nothing in the environment can replace.
    pub const GOVERNING: &'static str = "/etc/cuquota/quota.toml";

    /// Names the file where there is no governing one.
    pub const CONFIG_VARIABLE: &'static str = "CUQUOTA_CONFIG";

    /// Names the directory of the ledger where `CUQUOTA_CONFIG` names the file.
    pub const STATE_VARIABLE: &'static str = "CUQUOTA_STATE";

    /// Finds the quota file. This is the only place where the environment is read, and a program that runs with
    /// more privilege than its caller does not read it.
    ///
    /// Fails where neither the governing file nor `CUQUOTA_CONFIG` is there. Whether the file can be read is not
    /// looked at.
    pub fn locate() -> Result<Self, QuotaError> {
        let privileged = sys::runs_with_raised_privilege();
        Self::locate_with(
            Path::new(Self::GOVERNING),
            |name| {
                if privileged { None } else { std::env::var_os(name) }
            },
        )
    }

    /// Whether `/etc/cuquota/quota.toml` exists, so that no environment variable counts.
    pub fn is_governed() -> bool {
        exists(Path::new(Self::GOVERNING))
    }

    fn locate_with(
        governing: &Path,
        variable: impl Fn(&'static str) -> Option<OsString>,
    ) -> Result<Self, QuotaError> {
        if exists(governing) {
            return Ok(Source { quota: governing.to_owned(), state: StatePlace::Default });
        }
        let path = |name| variable(name).filter(|value| !value.is_empty()).map(absolute);
        match path(Self::CONFIG_VARIABLE) {
            Some(quota) => {
                let state = path(Self::STATE_VARIABLE).map_or(StatePlace::Default, StatePlace::Explicit);
                Ok(Source { quota, state })
            }
            None => Err(QuotaError::whole(
                governing,
                "there is no quota file",
                format!("mount one there, or name one in {}", Self::CONFIG_VARIABLE),
            )),
        }
    }
}

/// Whether anything lies at `path`: a directory and a link to nothing count, and so does what cannot be looked
/// at, so that a limit is never lost for lack of a permission.
fn exists(path: &Path) -> bool {
    match path.symlink_metadata() {
        Ok(_) => true,
        Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
    }
}

/// The program may change its directory later; the file stays the same.
fn absolute(path: OsString) -> PathBuf {
    std::path::absolute(&path).unwrap_or_else(|_| path.into())
}

/// Where the ledger of this container is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatePlace {
    /// The first of [`StatePlace::DEFAULTS`] that can be used.
    Default,
    /// This directory and no other (`CUQUOTA_STATE`, where an environment variable counts at all).
    Explicit(PathBuf),
}

impl StatePlace {
    /// The directories tried in this order when nothing else was said.
    pub const DEFAULTS: [&'static str; 3] = ["/run/cuquota", "/tmp/cuquota", "/dev/shm/cuquota"];

    /// The directories to try, best first; never empty.
    pub fn candidates(&self) -> impl Iterator<Item = &Path> {
        let (defaults, explicit): (&[&str], _) = match self {
            StatePlace::Default => (&Self::DEFAULTS, None),
            StatePlace::Explicit(dir) => (&[], Some(dir.as_path())),
        };
        defaults.iter().map(Path::new).chain(explicit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locate(governing: &Path, variables: &[(&str, &str)]) -> Result<Source, QuotaError> {
        Source::locate_with(governing, |name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into())
        })
    }

    #[test]
    fn whatever_lies_at_the_governing_path_shuts_out_the_environment() {
        let dir = tempfile::tempdir().unwrap();
        let (file, folder, dangling) = (dir.path().join("a"), dir.path().join("b"), dir.path().join("c"));
        std::fs::write(&file, "").unwrap();
        std::fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink("/nowhere", &dangling).unwrap();
        for governing in [file, folder, dangling] {
            let found = locate(&governing, &[("CUQUOTA_CONFIG", "/mine.toml"), ("CUQUOTA_STATE", "/mine")]);
            assert_eq!(found, Ok(Source { quota: governing, state: StatePlace::Default }));
        }
    }

    #[test]
    fn without_it_the_environment_names_the_file_and_only_then_the_state() {
        let nothing = Path::new("/nonexistent/quota.toml");
        let found = locate(nothing, &[("CUQUOTA_CONFIG", "/mine.toml")]).unwrap();
        assert_eq!(found, Source { quota: "/mine.toml".into(), state: StatePlace::Default });
        let found = locate(nothing, &[("CUQUOTA_CONFIG", "mine.toml"), ("CUQUOTA_STATE", "/s")]).unwrap();
        assert_eq!(found.quota, std::env::current_dir().unwrap().join("mine.toml"));
        assert_eq!(found.state, StatePlace::Explicit("/s".into()));
        for variables in [&[("CUQUOTA_STATE", "/s")][..], &[("CUQUOTA_CONFIG", "")], &[]] {
            let error = locate(nothing, variables).unwrap_err();
            assert!(error.to_string().contains("CUQUOTA_CONFIG"), "{error}");
        }
    }

    #[test]
    fn the_state_lies_where_it_was_said_or_in_the_first_default() {
        let explicit = StatePlace::Explicit("/s".into());
        assert_eq!(explicit.candidates().collect::<Vec<_>>(), [Path::new("/s")]);
        assert_eq!(StatePlace::Default.candidates().next(), Some(Path::new("/run/cuquota")));
        assert_eq!(StatePlace::Default.candidates().count(), 3);
    }
}
