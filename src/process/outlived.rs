//! Which memory of pools outlives a context: only the driver knows, and it may give the addresses of what went to somebody
//! else at once. So it is asked before and after, and what is still there is what is still the same buffer.

use crate::abi::*;
use crate::driver::Driver;

use super::Process;
use super::allocations::{Owner, Record};

/// Memory of a pool before a context went away.
struct Pooled {
    address: CUdeviceptr,
    record: Record,
    /// The driver's name for it, which no other buffer of the process ever has.
    buffer: u64,
}

/// What lay in pools of one driver before a context went away.
#[must_use]
pub struct Before {
    driver: usize,
    pooled: Vec<Pooled>,
}

impl Before {
    /// What `driver` knows now of the memory of pools. What it does not know is another driver's.
    pub fn look(process: &Process, driver: usize) -> Before {
        let Some(api) = Driver::get(driver) else { return Before { driver, pooled: Vec::new() } };
        let known =
            |(address, record)| Some(Pooled { address, record, buffer: buffer_at(api, address).ok()? });
        Before { driver, pooled: process.allocations.of_pools().into_iter().filter_map(known).collect() }
    }

    /// The context is gone: forgets what went with it.
    pub fn forget_gone(&self, process: &Process) {
        let Some(api) = Driver::get(self.driver) else { return };
        for before in &self.pooled {
            let gone = match buffer_at(api, before.address) {
                Ok(buffer) => buffer != before.buffer,
                // Another error says nothing of the address.
                Err(code) => code == cuda::INVALID_VALUE,
            };
            if gone
                && let Some(taken) = process.allocations.take_pooled(before.address, before.record)
                && let Owner::Orphan(pool) = taken.record.owner
            {
                process.pools.less_of_doomed(process, pool, taken.gives);
            }
        }
    }
}

/// The driver's name for the buffer at `address`.
fn buffer_at(api: &Driver, address: CUdeviceptr) -> Result<u64, Code> {
    let mut buffer = 0u64;
    let out = (&raw mut buffer).cast();
    // SAFETY: the output is a live local of the attribute's type.
    let ask = || unsafe { api.pointer_attribute(out, POINTER_ATTRIBUTE_BUFFER_ID, address) };
    // Nobody asks again after this.
    match ask() {
        Err(code) if code != cuda::INVALID_VALUE => ask(),
        answer => answer,
    }?;
    Ok(buffer)
}
