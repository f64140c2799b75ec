//! Stream-ordered pools, and the memory of graphs, which the driver keeps in a pool for each device: charged by the bytes that
//! a pool *holds* rather than by what is live in it, since the driver keeps freed memory for the pool's next request.
//!
//! What a pool holds only the driver knows. Where it cannot be asked, as with a capture open in a driver that has no mode for
//! that, a request is charged in full, and the charge is put right at the next question.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, RwLock, RwLockReadGuard};

use crate::abi::*;
use crate::driver::Driver;

use super::Process;
use super::drain;
use super::gpus::Gpu;
use super::locks::{lock, read, write};

/// A pool of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolId(pub u16);

/// What the driver calls a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    /// A handle.
    Pool(usize),
    /// The memory of graphs on a device, which has none.
    Graphs(CUdevice),
    /// Nobody any more, as it is being destroyed: its handle may at once be another's.
    Dying,
    /// Nobody any more, but memory from it lives on: it is charged by the blocks of that.
    Doomed,
    /// Nobody.
    Gone,
}

impl Name {
    fn is_alive(self) -> bool {
        matches!(self, Name::Pool(_) | Name::Graphs(_))
    }
}

struct Pool {
    name: Name,
    driver: usize,
    /// The card that its memory lies on; `None` for memory of the host, which costs nothing.
    gpu: Option<&'static Gpu>,
    charged: AtomicU64,
    /// Whether it may hold memory that was not charged: the driver did not say.
    suspect: AtomicBool,
    /// How often the charge was changed, of this pool and of those before it in its place.
    changes: Mutex<u64>,
    /// How many threads ask the driver about it just now. Never freed, so that they need no lock to say that they are through;
    /// places in the table are used again.
    askers: &'static AtomicU32,
}

impl Pool {
    /// Whoever has the driver's answer already has to ask again.
    fn changed(&self) {
        *lock(&self.changes) += 1;
    }

    /// `bytes` that were reserved in advance become part of the charge until it is put right.
    fn take_over(&self, bytes: u64) {
        self.changed();
        self.charged.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A pool that the driver is asked about: it is not destroyed before this is dropped.
struct Asked {
    name: Name,
    driver: usize,
    gpu: Option<&'static Gpu>,
    changes: u64,
    askers: &'static AtomicU32,
}

impl Asked {
    fn ask(&self, process: &Process, question: Question) -> Result<u64, Code> {
        let api = Driver::get(self.driver).ok_or(cuda::NOT_FOUND)?;
        process.captures.beside(api, || ask(api, self.name, question))
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.askers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// See the module. Thread-safe.
#[derive(Default)]
pub struct Pools {
    known: RwLock<Vec<Pool>>,
}

impl Pools {
    /// The pool that `driver` calls `handle`, on `gpu` or in memory of the host; new ones are met here. `None` where
    /// there are more pools than can be told apart.
    pub fn meet(&self, driver: usize, handle: CUmemoryPool, gpu: Option<&'static Gpu>) -> Option<PoolId> {
        self.meet_named(driver, Name::Pool(handle as usize), gpu)
    }

    /// The pool of the graphs' memory on `device`, which is `gpu`.
    pub fn of_graphs(&self, driver: usize, device: CUdevice, gpu: &'static Gpu) -> Option<PoolId> {
        self.meet_named(driver, Name::Graphs(device), Some(gpu))
    }

    fn meet_named(&self, driver: usize, name: Name, gpu: Option<&'static Gpu>) -> Option<PoolId> {
        if let Some((id, _)) = self.find_named(driver, name) {
            return Some(id);
        }
        let mut known = write(&self.known);
        // A destroyed pool leaves its place to the next.
        let place = known
            .iter()
            .position(|pool| pool.name == name && pool.driver == driver)
            .or_else(|| known.iter().position(|pool| pool.name == Name::Gone));
        match place.map(|place| &mut known[place]) {
            Some(pool) if pool.name == Name::Gone => {
                (pool.name, pool.driver, pool.gpu) = (name, driver, gpu);
                *pool.suspect.get_mut() = false;
                // It may have the handle of the one before it: an answer about that is none about this.
                pool.changed();
            }
            Some(_) => {}
            None => known.push(Pool {
                name,
                driver,
                gpu,
                charged: AtomicU64::new(0),
                suspect: AtomicBool::new(false),
                changes: Mutex::new(0),
                askers: Box::leak(Box::default()),
            }),
        }
        let place = place.unwrap_or(known.len() - 1);
        u16::try_from(place).ok().filter(|id| *id < 0x7fff).map(PoolId)
    }

    /// The pool that `driver` calls `handle` and its card (`None` in it for memory of the host), if it was met.
    pub fn find(&self, driver: usize, handle: CUmemoryPool) -> Option<(PoolId, Option<&'static Gpu>)> {
        self.find_named(driver, Name::Pool(handle as usize))
    }

    /// The card of a pool.
    pub fn find_gpu(&self, id: PoolId) -> Option<&'static Gpu> {
        self.read().get(usize::from(id.0)).and_then(|pool| pool.gpu)
    }

    fn find_named(&self, driver: usize, name: Name) -> Option<(PoolId, Option<&'static Gpu>)> {
        let known = self.read();
        let place = known.iter().position(|pool| pool.name == name && pool.driver == driver)?;
        Some((PoolId(place as u16), known[place].gpu))
    }

    /// Puts the charge of one pool right. `reserved` bytes were reserved for it in advance and become part of the
    /// charge; where the driver cannot be asked they all do.
    ///
    /// # Errors
    /// The driver's code, where it refuses to say what the pool holds, and `CUDA_ERROR_INVALID_VALUE` where bytes were
    /// reserved for a pool that has been destroyed meanwhile; nothing is changed then.
    pub fn settle(&self, process: &Process, id: PoolId, reserved: u64) -> Result<(), Code> {
        let dead = if reserved > 0 { Err(cuda::INVALID_VALUE) } else { Ok(()) };
        for _ in 0..MOST_ATTEMPTS {
            let Some(asked) = self.asked(id) else { return dead };
            let Some(gpu) = asked.gpu else { return Ok(()) };
            // The driver is asked outside the lock.
            let held = match asked.ask(process, Question::Reserved) {
                Err(cuda::STREAM_CAPTURE_UNSUPPORTED) => break,
                answer => answer?,
            };
            let known = self.read();
            let Some(pool) = known.get(usize::from(id.0)).filter(|pool| pool.name == asked.name) else {
                return dead;
            };
            let mut changes = lock(&pool.changes);
            if *changes != asked.changes {
                // Another thread has changed it since, with an answer that may be newer than this one.
                continue;
            }
            *changes += 1;
            pool.suspect.store(false, Ordering::Relaxed);
            let before = pool.charged.swap(held, Ordering::Relaxed);
            if let Some(index) = gpu.ledger {
                process.ledger().settle(index, before.saturating_add(reserved), held);
            }
            return Ok(());
        }
        // It must not be asked, or others put it right all the time, and will after this.
        if self.take_over(id, reserved) { Ok(()) } else { dead }
    }

    /// A pool for as long as the driver is asked about it; `None` where it is not there any more.
    fn asked(&self, id: PoolId) -> Option<Asked> {
        let known = self.read();
        let pool = known.get(usize::from(id.0)).filter(|pool| pool.name.is_alive())?;
        pool.askers.fetch_add(1, Ordering::SeqCst);
        let Pool { name, driver, gpu, askers, .. } = *pool;
        Some(Asked { name, driver, gpu, changes: *lock(&pool.changes), askers })
    }

    /// A pool may hold memory that is not charged: its charge is put right as soon as the driver says what it holds.
    pub fn suspect(&self, id: PoolId) {
        if let Some(pool) = self.read().get(usize::from(id.0)) {
            // An answer from before does not know of it.
            pool.changed();
            pool.suspect.store(true, Ordering::Relaxed);
        }
    }

    /// `reserved` bytes were reserved for a pool and become part of its charge until it is put right; false, and nothing
    /// done, where it has been destroyed meanwhile.
    pub fn take_over(&self, id: PoolId, reserved: u64) -> bool {
        let known = self.read();
        let pool = known.get(usize::from(id.0)).filter(|pool| pool.name.is_alive());
        pool.map(|pool| pool.take_over(reserved)).is_some()
    }

    /// How much a request of `bytes` would make the pool grow, at the least, as far as the driver may be asked.
    pub fn growth(&self, process: &Process, id: PoolId, bytes: u64) -> u64 {
        let Some(asked) = self.asked(id) else { return bytes };
        match (asked.ask(process, Question::Reserved), asked.ask(process, Question::Used)) {
            (Ok(held), Ok(used)) => bytes.saturating_sub(held.saturating_sub(used)),
            _ => bytes,
        }
    }

    /// Puts the charges of all pools of `driver` right: memory above a pool's threshold went back at the last
    /// synchronisation, and nobody said so.
    pub fn refresh(&self, process: &Process, driver: usize) {
        for id in self.charged(|pool| pool.driver == driver && pool.name.is_alive()) {
            // Where the driver does not say, the charge stays.
            let _ = self.settle(process, id, 0);
        }
    }

    /// Gives the unused memory of the pools on `gpu` back to the card, before a request is refused for the want of
    /// it. True where that may have helped.
    pub fn trim(&self, process: &Process, gpu: &Gpu) -> bool {
        let mut helped = false;
        for id in
            self.charged(|pool| pool.name.is_alive() && pool.gpu.is_some_and(|of| core::ptr::eq(of, gpu)))
        {
            helped |= self.asked(id).is_some_and(|asked| asked.ask(process, Question::Trim).is_ok());
            let _ = self.settle(process, id, 0);
        }
        helped
    }

    /// A pool is about to be destroyed. It is taken out before the driver is asked, which may give its handle to a new pool
    /// at once. Followed by [`Self::destroyed`] or [`Self::not_destroyed`]. `None` for a pool that was not met.
    pub fn destroying(&self, driver: usize, handle: CUmemoryPool) -> Option<PoolId> {
        let mut known = write(&self.known);
        let name = Name::Pool(handle as usize);
        let place = known.iter().position(|pool| pool.name == name && pool.driver == driver)?;
        known[place].name = Name::Dying;
        let askers = known[place].askers;
        drop(known);
        // Who was asking about it has to be through: a driver need not bear it.
        drain::wait(askers);
        u16::try_from(place).ok().map(PoolId)
    }

    /// The driver refused to destroy it.
    pub fn not_destroyed(&self, id: PoolId, handle: CUmemoryPool) {
        let mut known = write(&self.known);
        if let Some(pool) = known.get_mut(usize::from(id.0)) {
            pool.name = Name::Pool(handle as usize);
        }
    }

    /// It was destroyed. The driver keeps what is live in it until that is freed, and so is the charge.
    pub fn destroyed(&self, process: &Process, id: PoolId) {
        let mut known = write(&self.known);
        let Some(pool) = known.get_mut(usize::from(id.0)) else { return };
        let live = if pool.gpu.is_some() { process.allocations.orphan(id) } else { 0 };
        pool.name = if live > 0 { Name::Doomed } else { Name::Gone };
        let charged = pool.charged.swap(live, Ordering::Relaxed);
        if let Some(index) = pool.gpu.and_then(|gpu| gpu.ledger) {
            process.ledger().settle(index, charged, live);
        }
    }

    /// `bytes` of what lived on in a pool that is no more are gone.
    pub fn less_of_doomed(&self, process: &Process, id: PoolId, bytes: u64) {
        let mut known = write(&self.known);
        let Some(pool) = known.get_mut(usize::from(id.0)) else { return };
        let before = *pool.charged.get_mut();
        *pool.charged.get_mut() = before.saturating_sub(bytes);
        if let Some(gpu) = pool.gpu {
            process.give_back(gpu, bytes.min(before));
        }
        if before <= bytes {
            pool.name = Name::Gone;
        }
    }

    /// No context is left, and with them all memory of pools that were destroyed is gone.
    pub fn drop_doomed(&self, process: &Process) {
        for id in self.charged(|pool| pool.name == Name::Doomed) {
            let bytes = process.allocations.drop_orphans(id).bytes;
            self.less_of_doomed(process, id, bytes);
        }
    }

    /// The pools that are charged anything and are `wanted`.
    fn charged(&self, wanted: impl Fn(&Pool) -> bool) -> Vec<PoolId> {
        let known = self.read();
        let ids = known.iter().enumerate().filter(|(_, pool)| {
            pool.name != Name::Gone
                && (pool.charged.load(Ordering::Relaxed) > 0 || pool.suspect.load(Ordering::Relaxed))
                && wanted(pool)
        });
        ids.map(|(place, _)| PoolId(place as u16)).collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Pool>> {
        read(&self.known)
    }
}

/// How often another thread's answer may come first.
const MOST_ATTEMPTS: usize = 16;

/// What a pool can be asked.
#[derive(Clone, Copy)]
enum Question {
    /// All it holds, in bytes.
    Reserved,
    /// What is live in it, in bytes.
    Used,
    /// To give back what is not; the answer is 0.
    Trim,
}

fn ask(api: &Driver, name: Name, question: Question) -> Result<u64, Code> {
    let mut value = 0u64;
    let out = (&raw mut value).cast();
    // SAFETY: the pool was met and is not destroyed while it is asked, unless that takes very long; the attributes are 64-bit
    // counters; a device is a number.
    unsafe {
        match (name, question) {
            (Name::Pool(pool), Question::Reserved) => {
                api.pool_attribute(pool as CUmemoryPool, POOL_ATTRIBUTE_RESERVED_CURRENT, out)
            }
            (Name::Pool(pool), Question::Used) => {
                api.pool_attribute(pool as CUmemoryPool, POOL_ATTRIBUTE_USED_CURRENT, out)
            }
            (Name::Pool(pool), Question::Trim) => api.pool_trim(pool as CUmemoryPool, 0),
            (Name::Graphs(device), Question::Reserved) => {
                api.graph_mem_attribute(device, GRAPH_ATTRIBUTE_RESERVED_CURRENT, out)
            }
            (Name::Graphs(device), Question::Used) => {
                api.graph_mem_attribute(device, GRAPH_ATTRIBUTE_USED_CURRENT, out)
            }
            (Name::Graphs(device), Question::Trim) => api.graph_mem_trim(device),
            (Name::Dying | Name::Doomed | Name::Gone, _) => Ok(()),
        }
    }?;
    Ok(value)
}
