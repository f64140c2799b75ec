//! The neighbours of this container: who they are, what they hold, and what is kept for them.
//!
//! They are the entries of a directory `peers` in the directory of state, which whoever runs the containers mounts there:
//! each entry leads to a neighbour's own directory of state, or to a directory that has it as `state` and the quota file of the
//! neighbour as `etc/quota.toml`. A quota file there is the operator's word on what the neighbour is promised and may hold at the
//! most, and the neighbour's own word counts only within it. An entry that leads to our own directory is ours.
//!
//! A neighbour is there for as long as its entry is; what is kept for it is kept also while it runs nothing.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::neighbour::{Claim, Place, Question, earliest};
use super::protocol::UNIT;
use crate::config::{Change, Quota, Rule, StatePlace, Watch};
use crate::sys::file::{DIRECTORY, File, Status};
use crate::sys::names;

/// Neighbours that are looked at. What is beyond is not seen.
const MOST_PEERS: usize = 1024;

/// What a container is promised on a card, and what it may hold there at the most, as its quota file says. Bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Promise {
    /// Kept for it.
    pub reserve: u64,
    /// The most.
    pub limit: u64,
}

impl Promise {
    /// What `rule` says of a card of `physical` bytes; nothing where there is no rule.
    pub fn of(rule: Option<&Rule>, physical: u64) -> Promise {
        rule.map_or_else(Promise::default, |rule| Promise {
            reserve: rule.reserve_bytes(physical),
            limit: rule.limit.bytes(physical).unwrap_or(physical).min(physical),
        })
    }
}

/// A card as the neighbours are asked about it.
#[derive(Clone, Copy)]
pub struct Card<'a> {
    /// Physical bytes.
    pub physical: u64,
    /// What a quota file promises its container here.
    pub promise: &'a dyn Fn(&Quota) -> Promise,
}

/// The neighbours at one moment, all together. Bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Neighbours {
    /// What they hold, or are promised where that is more.
    pub promised: u64,
    /// What they are promised.
    pub reserved: u64,
    /// What they use.
    pub used: u64,
    /// What they are promised and do not use.
    pub owed: u64,
    /// Whether one of their requests is being decided.
    pub asking: bool,
    /// Whether one of those goes before ours.
    pub ahead: bool,
    /// Changes with each of them that begins.
    pub begun: u64,
    /// Since when the first of those waits that wait, in milliseconds since boot.
    pub waiting_since: Option<u64>,
}

impl Neighbours {
    /// Adds a neighbour that holds and uses so many bytes.
    fn add(&mut self, claim: &Claim, reserve: u64) {
        let (held, used) = (claim.held.saturating_mul(UNIT), claim.used.saturating_mul(UNIT));
        self.promised = self.promised.saturating_add(held.max(reserve));
        self.reserved = self.reserved.saturating_add(reserve);
        self.used = self.used.saturating_add(used);
        self.owed = self.owed.saturating_add(reserve.saturating_sub(used));
        self.asking |= claim.asking;
        self.ahead |= claim.ahead;
        self.begun = self.begun.wrapping_add(claim.begun);
        self.waiting_since = earliest(self.waiting_since, claim.waiting_since);
    }
}

/// See the module. Any number of threads.
pub(super) struct Peers {
    /// The directory; its parent is our own state.
    dir: PathBuf,
    name: CString,
    present: AtomicBool,
    known: Mutex<Vec<Peer>>,
}

/// One neighbour.
struct Peer {
    name: CString,
    quota: Option<(Watch, Option<Quota>)>,
    /// What was last read, a card.
    last: Vec<([u8; 16], Claim)>,
}

impl Peers {
    /// The neighbours of a container whose state lies there.
    pub fn of(place: &StatePlace) -> Peers {
        let dir = place.candidates().next().unwrap_or(Path::new("/run/cuquota")).join("peers");
        let dir = std::path::absolute(&dir).unwrap_or(dir);
        let name = CString::new(dir.as_os_str().as_bytes()).unwrap_or_default();
        let peers = Peers { dir, name, present: AtomicBool::new(false), known: Mutex::new(Vec::new()) };
        peers.refresh();
        peers
    }

    /// Whether neighbours have to be looked at.
    #[inline]
    pub fn present(&self) -> bool {
        self.present.load(Ordering::Relaxed)
    }

    /// Looks whether there is a directory of neighbours; whether it has just come.
    pub fn refresh(&self) -> bool {
        let present = File::open(&self.name, DIRECTORY).is_ok();
        present && !self.present.swap(present, Ordering::Relaxed) || {
            self.present.store(present, Ordering::Relaxed);
            false
        }
    }

    /// What the neighbours hold and are promised on a card. Where they cannot be looked at, all of it is taken to be theirs.
    pub fn look(&self, uuid: [u8; 16], card: Card<'_>, ours: Option<Place>) -> Neighbours {
        let unknown = Neighbours { promised: u64::MAX, owed: u64::MAX, ..Neighbours::default() };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(dir) = File::open(&self.name, libc::O_RDONLY | libc::O_DIRECTORY) else { return unknown };
        let Ok(found) = names::names(&dir, MOST_PEERS) else { return unknown };
        let own = self.dir.parent().and_then(|own| CString::new(own.as_os_str().as_bytes()).ok());
        let own = own.and_then(|own| Status::behind(&own).ok()).map(|status| status.identity);
        known.retain(|peer| found.contains(&peer.name));
        let mut sum = Neighbours::default();
        for name in found {
            let at = known.iter().position(|peer| peer.name == name).unwrap_or_else(|| {
                known.push(Peer { name, quota: None, last: Vec::new() });
                known.len() - 1
            });
            let peer = &mut known[at];
            let Ok(entry) = dir.directory_in(&peer.name) else {
                // Not a directory is no neighbour; one that cannot be opened now is still there.
                if let Some(claim) = peer.last(uuid) {
                    sum.add(&claim, peer.reserve(&claim, card));
                }
                continue;
            };
            let state = entry.open_in(c"state", DIRECTORY, 0).unwrap_or(entry);
            if state.status().is_ok_and(|status| Some(status.identity) == own) {
                continue;
            }
            peer.read_quota(&self.dir);
            let claim = peer.claim(&state, uuid, card, ours);
            sum.add(&claim, peer.reserve(&claim, card));
        }
        sum
    }
}

impl Peer {
    /// Takes notice of the neighbour's quota file, if whoever made its directory put one there.
    fn read_quota(&mut self, peers: &Path) {
        if let Some((watch, quota)) = &mut self.quota {
            if let Change::Quota(new) = watch.poll() {
                *quota = Some(new);
            }
            return;
        }
        let path = peers.join(OsStr::from_bytes(self.name.to_bytes())).join("etc/quota.toml");
        if path.symlink_metadata().is_ok() {
            let (watch, quota) = Watch::start(&path);
            self.quota = Some((watch, quota.ok()));
        }
    }

    /// What its quota file promises, if it is known.
    fn promise(&self, card: Card<'_>) -> Option<Promise> {
        let (_, quota) = self.quota.as_ref()?;
        quota.as_ref().map(card.promise)
    }

    fn claim(&mut self, state: &File, uuid: [u8; 16], card: Card<'_>, ours: Option<Place>) -> Claim {
        let most = self.promise(card).map_or(card.physical, |promise| promise.limit.max(promise.reserve));
        let read = Claim::read(state, Question { uuid, most: most / UNIT, ours });
        let last = self.last(uuid);
        let mut claim = match read {
            Ok(claim) => claim,
            Err(_) => last.unwrap_or_default(),
        };
        // A card's worth and more is noise.
        claim.reserve = claim.reserve.filter(|reserve| *reserve <= card.physical);
        claim.reserve = claim.reserve.or(last.and_then(|last| last.reserve));
        self.last.retain(|(of, _)| *of != uuid);
        self.last.push((uuid, claim));
        claim
    }

    fn last(&self, uuid: [u8; 16]) -> Option<Claim> {
        self.last.iter().find(|(of, _)| *of == uuid).map(|(_, claim)| *claim)
    }

    /// What is kept for it: as its quota file says, or else as it says itself.
    fn reserve(&self, claim: &Claim, card: Card<'_>) -> u64 {
        self.promise(card).map_or(claim.reserve.unwrap_or(0), |promise| promise.reserve)
    }
}
