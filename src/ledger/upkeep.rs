//! What has to be looked at now and then: is the file still the one, are the others alive, is our word right.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::beside::asking;
use super::lost::{Fault, SharingLost};
use super::membership::Ledger;
use super::place;
use super::protocol;
use super::region::{Check, Region};
use crate::config::StatePlace;
use crate::sys::clock::coarse_millis;

/// Milliseconds between looks at the file from outside.
const FILE_EVERY: u64 = 4;
/// Milliseconds between sweeps of the container, whoever does them, and between looks at our own word.
const SWEEP_EVERY: u64 = 100;
/// Milliseconds between looks for a ledger in a better place.
const PLACE_EVERY: u64 = 1000;
/// How often in a row our word has to be found too high before it is believed to be damaged rather than ahead.
const TOO_HIGH: u64 = 4;
/// How often a process follows its file to another place before it stays by itself.
const MOST_MOVES: u32 = 64;

/// When what was done last, in milliseconds of the coarse clock.
pub(super) struct Schedule {
    busy: AtomicBool,
    file: AtomicU64,
    words: AtomicU64,
    place: AtomicU64,
    /// How often in a row a request of ours was found between publishing and checking.
    times_in_flight: AtomicU64,
}

impl Schedule {
    pub const fn new() -> Schedule {
        Schedule {
            busy: AtomicBool::new(false),
            file: AtomicU64::new(0),
            words: AtomicU64::new(0),
            place: AtomicU64::new(0),
            times_in_flight: AtomicU64::new(0),
        }
    }
}

/// Whether `every` milliseconds have passed; notes the time if so. A time to come (another clock's, a vandal's) has passed.
fn due(last: &AtomicU64, now: u64, every: u64) -> bool {
    let seen = last.load(Ordering::Relaxed);
    if now >= seen && now - seen < every {
        return false;
    }
    last.store(now, Ordering::Relaxed);
    true
}

impl Ledger {
    /// What has to be done now and then. Call it before every request and every question: nearly always it reads a clock, a few
    /// nanoseconds. At most every 4 ms it looks whether the file is still there, in one system call; at most every 100 ms it
    /// sweeps the slots of the dead, if nobody else in the container has.
    ///
    /// The answer is [`Ledger::newly_lost`]'s.
    pub fn housekeeping(&self) -> Option<&SharingLost> {
        self.housekeeping_at(coarse_millis())
    }

    /// [`Ledger::housekeeping`] for who has just read the coarse clock, which says `now`, in milliseconds.
    #[inline]
    pub fn housekeeping_at(&self, now: u64) -> Option<&SharingLost> {
        let last = self.upkeep.file.load(Ordering::Relaxed);
        if now >= last && now - last < FILE_EVERY {
            return self.newly_lost();
        }
        self.keep_house(now);
        self.newly_lost()
    }

    #[cold]
    fn keep_house(&self, now: u64) {
        // One thread at a time; the others have better things to do. A signal handler gets past here, too.
        if self.upkeep.busy.swap(true, Ordering::Acquire) {
            return;
        }
        if due(&self.upkeep.file, now, FILE_EVERY)
            && let Some(region) = self.region()
        {
            match region.check(&self.accounts) {
                Check::Broken(fault) => self.leave(region, fault),
                Check::Gone => self.follow(region),
                Check::Sound => self.look_around(region, now),
            }
        }
        self.upkeep.busy.store(false, Ordering::Release);
    }

    /// The file is there. The rest of the house.
    fn look_around(&self, region: &Region, now: u64) {
        if due(&region.header().last_sweep, now, SWEEP_EVERY) {
            region.sweep_all();
        }
        if due(&self.upkeep.words, now, SWEEP_EVERY) {
            self.repair_words(region);
            self.repair_objects(region);
        }
        if self.place == StatePlace::Default && due(&self.upkeep.place, now, PLACE_EVERY) {
            let first = place::existing(&self.place).map(|(_, status)| status.identity);
            if first.is_some_and(|first| first != region.identity()) {
                self.follow(region);
            }
        }
    }

    /// Our account is right. Too low a word makes room that is not there. Too high a word is mostly that of a request on its way
    /// into the account, unless it stays just as it is.
    fn repair_words(&self, region: &Region) {
        self.repair_in_flight(region);
        for (gpu, _, account) in self.accounts.known() {
            let Some(word) = region.own_word(gpu) else { continue };
            let units = account.used_units();
            let seen = word.load(Ordering::Acquire);
            if account.used_units() != units {
                continue;
            }
            protocol::raise_to(word, units);
            if protocol::used(seen) > units {
                let same = account.too_high.swap(seen, Ordering::Relaxed) == seen;
                let times = if same { account.times_too_high.fetch_add(1, Ordering::Relaxed) + 1 } else { 0 };
                if times >= TOO_HIGH {
                    let right = protocol::pack(units, units);
                    let _ = word.compare_exchange(seen, right, Ordering::AcqRel, Ordering::Relaxed);
                }
                if !same || times >= TOO_HIGH {
                    account.times_too_high.store(0, Ordering::Relaxed);
                }
            } else {
                account.too_high.store(0, Ordering::Relaxed);
            }
            self.note_peak(gpu, None);
        }
    }

    /// A request that a signal handler has jumped out of would make all refusals of the container wait for it.
    fn repair_in_flight(&self, region: &Region) {
        let slot = region.slot_at(region.own_slot());
        let times = &self.upkeep.times_in_flight;
        if slot.in_flight.load(Ordering::Relaxed) == 0 && asking(slot.asking.load(Ordering::Relaxed)) == 0 {
            times.store(0, Ordering::Relaxed);
        } else if times.fetch_add(1, Ordering::Relaxed) >= TOO_HIGH {
            slot.in_flight.store(0, Ordering::Release);
            slot.asking.store(0, Ordering::Release);
        }
    }

    /// The file is no ledger any more.
    fn leave(&self, region: &Region, fault: Fault) {
        self.lose(fault.at(region.path()));
    }

    /// The file has gone, or a better one has come: all processes of the container go there.
    fn follow(&self, region: &Region) {
        // Under another root nothing can be said about the file.
        if place::root() != self.root {
            return;
        }
        if self.moves.fetch_add(1, Ordering::Relaxed) >= MOST_MOVES {
            return self.leave(region, Fault::Moving);
        }
        match self.join() {
            Ok(next) if next.identity() == region.identity() && region.keeps_its_slot() => {}
            Ok(next) => self.adopt(next),
            Err(why) => self.lose(why),
        }
    }

    /// Joins the ledger that is there now.
    pub(super) fn join(&self) -> Result<Region, SharingLost> {
        let opened = place::open(&self.place)?;
        let path = opened.path.clone();
        let region = Region::join(opened).map_err(|fault| fault.at(&path))?;
        if let Some(label) = &self.label {
            region.label(label);
        }
        Ok(region)
    }
}
