//! Stream-ordered pools, charged by the bytes a pool *holds* rather than by what is live in it: the driver keeps
//! freed memory for the pool's next request.
//!
//! What a pool holds only the driver knows, and it must not be asked while a capture is open; then a request is
//! charged in full, and the charge is put right at the next question.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{RwLock, RwLockReadGuard};

use crate::abi::*;
use crate::driver::Driver;

use super::Process;
use super::gpus::Gpu;

/// A pool of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolId(pub u16);

struct Pool {
    handle: usize,
    driver: usize,
    gpu: &'static Gpu,
    charged: AtomicU64,
}

/// See the module. Thread-safe.
#[derive(Default)]
pub struct Pools {
    known: RwLock<Vec<Pool>>,
}

impl Pools {
    /// The pool that `driver` calls `handle`, on `gpu`; new ones are met here. `None` where there are more pools
    /// than can be told apart.
    pub fn meet(&self, driver: usize, handle: CUmemoryPool, gpu: &'static Gpu) -> Option<PoolId> {
        if let Some((id, _)) = self.find(driver, handle) {
            return Some(id);
        }
        let mut known = self.known.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        let handle = handle as usize;
        // A destroyed pool leaves its place to the next.
        let place = known
            .iter()
            .position(|pool| pool.handle == handle && pool.driver == driver)
            .or_else(|| known.iter().position(|pool| pool.handle == 0));
        let new = Pool { handle, driver, gpu, charged: AtomicU64::new(0) };
        match place {
            Some(place) if known[place].handle == 0 => known[place] = new,
            Some(_) => {}
            None => known.push(new),
        }
        let place = place.unwrap_or(known.len() - 1);
        u16::try_from(place).ok().filter(|id| *id < 0x7fff).map(PoolId)
    }

    /// The pool that `driver` calls `handle` and its card, if it was met.
    pub fn find(&self, driver: usize, handle: CUmemoryPool) -> Option<(PoolId, &'static Gpu)> {
        let known = self.read();
        let place = known.iter().position(|pool| pool.handle == handle as usize && pool.driver == driver)?;
        Some((PoolId(place as u16), known[place].gpu))
    }

    /// Puts the charge of one pool right. `reserved` bytes were reserved for it in advance and become part of the
    /// charge; where the driver cannot be asked they all do.
    ///
    /// # Errors
    /// The driver's code, where it refuses to say what the pool holds; nothing is changed then.
    pub fn settle(&self, process: &Process, id: PoolId, reserved: u64) -> Result<(), Code> {
        let (handle, driver, gpu) = {
            let known = self.read();
            let Some(pool) = known.get(usize::from(id.0)) else { return Ok(()) };
            if process.captures.load(Ordering::Relaxed) > 0 {
                pool.charged.fetch_add(reserved, Ordering::Relaxed);
                return Ok(());
            }
            (pool.handle, pool.driver, pool.gpu)
        };
        // The driver is asked outside the lock.
        let held = ask(driver, handle, POOL_ATTRIBUTE_RESERVED_CURRENT)?;
        let known = self.read();
        let Some(pool) = known.get(usize::from(id.0)).filter(|pool| pool.handle == handle) else {
            return Ok(());
        };
        let before = pool.charged.swap(held, Ordering::Relaxed);
        if let Some(index) = gpu.ledger {
            let paid = before.saturating_add(reserved);
            if held > paid {
                process.ledger().force(index, held - paid);
            } else {
                process.ledger().give_back(index, paid - held);
            }
        }
        Ok(())
    }

    /// How much a request of `bytes` would make the pool grow, at the least, as far as the driver may be asked.
    pub fn growth(&self, process: &Process, id: PoolId, bytes: u64) -> u64 {
        let known = self.read();
        let Some((handle, driver)) = known.get(usize::from(id.0)).map(|pool| (pool.handle, pool.driver))
        else {
            return bytes;
        };
        drop(known);
        if process.captures.load(Ordering::Relaxed) > 0 {
            return bytes;
        }
        let held = ask(driver, handle, POOL_ATTRIBUTE_RESERVED_CURRENT);
        let used = ask(driver, handle, POOL_ATTRIBUTE_USED_CURRENT);
        match (held, used) {
            (Ok(held), Ok(used)) => bytes.saturating_sub(held.saturating_sub(used)),
            _ => bytes,
        }
    }

    /// Puts the charges of all pools of `driver` right: memory above a pool's threshold went back at the last
    /// synchronisation, and nobody said so.
    #[inline]
    pub fn refresh(&self, process: &Process, driver: usize) {
        for id in self.charged(|pool| pool.driver == driver) {
            // Where the driver does not say, the charge stays.
            let _ = self.settle(process, id, 0);
        }
    }

    /// Gives the unused memory of the pools on `gpu` back to the card, before a request is refused for the want of
    /// it. True where that may have helped.
    pub fn trim(&self, process: &Process, gpu: &Gpu) -> bool {
        if process.captures.load(Ordering::Relaxed) > 0 {
            return false;
        }
        let mut helped = false;
        for id in self.charged(|pool| core::ptr::eq(pool.gpu, gpu)) {
            let Some((handle, driver)) =
                self.read().get(usize::from(id.0)).map(|pool| (pool.handle, pool.driver))
            else {
                continue;
            };
            if let Some(api) = Driver::get(driver) {
                // SAFETY: the pool was met and not destroyed since.
                helped |= unsafe { api.pool_trim(handle as CUmemoryPool, 0) }.is_ok();
                let _ = self.settle(process, id, 0);
            }
        }
        helped
    }

    /// A pool was destroyed: its charge goes, and it is forgotten.
    pub fn destroyed(&self, process: &Process, id: PoolId) {
        let mut known = self.known.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        let Some(pool) = known.get_mut(usize::from(id.0)) else { return };
        pool.handle = 0;
        let charged = pool.charged.swap(0, Ordering::Relaxed);
        if let Some(index) = pool.gpu.ledger {
            process.ledger().give_back(index, charged);
        }
        drop(known);
        process.allocations.drop_pool(id);
    }

    /// The pools that are charged anything and are `wanted`.
    fn charged(&self, wanted: impl Fn(&Pool) -> bool) -> Vec<PoolId> {
        let known = self.read();
        let ids = known
            .iter()
            .enumerate()
            .filter(|(_, pool)| pool.handle != 0 && pool.charged.load(Ordering::Relaxed) > 0 && wanted(pool));
        ids.map(|(place, _)| PoolId(place as u16)).collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Pool>> {
        self.known.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn ask(driver: usize, pool: usize, attribute: i32) -> Result<u64, Code> {
    let api = Driver::get(driver).ok_or(cuda::NOT_FOUND)?;
    let mut value = 0u64;
    // SAFETY: the pool was met and not destroyed since; these attributes are 64-bit counters.
    unsafe { api.pool_attribute(pool as CUmemoryPool, attribute, (&raw mut value).cast()) }?;
    Ok(value)
}
