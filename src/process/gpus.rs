//! The cards this process has met, by what they are (their UUID) and never by an ordinal, which the process's
//! environment can turn around.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::abi::{CUdevice, DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, nvmlDevice_t};
use crate::config::{GpuIdentity, Growth, PciAddress, Quota};
use crate::driver::Driver;
use crate::ledger::{GpuIndex, Promise};
use crate::log::{self, Level};
use crate::policy::BLOCK;

use super::Process;
use super::budget;
use super::bus::{self, BusPlace, Visibility};
use super::identity;
use super::locks::lock;
use super::moments::Moments;

/// One card, for the life of the process.
pub struct Gpu {
    /// What it is. Its place in bus order is kept apart, as it may become known later.
    pub identity: GpuIdentity,
    /// Its place in the ledger; `None` where the ledger has no room for one more card.
    pub ledger: Option<GpuIndex>,
    /// Physical bytes, as the interface that met it first told.
    physical: u64,
    limit: AtomicU64,
    /// See [`Gpu::lazy_from`].
    lazy_from: AtomicU64,
    /// Whether managed memory of this card is paged; false while only NVML has met it.
    paged: AtomicBool,
    reserve: AtomicU64,
    /// What a context seemed to cost when this process last looked, in bytes, and the moments at which every look has seen that.
    share_seen: AtomicU64,
    share_moments: Moments,
    place: Mutex<BusPlace>,
}

impl Gpu {
    /// Its place in PCI bus order among all of the container.
    pub fn place(&self) -> BusPlace {
        *lock(&self.place)
    }

    /// Notes what a context seems to cost; at how many moments that has been seen, unless it looked otherwise before.
    pub fn note_share(&self, bytes: u64) -> Option<u32> {
        let again = self.share_seen.swap(bytes, Ordering::Relaxed).abs_diff(bytes) <= BLOCK;
        if !again {
            self.share_moments.forget();
        }
        self.share_moments.note();
        again.then(|| self.share_moments.count())
    }

    /// Physical bytes of the card.
    pub fn physical(&self) -> u64 {
        self.physical
    }

    /// The most this container may hold here, in bytes; `u64::MAX` if unlimited.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Bytes that are kept for this container here.
    pub fn reserve(&self) -> u64 {
        self.reserve.load(Ordering::Relaxed)
    }

    /// What a quota file, this container's or a neighbour's, promises here.
    pub fn promise_in(&self, quota: &Quota) -> Promise {
        Promise::of(budget::rule_in(quota, &self.identity, self.place(), self.physical), self.physical)
    }

    /// The smallest request, in bytes, that is backed on touch; `u64::MAX` where none is.
    #[inline]
    pub fn lazy_from(&self) -> u64 {
        self.lazy_from.load(Ordering::Relaxed)
    }

    /// Takes over what the quota file says now; it holds from the next request.
    fn obey(&self, process: &Process) {
        let rule = process.budget.rule(&self.identity, self.place(), self.physical);
        let limit = rule.as_ref().map_or(0, |rule| rule.limit.bytes(self.physical).unwrap_or(u64::MAX));
        let reserve = Promise::of(rule.as_ref(), self.physical).reserve;
        let lazy = rule.filter(|rule| rule.growth == Growth::Lazy && self.paged.load(Ordering::Relaxed));
        self.limit.store(limit, Ordering::Relaxed);
        self.reserve.store(reserve, Ordering::Relaxed);
        if let Some(index) = self.ledger {
            process.ledger().tell_reserve(index, reserve);
        }
        // What is smaller than a block would take one for itself.
        let from = lazy.map_or(u64::MAX, |rule| rule.lazy_from.max(BLOCK));
        self.lazy_from.store(from, Ordering::Relaxed);
    }

    /// Learns from the driver whether managed memory is paged. Where it is not, nothing can be lazy.
    fn ask_paged(&self, process: &Process, api: &Driver, device: CUdevice) {
        let mut paged = 0;
        // SAFETY: the output is a live local of the type that the driver fills.
        let asked =
            unsafe { api.device_attribute(&mut paged, DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device) };
        if asked.is_ok() && paged != 0 {
            self.paged.store(true, Ordering::Relaxed);
            return self.obey(process);
        }
        let rule = process.budget.rule(&self.identity, self.place(), self.physical);
        if rule.is_some_and(|rule| rule.growth == Growth::Lazy) {
            log::say(
                Level::Warn,
                format_args!(
                    "growth = \"lazy\" on {} is not to be had: the GPU has no concurrent access to managed memory; \
                     allocations are left as they are",
                    self.identity.uuid_text()
                ),
            );
        }
    }
}

/// A card as one of the interfaces names it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    Cuda(usize, CUdevice),
    Nvml(usize, nvmlDevice_t),
}
// SAFETY: the NVML handle in it is only compared, never followed.
unsafe impl Send for Name {}

/// See the module.
#[derive(Default)]
pub struct Gpus {
    known: Mutex<Vec<&'static Gpu>>,
    /// Whether there are more than one of them.
    several: AtomicBool,
    names: Mutex<Vec<(Name, &'static Gpu)>>,
    /// What each copy of libcuda was started with.
    started: Mutex<Vec<(usize, Visibility)>>,
    /// The devices of each copy of libcuda.
    fleets: Mutex<Vec<(usize, &'static [GpuIdentity])>>,
}

impl Gpus {
    /// Whether this process has met more than one card.
    #[inline]
    pub fn are_several(&self) -> bool {
        self.several.load(Ordering::Relaxed)
    }

    /// Copy `driver` of libcuda has started, with what it found in `visibility`.
    pub fn started(&self, process: &Process, driver: usize, visibility: Visibility) {
        let mut started = lock(&self.started);
        if !started.iter().any(|(known, _)| *known == driver) {
            started.push((driver, visibility));
        }
        drop(started);
        let _ = self.fleet(process, driver);
    }

    /// The devices of copy `driver` of libcuda, by their ordinals; `None` while it has not started.
    fn fleet(&self, process: &Process, driver: usize) -> Option<&'static [GpuIdentity]> {
        if let Some((_, fleet)) = lock(&self.fleets).iter().find(|(known, _)| *known == driver) {
            return Some(fleet);
        }
        // The driver is asked outside the lock.
        let fleet = identity::all(Driver::get(driver)?)?;
        process.budget.meet_gpus(&fleet);
        let mut fleets = lock(&self.fleets);
        if let Some((_, fleet)) = fleets.iter().find(|(known, _)| *known == driver) {
            return Some(fleet);
        }
        // Ordinals are for a process's life.
        let fleet: &'static [GpuIdentity] = fleet.leak();
        fleets.push((driver, fleet));
        Some(fleet)
    }

    /// The card that copy `driver` of libcuda calls `device`; `None` where it knows no such device.
    pub fn by_device(&self, process: &Process, driver: usize, device: CUdevice) -> Option<&'static Gpu> {
        self.named(Name::Cuda(driver, device), || {
            let fleet = self.fleet(process, driver)?;
            let identity = *fleet.get(usize::try_from(device).ok()?)?;
            let mut physical = 0;
            // SAFETY: the output is a live local of the type that the driver fills.
            unsafe { Driver::get(driver)?.device_total(&mut physical, device) }.ok()?;
            let buses: Option<Vec<PciAddress>> = fleet.iter().map(|gpu| gpu.pci).collect();
            // Where there are parts of cards, not all cards need be shown.
            let whole = !fleet.iter().any(|gpu| gpu.mig);
            let started = lock(&self.started);
            let visibility = started.iter().find(|(known, _)| *known == driver).map(|(_, seen)| seen.clone());
            drop(started);
            let place = match buses {
                Some(buses) => bus::place_of(device, &buses, visibility.as_ref().filter(|_| whole)),
                None => BusPlace::AtLeast(0),
            };
            let gpu = self.meet(process, identity, place, physical as u64);
            gpu.ask_paged(process, Driver::get(driver)?, device);
            Some(gpu)
        })
    }

    /// What copy `driver` of libcuda calls a card, if it was met there.
    pub fn device_of(&self, driver: usize, gpu: &Gpu) -> Option<CUdevice> {
        lock(&self.names).iter().find_map(|(name, known)| match name {
            Name::Cuda(of, device) if *of == driver && core::ptr::eq(*known, gpu) => Some(*device),
            _ => None,
        })
    }

    /// The card behind an NVML handle, of `physical` bytes.
    pub fn by_nvml(
        &self,
        process: &Process,
        driver: usize,
        device: nvmlDevice_t,
        physical: u64,
    ) -> Option<&'static Gpu> {
        self.named(Name::Nvml(driver, device), || {
            let (identity, index) = identity::of_nvml(Driver::get(driver)?, device)?;
            let place = index.map_or(BusPlace::AtLeast(0), BusPlace::Known);
            Some(self.meet(process, identity, place, physical))
        })
    }

    fn named(&self, name: Name, ask: impl FnOnce() -> Option<&'static Gpu>) -> Option<&'static Gpu> {
        let known = lock(&self.names).iter().find(|(known, _)| *known == name).map(|(_, gpu)| *gpu);
        // The driver is asked outside the lock.
        known.or_else(|| {
            let gpu = ask()?;
            let mut names = lock(&self.names);
            if !names.iter().any(|(known, _)| *known == name) {
                names.push((name, gpu));
            }
            Some(gpu)
        })
    }

    fn meet(&self, process: &Process, identity: GpuIdentity, place: BusPlace, physical: u64) -> &'static Gpu {
        let identity = GpuIdentity { pci_index: None, ..identity };
        let ledger = process.ledger().gpu(identity.uuid);
        let mut known = lock(&self.known);
        if let Some(gpu) = known.iter().find(|gpu| gpu.identity.uuid == identity.uuid) {
            // The other interface may have known less.
            let mut best = lock(&gpu.place);
            if best.known().is_none() && place.known().is_some() {
                *best = place;
                drop(best);
                gpu.obey(process);
            }
            return gpu;
        }
        let gpu = Box::leak(Box::new(Gpu {
            identity,
            ledger,
            physical,
            limit: AtomicU64::new(0),
            reserve: AtomicU64::new(0),
            lazy_from: AtomicU64::new(u64::MAX),
            paged: AtomicBool::new(false),
            share_seen: AtomicU64::new(0),
            share_moments: Moments::default(),
            place: Mutex::new(place),
        }));
        gpu.obey(process);
        known.push(gpu);
        self.several.store(known.len() > 1, Ordering::Relaxed);
        gpu
    }

    /// Takes the limits over from a new version of the quota file; the new ones hold from the next request.
    pub fn refresh_limits(&self, process: &Process) {
        for gpu in lock(&self.known).iter() {
            gpu.obey(process);
        }
    }
}
