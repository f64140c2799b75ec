//! Noticing that the quota file has changed.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::error::QuotaError;
use super::file::{self, Version};
use super::quota::Quota;

/// Watches one quota file by asking: [`Watch::poll`] costs one `stat` while nothing changes. It keeps no
/// descriptor and no thread, so a forked child simply goes on with its copy. It does not throttle itself.
#[derive(Debug)]
pub struct Watch {
    path: PathBuf,
    /// The version that was last read, valid or not; `None` before the first.
    seen: Option<Version>,
    /// It was read so soon after it changed that another change may carry the same time stamp.
    unsettled: bool,
    /// The text that was last read in whole.
    text: Option<String>,
    /// The error that was last reported.
    reported: Option<QuotaError>,
}

/// What [`Watch::poll`] found.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing new: the same file, or none at all any more; what held before holds on.
    None,
    /// A new version, and a valid one: it holds from now on.
    Quota(Quota),
    /// A new version that is refused: what held before holds on. Each such version is answered once.
    Refused(QuotaError),
}

/// Time stamps of a file system are trusted to tell versions apart after this many seconds.
const COARSEST_TIMESTAMP: i64 = 2;

impl Watch {
    /// Reads `path` for the first time. The watch is of use also if that fails: a later poll answers the first
    /// valid version.
    pub fn start(path: &Path) -> (Self, Result<Quota, QuotaError>) {
        let mut watch =
            Watch { path: path.to_owned(), seen: None, unsettled: false, text: None, reported: None };
        let quota = watch.read();
        watch.reported = quota.as_ref().err().cloned();
        (watch, quota)
    }

    /// The file that is watched.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Looks whether there is a new version, and reads it if so.
    pub fn poll(&mut self) -> Change {
        // A file that is gone or out of reach is no new version.
        let Ok(version) = Version::at(&self.path) else { return Change::None };
        if self.seen == Some(version) && !self.unsettled {
            return Change::None;
        }
        let before = self.text.take();
        match self.read() {
            Ok(_) if before.is_some() && before == self.text && self.reported.is_none() => Change::None,
            Ok(quota) => {
                self.reported = None;
                Change::Quota(quota)
            }
            Err(error) => {
                // What could not even be read must not be tried at every poll.
                self.seen.get_or_insert(version);
                if self.reported.as_ref() == Some(&error) {
                    return Change::None;
                }
                self.reported = Some(error.clone());
                Change::Refused(error)
            }
        }
    }

    fn read(&mut self) -> Result<Quota, QuotaError> {
        self.seen = Version::at(&self.path).ok();
        self.unsettled = self.seen.is_some_and(|version| may_hide_a_change(&version));
        let contents = file::read(&self.path)?;
        self.seen = Some(contents.version);
        self.unsettled = may_hide_a_change(&contents.version);
        let quota = Quota::parse(&contents.text, &self.path);
        self.text = Some(contents.text);
        quota
    }
}

fn may_hide_a_change(version: &Version) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs() as i64);
    now.saturating_sub(version.changed_at()) < COARSEST_TIMESTAMP
}
