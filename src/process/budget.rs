//! The quota file in force: found once, watched since.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::config::{Change, GpuIdentity, Quota, QuotaError, Source, StatePlace, Watch};
use crate::log::{self, Level};
use crate::sys::clock;

/// How often a running program looks at its quota file, in milliseconds: a change is to be noticed in a second.
const LOOK_EVERY_MS: u64 = 250;

/// See the module. Fork-safety: belongs to one [`Process`](super::Process).
pub struct Budget {
    /// Whether there is a valid quota; while there is none, nothing may be allocated.
    valid: AtomicBool,
    /// Whether the user was told that there is none.
    told: AtomicBool,
    last_look: AtomicU64,
    file: Mutex<File>,
}

struct File {
    quota: Result<Quota, QuotaError>,
    watch: Option<Watch>,
    state: StatePlace,
}

impl Budget {
    /// Finds and reads the quota file.
    pub fn find() -> Budget {
        let (quota, watch, state) = match Source::locate() {
            Ok(source) => {
                let (watch, quota) = Watch::start(&source.quota);
                (quota, Some(watch), source.state)
            }
            Err(error) => (Err(error), None, StatePlace::Default),
        };
        Budget {
            valid: AtomicBool::new(quota.is_ok()),
            told: AtomicBool::new(false),
            last_look: AtomicU64::new(clock::coarse_millis()),
            file: Mutex::new(File { quota, watch, state }),
        }
    }

    /// Whether memory may be asked for at all. Where the quota is refused, the user is told why, once.
    #[inline]
    pub fn permits(&self) -> bool {
        self.valid.load(Ordering::Relaxed) || self.permits_now()
    }

    #[cold]
    fn permits_now(&self) -> bool {
        let mut file = self.lock();
        if file.quota.is_err() {
            // A program may try again once its file is mended.
            self.look(&mut file);
        }
        match &file.quota {
            Ok(_) => true,
            Err(error) => {
                if !self.told.swap(true, Ordering::Relaxed) {
                    log::always(format_args!("{error}"));
                }
                false
            }
        }
    }

    /// Whether it is time to look for a new version of the file. Answers one thread only.
    #[inline]
    pub fn is_look_due(&self) -> bool {
        let now = clock::coarse_millis();
        let last = self.last_look.load(Ordering::Relaxed);
        now.wrapping_sub(last) >= LOOK_EVERY_MS
            && self.last_look.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Looks for a new version of the file; true where a new quota is in force.
    pub fn refresh(&self) -> bool {
        self.look(&mut self.lock())
    }

    fn look(&self, file: &mut File) -> bool {
        match file.watch.as_mut().map(Watch::poll) {
            Some(Change::Quota(quota)) => {
                log::say(Level::Info, format_args!("the quota file changed; the new limits are in force"));
                file.quota = Ok(quota);
                self.valid.store(true, Ordering::Relaxed);
                true
            }
            Some(Change::Refused(error)) => {
                if file.quota.is_ok() {
                    log::always(format_args!("{error}; the limits from before stay in force"));
                }
                false
            }
            Some(Change::None) | None => false,
        }
    }

    /// The limit in bytes on a card of `physical` bytes: `u64::MAX` if unlimited, 0 where the file allows nothing
    /// on that card.
    pub fn limit(&self, gpu: &GpuIdentity, physical: u64) -> u64 {
        match self.lock().quota.as_ref().ok().and_then(|quota| quota.rule_for(gpu)) {
            Some(rule) => rule.limit.bytes(physical).unwrap_or(u64::MAX),
            None => 0,
        }
    }

    /// The container's label, for reports.
    pub fn label(&self) -> Option<String> {
        self.lock().quota.as_ref().ok().and_then(|quota| quota.name.clone())
    }

    /// Where the ledger lies.
    pub fn state(&self) -> StatePlace {
        self.lock().state.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, File> {
        self.file.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
