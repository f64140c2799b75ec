//! The quota file in force: found once, watched since.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::config::{Change, GpuIdentity, Quota, QuotaError, Rule, Source, StatePlace, Watch};
use crate::log::{self, Level};
use crate::sys::clock;

use super::bus::BusPlace;
use super::locks::lock;

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
    path: PathBuf,
    /// The cards that this process has met.
    gpus: Vec<GpuIdentity>,
    quota: Result<Quota, QuotaError>,
    watch: Option<Watch>,
    state: StatePlace,
}

impl Budget {
    /// Finds and reads the quota file.
    pub fn find() -> Budget {
        let (path, quota, watch, state) = match Source::locate() {
            Ok(source) => {
                let (watch, quota) = Watch::start(&source.quota);
                (source.quota, quota, Some(watch), source.state)
            }
            Err(error) => (PathBuf::new(), Err(error), None, StatePlace::Default),
        };
        Budget {
            valid: AtomicBool::new(quota.is_ok()),
            told: AtomicBool::new(false),
            last_look: AtomicU64::new(clock::coarse_millis()),
            file: Mutex::new(File { path, gpus: Vec::new(), quota, watch, state }),
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

    /// Whether it is time, in milliseconds of the coarse clock, to look for a new version of the file. Answers one
    /// thread only.
    #[inline]
    pub fn is_look_due(&self, now: u64) -> bool {
        let last = self.last_look.load(Ordering::Relaxed);
        now.wrapping_sub(last) >= LOOK_EVERY_MS
            && self.last_look.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Looks for a new version of the file; true where a new quota is in force.
    pub fn refresh(&self) -> bool {
        self.look(&mut self.lock())
    }

    fn look(&self, file: &mut File) -> bool {
        let change = match file.watch.as_mut().map(Watch::poll) {
            Some(Change::Quota(quota)) => match quota.check_unique(&file.path, &file.gpus) {
                Ok(()) => Some(Change::Quota(quota)),
                Err(error) => Some(Change::Refused(error)),
            },
            other => other,
        };
        match change {
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

    /// Takes notice of the cards there are. A quota file that names several of them at once is refused.
    pub fn meet_gpus(&self, gpus: &[GpuIdentity]) {
        let mut file = self.lock();
        for gpu in gpus {
            if !file.gpus.contains(gpu) {
                file.gpus.push(*gpu);
            }
        }
        let unique = file.quota.as_ref().map_or(Ok(()), |quota| quota.check_unique(&file.path, &file.gpus));
        if let Err(error) = unique {
            file.quota = Err(error);
            self.valid.store(false, Ordering::Relaxed);
        }
    }

    /// What holds on a card of `physical` bytes; `None` where the file allows nothing there. Where the card's place
    /// is not known, the strictest of what may be meant.
    pub fn rule(&self, gpu: &GpuIdentity, place: BusPlace, physical: u64) -> Option<Rule> {
        let file = self.lock();
        rule_in(file.quota.as_ref().ok()?, gpu, place, physical).cloned()
    }

    /// How long a request may wait for a neighbour's memory.
    pub fn wait(&self) -> Duration {
        self.lock().quota.as_ref().map_or(Duration::ZERO, |quota| quota.wait)
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
        lock(&self.file)
    }
}

/// What `quota` says of a card of `physical` bytes; where its place is not known, the strictest of what may be meant.
pub fn rule_in<'q>(quota: &'q Quota, gpu: &GpuIdentity, place: BusPlace, physical: u64) -> Option<&'q Rule> {
    match place {
        BusPlace::Known(place) => quota.rule_for(&GpuIdentity { pci_index: Some(place), ..*gpu }),
        BusPlace::AtLeast(least) => quota.strictest_rule_for(gpu, least, physical),
    }
}
