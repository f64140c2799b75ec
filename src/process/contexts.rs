//! The contexts this process holds, and what they cost.
//!
//! NVIDIA's runtime gets its primary context through a private table, so a context may exist that no hook saw
//! being made: it is met at the first hooked call that finds it current, and charged then.

mod dying;
mod green;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use crate::abi::{CUcontext, CUdevice};
use crate::driver::Driver;
use crate::policy;
use crate::sys::clock;

use super::Process;
use super::calm::Calm;
use super::context_cost::{learn, look};
use super::gpus::Gpu;
use super::locks::lock;
use super::outlived::Before;
use super::thread::{self, Thread};
use super::weighing::Spot;

/// A context of this process, small enough to stand in the record of every allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextId(pub u16);

impl ContextId {
    /// One more than the largest: what does not fit is not told apart from other contexts of its process.
    pub const END: u16 = 0x7fff;
}

/// Where a request of this thread lands: its current context and the card of that.
#[derive(Clone, Copy)]
pub struct Place {
    /// The card.
    pub gpu: &'static Gpu,
    /// The context.
    pub context: ContextId,
}

#[derive(Clone, Copy)]
struct Entry {
    handle: usize,
    driver: usize,
    gpu: &'static Gpu,
    id: ContextId,
    /// What it is charged, in bytes.
    cost: u64,
    /// Made by `cuCtxCreate`, rather than the primary context of its device.
    created: bool,
    life: Life,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Life {
    There,
    /// The driver is asked to destroy it. Threads to which it is current may still do things in it, and its handle may at any
    /// moment be that of a new one.
    Leaving,
    /// It was destroyed, and what is recorded in it is being forgotten: its id is not for others yet.
    Gone,
}

impl Entry {
    fn is(&self, handle: usize, driver: usize) -> bool {
        self.handle == handle && self.driver == driver
    }

    fn is_there(&self) -> bool {
        self.life == Life::There
    }

    /// Whether it is the primary context on `gpu`.
    fn is_primary(&self, driver: usize, gpu: &Gpu) -> bool {
        !self.created && self.driver == driver && core::ptr::eq(self.gpu, gpu)
    }
}

/// See the module.
#[derive(Default)]
pub struct Contexts {
    entries: Mutex<Vec<Entry>>,
    greens: green::Greens,
    any_gone: AtomicBool,
    /// The cards of the contexts with the lowest ids, for every free to find; null where there is no such context.
    first: [AtomicPtr<Gpu>; 32],
    /// When what they cost can be seen.
    pub calm: Calm,
}

/// Counts the times that a context went away or a process was born: what a thread remembers from before is void.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The context that a thread's last request found current.
#[derive(Clone, Copy)]
pub struct Last {
    handle: usize,
    driver: usize,
    generation: u32,
    place: Place,
}

/// Voids what threads remember.
pub fn forget_last() {
    GENERATION.fetch_add(1, Ordering::SeqCst);
}

impl Contexts {
    /// Where a request of this thread lands; `None` where the thread has no context of `driver`, and then the
    /// driver itself says so best.
    #[inline]
    pub fn current(&self, process: &Process, driver: usize, thread: &Thread) -> Option<Place> {
        let api = Driver::get(driver)?;
        let context = api.current()?;
        let generation = GENERATION.load(Ordering::Relaxed);
        let handle = context as usize;
        if let Some(last) = thread.last.get()
            && last.handle == handle
            && last.driver == driver
            && last.generation == generation
        {
            return Some(last.place);
        }
        let place = self
            .find(handle, driver)
            .or_else(|| self.of_green(process, driver, handle))
            .or_else(|| self.meet(process, driver, api, context, None))?;
        thread.last.set(Some(Last { handle, driver, generation, place }));
        Some(place)
    }

    /// Where a request in `context` lands, which need not be current.
    pub fn of(&self, process: &Process, driver: usize, context: CUcontext) -> Option<Place> {
        let found = self.find(context as usize, driver);
        found.or_else(|| self.of_green(process, driver, context as usize)).or_else(|| {
            self.made(process, driver, context, false);
            self.find(context as usize, driver)
        })
    }

    /// A context that is there, or else one that another thread is just destroying: what is done in that goes with it, if it
    /// goes.
    fn find(&self, handle: usize, driver: usize) -> Option<Place> {
        let entries = self.lock();
        let is_it = |entry: &&Entry| entry.is(handle, driver) && entry.life != Life::Gone;
        let entry = entries.iter().filter(is_it).min_by_key(|entry| entry.life)?;
        Some(Place { gpu: entry.gpu, context: entry.id })
    }

    /// Whether what is recorded in a context will be forgotten with it: false once that has begun, and it has to be done by
    /// whoever records it.
    #[cold]
    #[inline(never)]
    pub fn is_alive(&self, context: ContextId) -> bool {
        self.lock().iter().any(|entry| entry.id == context && entry.life != Life::Gone)
    }

    /// Whether a context went away since this thread's last request found the one that it has.
    #[inline]
    pub fn is_any_gone_since(&self, thread: &Thread) -> bool {
        let last = thread.last.get();
        last.is_none_or(|last| last.generation != GENERATION.load(Ordering::SeqCst))
    }

    /// Whether a context is there, and not about to be destroyed.
    pub fn is_there(&self, context: ContextId) -> bool {
        self.lock().iter().any(|entry| entry.id == context && entry.is_there())
    }

    /// What the driver calls a context.
    pub fn name_of(&self, context: ContextId) -> Option<usize> {
        self.lock().iter().find(|entry| entry.id == context).map(|entry| entry.handle)
    }

    /// Whether a context is known by this name. What leaves has it no more.
    fn is_met(&self, driver: usize, handle: usize) -> bool {
        self.lock().iter().any(|entry| entry.is(handle, driver) && entry.is_there())
    }

    /// A context on each card that this process has contexts of `driver` on: this thread's where it is `current`.
    pub fn on_all_cards(&self, driver: usize, current: Option<Place>) -> Vec<Spot> {
        let mut spots: Vec<Spot> = current.into_iter().map(|place| Spot { place, context: None }).collect();
        for entry in self.lock().iter().filter(|entry| entry.driver == driver && entry.is_there()) {
            if !spots.iter().any(|spot| core::ptr::eq(spot.place.gpu, entry.gpu)) {
                let place = Place { gpu: entry.gpu, context: entry.id };
                spots.push(Spot { place, context: Some(entry.handle as CUcontext) });
            }
        }
        spots
    }

    /// The card of a context, until what is recorded in it is forgotten.
    #[inline]
    pub fn gpu_of(&self, context: ContextId) -> Option<&'static Gpu> {
        if let Some(gpu) = self.first.get(usize::from(context.0)) {
            // SAFETY: null, or a card that a `Place` of this process holds for good.
            return unsafe { gpu.load(Ordering::Acquire).as_ref() };
        }
        self.lock().iter().find(|entry| entry.id == context).map(|entry| entry.gpu)
    }

    /// Takes notice of a context that a hooked call has just made or handed out. `created` tells `cuCtxCreate`
    /// from the primary context of `device`.
    pub fn made(&self, process: &Process, driver: usize, context: CUcontext, created: bool) {
        let Some(api) = Driver::get(driver) else { return };
        if self.is_met(driver, context as usize) {
            return;
        }
        // Only a current context can be asked about its card.
        let meet = || self.meet(process, driver, api, context, Some(created));
        // SAFETY: the driver has just handed this context out.
        let _ = unsafe { api.within(context, meet) };
    }

    /// Charges the current context, seen for the first time.
    #[cold]
    fn meet(
        &self,
        process: &Process,
        driver: usize,
        api: &Driver,
        context: CUcontext,
        created: Option<bool>,
    ) -> Option<Place> {
        let mut device: CUdevice = 0;
        // SAFETY: the output is a live local of the type that the driver fills.
        unsafe { api.ctx_get_device(&mut device) }.ok()?;
        let gpu = process.gpus.by_device(process, driver, device)?;
        let seen = gpu.ledger.and_then(|index| {
            let look = || look(process, driver, api, gpu, index, 1);
            // What is on its way says nothing against what is known.
            if process.ledger().context_cost(index).is_some() { self.calm.alone(look) } else { look() }
        });
        let place = {
            let mut entries = self.lock();
            // Two threads may meet the same context at once.
            let handle = context as usize;
            let known = entries.iter().find(|entry| entry.is(handle, driver) && entry.is_there());
            if let Some(entry) = known {
                return Some(Place { gpu, context: entry.id });
            }
            let id = (0..ContextId::END).find(|id| entries.iter().all(|entry| entry.id.0 != *id));
            let id = ContextId(id.unwrap_or(ContextId::END));
            let cost = gpu.ledger.map_or(0, |index| {
                let cost = learn(process, gpu, index, seen).unwrap_or(policy::TYPICAL_CONTEXT);
                let paid = thread::with(|thread| thread.coming.take());
                process.ledger().context_made(index, cost, paid);
                cost
            });
            let created = created.unwrap_or(false);
            entries.push(Entry { handle, driver, gpu, id, cost, created, life: Life::There });
            if let Some(first) = self.first.get(usize::from(id.0)) {
                first.store(core::ptr::from_ref(gpu).cast_mut(), Ordering::Release);
            }
            Place { gpu, context: id }
        };
        // Another thread may have destroyed it, and not have met it.
        // SAFETY: as above.
        if unsafe { api.ctx_get_device(&mut device) }.is_err() {
            self.forget(process, driver, place.context);
            return None;
        }
        // Others may have been made at the same moment, and the card showed them all: now that they are counted, look
        // again.
        for _ in 0..2 {
            self.look_again(process, driver, api, gpu);
        }
        self.calm.met();
        self.settle(process);
        Some(place)
    }

    /// Looks what contexts cost on the card of this thread's last request, if its context is still current.
    pub fn look_around(&self, process: &Process, now: u64) {
        let Some(Last { handle, driver, place, .. }) = thread::with(|thread| thread.last.get()) else {
            return;
        };
        let Some(api) = Driver::get(driver) else { return };
        let still = api.current().is_some_and(|context| context as usize == handle);
        if still && self.calm.are_young(now) {
            self.look_again(process, driver, api, place.gpu);
        }
        self.settle(process);
    }

    /// Whether a context on `gpu` may turn out to cost much less than it is charged. What others held when it was made, and
    /// nobody tells of, was taken for its cost.
    #[cold]
    pub fn may_cost_less(&self, gpu: &Gpu) -> bool {
        self.calm.are_young(clock::coarse_millis())
            && self
                .lock()
                .iter()
                .any(|entry| core::ptr::eq(entry.gpu, gpu) && entry.cost > policy::USUAL_CONTEXT)
    }

    /// Whether the primary context of `device` is there already.
    pub fn is_primary_up(&self, driver: usize, device: CUdevice) -> bool {
        let (mut flags, mut active) = (0, 0);
        // SAFETY: the outputs are live locals of the types that the driver fills.
        let asked = |api: &Driver| unsafe { api.primary_state(device, &mut flags, &mut active) }.is_ok();
        Driver::get(driver).is_some_and(asked) && active != 0
    }

    /// What `gpu` has free as the driver says, where this thread's context is one of its.
    pub fn physical_free(&self, gpu: &Gpu) -> Option<u64> {
        let Last { handle, driver, place, .. } = thread::with(|thread| thread.last.get())?;
        let api = Driver::get(driver).filter(|_| core::ptr::eq(place.gpu, gpu))?;
        api.current().filter(|context| *context as usize == handle)?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the outputs are live locals of the types that the driver fills.
        unsafe { api.mem_info(&mut free, &mut total) }.ok()?;
        Some(free as u64)
    }

    fn look_again(&self, process: &Process, driver: usize, api: &Driver, gpu: &Gpu) {
        if let Some(index) = gpu.ledger {
            let seen = self.calm.alone(|| look(process, driver, api, gpu, index, 0));
            if seen.is_some() {
                self.calm.looked();
                learn(process, gpu, index, seen);
            }
        }
    }

    /// Gives back what was charged for contexts before their cost was known better.
    pub fn settle(&self, process: &Process) {
        for entry in self.lock().iter_mut().filter(|entry| entry.life != Life::Gone) {
            let Some(index) = entry.gpu.ledger else { continue };
            if let Some(learned) =
                process.ledger().context_cost(index).filter(|learned| *learned < entry.cost)
            {
                process.ledger().give_back(index, entry.cost - learned);
                process.ledger().less_estimated(index, entry.cost - learned);
                entry.cost = learned;
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Entry>> {
        lock(&self.entries)
    }
}
