//! The ledger as its users see it.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use super::account::{Account, Accounts, GpuIndex, PASSED};
use super::layout::LIMIT_KNOWN;
use super::lost::SharingLost;
use super::objects::Objects;
use super::peers::Peers;
use super::protocol::{self, Board, Total, UNIT, units};
use super::region::Region;
use super::request::Cap;
use super::{Refusal, Want, place};
use crate::config::StatePlace;
use crate::sys::file::Identity;

/// The budget of a container as one of its processes sees it. Any number of threads may use it at once, in signal handlers
/// too; no lock is ever held.
///
/// It belongs to the process that attached. A forked child has no part in it (the mapping is not even there): keep it in a
/// [`ForkLocal`](crate::sys::fork::ForkLocal) and attach anew.
pub struct Ledger {
    pub(super) accounts: Accounts,
    /// The file that we have joined; null without one. Replaced ones are never freed: a thread may still look there.
    region: AtomicPtr<Region>,
    /// The file that we had joined before. Processes that have not noticed yet still count us there.
    previous: AtomicPtr<Region>,
    pub(super) place: StatePlace,
    pub(super) peers: Peers,
    pub(super) label: Option<String>,
    /// What `/` was when we joined.
    pub(super) root: Identity,
    lost: OnceLock<SharingLost>,
    told: AtomicBool,
    process: u32,
    pub(super) upkeep: super::upkeep::Schedule,
    pub(super) moves: AtomicU32,
    pub(super) objects: Objects,
    /// The last request to trim that we have heard of.
    pub(super) trims_seen: AtomicU64,
}

impl Ledger {
    /// Joins the container's ledger, made if need be, or keeps a private one where that cannot be had: see
    /// [`Ledger::sharing`]. `label` is the container's name for `status`.
    pub fn attach(place: &StatePlace, label: Option<&str>) -> Ledger {
        let ledger = Ledger {
            accounts: Accounts::new(),
            region: AtomicPtr::new(ptr::null_mut()),
            previous: AtomicPtr::new(ptr::null_mut()),
            place: place.clone(),
            peers: Peers::of(place),
            label: label.map(str::to_owned),
            root: place::root(),
            lost: OnceLock::new(),
            told: AtomicBool::new(false),
            process: std::process::id(),
            upkeep: super::upkeep::Schedule::new(),
            moves: AtomicU32::new(0),
            objects: Objects::new(),
            trims_seen: AtomicU64::new(0),
        };
        match ledger.join() {
            Ok(region) => {
                // What processes held that have just ended is not to be seen by the next.
                region.sweep_all();
                ledger.adopt(region);
            }
            Err(why) => ledger.lose(why),
        }
        ledger
    }

    /// Whether the budget is shared with the container's other processes. Without that, this process is held to the whole
    /// limit on its own.
    pub fn sharing(&self) -> Result<(), &SharingLost> {
        self.lost.get().map_or(Ok(()), Err)
    }

    /// Why sharing is off: said once, to the first that asks after it happened.
    pub fn newly_lost(&self) -> Option<&SharingLost> {
        let lost = self.lost.get()?;
        (!self.told.load(Ordering::Relaxed) && !self.told.swap(true, Ordering::Relaxed)).then_some(lost)
    }

    /// The file that is shared; `None` without sharing.
    pub fn path(&self) -> Option<PathBuf> {
        self.region().map(|region| PathBuf::from(OsStr::from_bytes(region.path().as_bytes())))
    }

    /// The GPU with this UUID. `None` once there are more of them than a ledger has room for.
    pub fn gpu(&self, uuid: [u8; 16]) -> Option<GpuIndex> {
        let gpu = self.accounts.find(uuid)?;
        if let Some(region) = self.region()
            && !region.know(gpu, uuid)
        {
            self.lose(super::lost::Fault::TooManyGpus.at(region.path()));
        }
        Some(gpu)
    }

    /// Charges a request, if all processes together stay within `limit` bytes (`u64::MAX`: no limit, only counted). Of any number
    /// of requests at the same time as many are admitted as fit.
    ///
    /// Costs a few dozen nanoseconds where the process has had that much before, or the container has plenty left. Takes up to
    /// half a second where another process has been stopped (not killed) in the middle of a request.
    pub fn reserve(&self, gpu: GpuIndex, want: Want, limit: u64) -> Result<(), Refusal> {
        self.admit(gpu, want, limit).inspect_err(|_| self.count_refusal(gpu))
    }

    /// As [`Ledger::reserve`], but a refusal is not counted: the caller may know a way to make room, and try again.
    pub fn admit(&self, gpu: GpuIndex, want: Want, limit: u64) -> Result<(), Refusal> {
        self.admit_if(gpu, want, limit, limit, |_, _| true)
    }

    /// Admits what also `fits` elsewhere, which is asked with the units when the container's own words say yes; leases nothing
    /// beyond `lease_limit`.
    #[inline]
    pub(super) fn admit_if(
        &self,
        gpu: GpuIndex,
        want: Want,
        limit: u64,
        lease_limit: u64,
        fits: impl FnOnce(Option<&Region>, u32) -> bool,
    ) -> Result<(), Refusal> {
        let account = self.accounts.of(gpu);
        if account.limit.load(Ordering::Relaxed) != limit {
            self.note_limit(gpu, account, limit);
        }
        let overshoot = want.bytes.saturating_sub(want.at_least);
        let cap =
            Cap { request: limit.saturating_add(overshoot) / UNIT, lease: lease_limit.min(limit) / UNIT };
        let n = match units(want.bytes) {
            Some(0) => return Ok(()),
            Some(n) => n,
            None => return Err(self.refuse(gpu, want, limit)),
        };
        let lease = account.tight.load(Ordering::Relaxed) == 0;
        let shared = self.region().and_then(|region| Some((region, region.own_word(gpu)?)));
        let admitted = match shared {
            None => {
                account.holds().saturating_add(u64::from(n)) <= cap.request
                    && fits(None, n)
                    && account.add(n, cap.request).is_some()
            }
            Some((region, word)) if lease && protocol::take(word, n) => {
                fits_or_back(fits(Some(region), n), word, n) && self.enter(gpu, account, word, n, cap, None)
            }
            Some((region, word)) => {
                // Damage to our word must not make room.
                protocol::raise_to(word, account.used_units());
                let fits_alone = account.holds().saturating_add(u64::from(n)) <= cap.request;
                let board = region.board(gpu).filter(|_| fits_alone);
                let total = board.and_then(|board| region.request(&board, n, cap));
                if total.is_some() && account.limit.load(Ordering::Relaxed) == limit {
                    account.tight.fetch_and(!PASSED, Ordering::Relaxed);
                }
                total.is_some()
                    && fits_or_back(fits(Some(region), n), word, n)
                    && self.enter(gpu, account, word, n, cap, total)
            }
        };
        if admitted { Ok(()) } else { Err(self.refuse(gpu, want, limit)) }
    }

    /// Enters what the shared words have admitted into our own account, which has the last word.
    fn enter(
        &self,
        gpu: GpuIndex,
        account: &Account,
        word: &AtomicU64,
        n: u32,
        cap: Cap,
        total: Option<Total>,
    ) -> bool {
        match account.add(n, cap.request) {
            Some(record) => {
                if record || total.is_some() {
                    self.note_peak(gpu, total);
                }
                true
            }
            None => {
                protocol::give_back(word, n);
                false
            }
        }
    }

    /// Takes a charge back, all or part of it. Never below nothing.
    pub fn give_back(&self, gpu: GpuIndex, bytes: u64) {
        // The account first, so that in all that is in order it is never more than the word.
        let account = self.accounts.of(gpu);
        let n = account.subtract(units(bytes).unwrap_or(u32::MAX));
        if let Some(word) = self.region().and_then(|region| region.own_word(gpu)) {
            protocol::give_back(word, n);
            if account.tight.load(Ordering::Relaxed) != 0 || self.is_lease_costly(gpu) {
                protocol::reclaim(word);
            }
        }
    }

    /// Charges without asking, for what is there already.
    pub fn force(&self, gpu: GpuIndex, bytes: u64) {
        let n = units(bytes).unwrap_or(u32::MAX);
        if let Some(word) = self.region().and_then(|region| region.own_word(gpu)) {
            protocol::force(word, n);
        }
        let account = self.accounts.of(gpu);
        account.force(n);
        account.tight.fetch_or(PASSED, Ordering::Relaxed);
        self.note_peak(gpu, None);
    }

    /// Puts a charge right: `paid` bytes were charged for what turned out to take `taken`.
    #[inline]
    pub fn settle(&self, gpu: GpuIndex, paid: u64, taken: u64) {
        if taken > paid {
            self.force(gpu, taken - paid);
        } else if taken < paid {
            self.give_back(gpu, paid - taken);
        }
    }

    /// Bytes that the whole container uses; those of a process that was killed until the next housekeeping of anybody.
    pub fn used(&self, gpu: GpuIndex) -> u64 {
        let account = self.accounts.of(gpu);
        let (own, region) = (account.used(), self.region());
        let others = region.and_then(|region| Some((region, region.board(gpu)?))).map(|(region, board)| {
            let others = (0..board.slots()).filter(|slot| *slot != region.own_slot());
            let words =
                others.map(|slot| u64::from(protocol::used(board.word(slot).load(Ordering::Acquire))));
            words.sum::<u64>() + board.objects()
        });
        own.saturating_add(others.unwrap_or_else(|| account.shared.load(Ordering::Relaxed)))
            .saturating_mul(UNIT)
    }

    /// Bytes that this process uses.
    pub fn own_used(&self, gpu: GpuIndex) -> u64 {
        self.accounts.of(gpu).used().saturating_mul(UNIT)
    }

    /// The most bytes that the container has been seen using at a time; this process alone without sharing.
    pub fn peak(&self, gpu: GpuIndex) -> u64 {
        let shared = self.region().and_then(|region| region.gpu(gpu)).map(|e| e.peak.load(Ordering::Relaxed));
        shared.unwrap_or(0).max(self.accounts.of(gpu).high()).saturating_mul(UNIT)
    }

    /// Requests that were refused, in the whole container; by this process alone without sharing.
    pub fn refusals(&self, gpu: GpuIndex) -> u64 {
        let shared = self.region().and_then(|region| region.gpu(gpu));
        shared.map_or(&self.accounts.of(gpu).refusals, |entry| &entry.refusals).load(Ordering::Relaxed)
    }

    /// Bytes that a context takes on this GPU, as far as anybody here has learned. Others can write this number: believe it
    /// within reason.
    pub fn context_cost(&self, gpu: GpuIndex) -> Option<u64> {
        Some(self.cost_cell(gpu).load(Ordering::Relaxed)).filter(|cost| *cost != 0)
    }

    /// Remembers a context's cost in bytes for all processes; the smallest stays, 0 is ignored.
    pub fn learn_context_cost(&self, gpu: GpuIndex, bytes: u64) {
        let smaller = |known| (bytes != 0 && (known == 0 || bytes < known)).then_some(bytes);
        let _ = self.cost_cell(gpu).fetch_update(Ordering::Relaxed, Ordering::Relaxed, smaller);
    }

    fn cost_cell(&self, gpu: GpuIndex) -> &AtomicU64 {
        let shared = self.region().and_then(|region| region.gpu(gpu));
        shared.map_or(&self.accounts.of(gpu).context_cost, |entry| &entry.context_cost)
    }

    /// A limit that was not seen before: what was leased under the old one is not ours any more.
    #[cold]
    fn note_limit(&self, gpu: GpuIndex, account: &Account, limit: u64) {
        let before = account.limit.swap(limit, Ordering::Relaxed);
        if limit < before {
            account.tight.fetch_or(PASSED, Ordering::Relaxed);
        }
        if let Some(region) = self.region()
            && let (Some(entry), Some(word)) = (region.gpu(gpu), region.own_word(gpu))
        {
            entry.limit.store(limit, Ordering::Relaxed);
            entry.flags.fetch_or(LIMIT_KNOWN, Ordering::Relaxed);
            protocol::reclaim(word);
        }
    }

    #[cold]
    fn refuse(&self, gpu: GpuIndex, want: Want, limit: u64) -> Refusal {
        Refusal { bytes: want.bytes, limit, used: self.used(gpu) }
    }

    /// Counts a request that was refused in the end.
    #[cold]
    pub fn count_refusal(&self, gpu: GpuIndex) {
        self.accounts.of(gpu).refusals.fetch_add(1, Ordering::Relaxed);
        if let Some(entry) = self.region().and_then(|region| region.gpu(gpu)) {
            entry.refusals.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[cold]
    pub(super) fn note_peak(&self, gpu: GpuIndex, total: Option<Total>) {
        if let Some(region) = self.region()
            && let (Some(entry), Some(board)) = (region.gpu(gpu), region.board(gpu))
        {
            let used = total.unwrap_or_else(|| protocol::total(&board)).used;
            if used > entry.peak.load(Ordering::Relaxed) {
                entry.peak.fetch_max(used, Ordering::Relaxed);
            }
        }
    }

    /// The file that we have joined.
    pub(super) fn region(&self) -> Option<&Region> {
        // SAFETY: null or a box that `adopt` has leaked, freed at the earliest when the ledger is dropped.
        unsafe { self.region.load(Ordering::Acquire).as_ref() }
    }

    /// Goes on with another file.
    pub(super) fn adopt(&self, region: Region) {
        self.enter_all(&region);
        let old = self.region.swap(Box::into_raw(Box::new(region)), Ordering::AcqRel);
        // What threads have charged to the old one meanwhile.
        if let Some(region) = self.region() {
            self.enter_all(region);
            self.enter_objects(region);
        }
        for (gpu, _, _) in self.accounts.known() {
            self.tell_estimated(gpu);
            self.tell_lazy(gpu);
        }
        self.pass_over_trims();
        // SAFETY: null or a box that an earlier call has leaked.
        if let Some(older) = unsafe { self.previous.swap(old, Ordering::AcqRel).as_ref() } {
            older.abandon();
        }
    }

    /// Goes on without a file.
    pub(super) fn lose(&self, why: SharingLost) {
        // SAFETY: null or a box that `adopt` has leaked; it stays leaked, as threads may still use it.
        let old = unsafe { self.region.swap(ptr::null_mut(), Ordering::AcqRel).as_ref() };
        if let Some(region) = old {
            region.abandon();
        }
        let _ = self.lost.set(why);
    }

    fn enter_all(&self, region: &Region) {
        for (gpu, uuid, account) in self.accounts.known() {
            if region.know(gpu, uuid)
                && let (Some(word), Some(entry)) = (region.own_word(gpu), region.gpu(gpu))
            {
                entry.reserve.store(account.reserve.load(Ordering::Relaxed), Ordering::Release);
                protocol::raise_to(word, account.used_units());
            }
        }
    }
}

/// Takes back what fits here and not elsewhere, and keeps no lease of it.
#[inline]
fn fits_or_back(fits: bool, word: &AtomicU64, n: u32) -> bool {
    if !fits {
        protocol::give_back(word, n);
        protocol::reclaim(word);
    }
    fits
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // In a forked child the mapping is not there, and the slot is the parent's.
        if self.process != std::process::id() {
            return;
        }
        for region in [*self.region.get_mut(), *self.previous.get_mut()] {
            if !region.is_null() {
                // SAFETY: a box that `adopt` has leaked, and nobody else has the ledger any more.
                drop(unsafe { Box::from_raw(region) });
            }
        }
    }
}
