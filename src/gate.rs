//! The way of a request: reserve -> driver -> settle or give back.
//!
//! Bytes are taken from the container's budget before the driver is asked, so that two requests can never be
//! granted what only one of them fits in; no lock is held meanwhile. What the driver then took is what stays charged.

use std::time::{Duration, Instant};

use crate::abi::{CUdevice, Code, cuda};
use crate::ledger::{Denial, GpuIndex, Want};
use crate::log::{self, Level};
use crate::policy;
use crate::process::Process;
use crate::process::allocations::{Owner, Taken};
use crate::process::contexts::{ContextId, Place};
use crate::process::gpus::Gpu;
use crate::process::physical::Gone;
use crate::process::thread;
use crate::sys::clock;

/// Bytes taken from the budget for a request that is on its way. Given back when dropped, unless it is settled.
#[must_use]
pub struct Charge<'process> {
    process: &'process Process,
    gpu: &'static Gpu,
    bytes: u64,
    /// How long the request has waited for this.
    waited: Duration,
}

impl Charge<'_> {
    /// Asks the driver. Where it has no memory for what is admitted, since a neighbour's is still on its way back, it is asked
    /// again for as long as the quota file lets a request wait.
    #[inline]
    pub fn ask(&self, mut ask: impl FnMut() -> Code) -> Code {
        let code = ask();
        if code == cuda::OUT_OF_MEMORY && self.process.ledger().has_peers() {
            return self.process.ask_later(self.gpu, self.bytes, self.waited, &mut ask);
        }
        code
    }

    /// The bytes reserved.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The request was granted and the driver took `taken` bytes: they stay charged.
    pub fn settle(self, taken: u64) {
        if let Some(index) = self.gpu.ledger {
            self.process.ledger().settle(index, self.bytes, taken);
        }
        core::mem::forget(self);
    }

    /// The request was granted, and somebody else accounts for all that was reserved.
    pub fn hand_over(self) {
        core::mem::forget(self);
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        self.process.give_back(self.gpu, self.bytes);
    }
}

/// Reserves what a request of `bytes` on `gpu` may take, in whole blocks. The unused memory of pools is given up
/// before a request is refused.
///
/// # Errors
/// `CUDA_ERROR_NOT_PERMITTED` where there is no valid quota, `CUDA_ERROR_OUT_OF_MEMORY` above the budget.
#[inline]
pub fn reserve<'process>(
    process: &'process Process,
    gpu: &'static Gpu,
    bytes: u64,
) -> Result<Charge<'process>, Code> {
    reserve_with(process, gpu, bytes, |round| {
        (round == 0 && process.leaving.settle(process) | process.pools.trim(process, gpu)).then_some(bytes)
    })
}

/// As [`reserve`]. Before it is refused, `relieve` is asked, with 0 and then 1 and so on, for bytes to try again with;
/// `None` ends that.
///
/// # Errors
/// As [`reserve`].
#[inline]
pub fn reserve_with<'process>(
    process: &'process Process,
    gpu: &'static Gpu,
    mut bytes: u64,
    relieve: impl Fn(u32) -> Option<u64>,
) -> Result<Charge<'process>, Code> {
    if !process.budget.permits() {
        return Err(cuda::NOT_PERMITTED);
    }
    process.tend();
    let Some(index) = gpu.ledger else {
        log::say(
            Level::Error,
            format_args!("no room in the ledger for one more GPU: nothing is granted on it"),
        );
        return Err(cuda::OUT_OF_MEMORY);
    };
    for round in 0.. {
        let want = Want { bytes: policy::blocks(bytes), at_least: bytes };
        let Err(denial) = process.admit(gpu, index, want) else {
            return Ok(Charge { process, gpu, bytes: want.bytes, waited: Duration::ZERO });
        };
        match relieve(round) {
            Some(less) => bytes = less,
            None => {
                let since = Instant::now();
                let admitted = admit_reconsidered(process, gpu, index, want, denial)
                    .or_else(|denial| process.admit_later(gpu, index, want, denial));
                return match admitted {
                    Ok(()) => Ok(Charge { process, gpu, bytes: want.bytes, waited: since.elapsed() }),
                    Err(denial) => refuse(process, gpu, index, bytes, denial),
                };
            }
        }
    }
    Err(cuda::OUT_OF_MEMORY)
}

/// How long a request waits for the cost of a context to turn out less: a killed process's memory is back by then.
const FOR_RECONSIDERATION: Duration = Duration::from_millis(500);
/// Between looks.
const RECONSIDERING: Duration = Duration::from_millis(10);

/// Admits a denied request after all, where what stands in its way is a context that seemed to cost more than it does.
#[cold]
fn admit_reconsidered(
    process: &Process,
    gpu: &Gpu,
    index: GpuIndex,
    want: Want,
    mut denial: Denial,
) -> Result<(), Denial> {
    let since = Instant::now();
    while process.contexts.may_cost_less(gpu) && since.elapsed() < FOR_RECONSIDERATION {
        clock::nap(RECONSIDERING);
        process.contexts.look_around(process, clock::coarse_millis());
        match process.admit(gpu, index, want) {
            Ok(()) => return Ok(()),
            Err(next) => denial = next,
        }
    }
    Err(denial)
}

/// What a context will cost, charged by estimate while this thread makes it. It is charged for what it is from that; what is
/// left is given back when this is dropped.
#[must_use]
pub struct Coming<'process>(Charge<'process>);

impl Coming<'_> {
    /// As [`Charge::ask`].
    pub fn ask(&self, ask: impl FnMut() -> Code) -> Code {
        self.0.ask(ask)
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        // Here and not by the charge, as it is an estimate.
        self.0.bytes = 0;
        let left = thread::with(|thread| thread.coming.take());
        give_back(self.0.process, Some(self.0.gpu), left, true);
    }
}

/// Takes what a context will cost from what the neighbours on the card leave, while it is made; `None` where there are no
/// neighbours, or no context will be made. The container's own limit does not stand in a context's way.
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY` where it is not left.
pub fn reserve_context(
    process: &Process,
    driver: usize,
    device: CUdevice,
    created: bool,
) -> Result<Option<Coming<'_>>, Code> {
    if !process.ledger().has_peers() || !created && process.contexts.is_primary_up(driver, device) {
        return Ok(None);
    }
    let gpu = process.gpus.by_device(process, driver, device);
    let Some((gpu, index)) = gpu.and_then(|gpu| Some((gpu, gpu.ledger?))) else { return Ok(None) };
    process.tend();
    let bytes = process.ledger().context_cost(index).unwrap_or(policy::TYPICAL_CONTEXT);
    let want = Want::exactly(bytes);
    let since = Instant::now();
    let admitted = process.admit(gpu, index, want).or_else(|denial| match denial {
        Denial::Limit(_) => process.force_beside(gpu, index, want),
        denial => process.admit_later(gpu, index, want, denial),
    });
    if let Err(denial) = admitted {
        return refuse(process, gpu, index, bytes, denial).map(|_| None);
    }
    process.ledger().more_estimated(index, bytes);
    thread::with(|thread| thread.coming.set(bytes));
    Ok(Some(Coming(Charge { process, gpu, bytes, waited: since.elapsed() })))
}

/// Code up to here is loaded into a context whatever the limit, as the context itself is.
pub const LITTLE_CODE: u64 = 32 << 20;

/// Whether container and neighbours leave room for code that the driver has loaded at `place`, and that is charged already.
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY` where they do not.
#[cold]
pub fn judge_code(process: &Process, place: Place) -> Result<(), Code> {
    let Some(index) = place.gpu.ledger else { return Ok(()) };
    process.tend();
    // All fits if the last bit of it is granted anew.
    let last = Want::exactly(LEAST);
    process.ledger().give_back(index, last.bytes);
    let ask = || process.admit(place.gpu, index, last);
    let trimmed = |denial| if process.pools.trim(process, place.gpu) { ask() } else { Err(denial) };
    let answer = ask().or_else(trimmed).or_else(|denial| process.admit_later(place.gpu, index, last, denial));
    let Err(denial) = answer else { return Ok(()) };
    process.ledger().force(index, last.bytes);
    if matches!(denial, Denial::Limit(_)) && process.code.of(place.context) <= LITTLE_CODE {
        return Ok(());
    }
    refuse(process, place.gpu, index, process.code.of(place.context), denial).map(drop)
}

/// The least that can be charged, in bytes.
const LEAST: u64 = 4096;

#[cold]
fn refuse<'process>(
    process: &'process Process,
    gpu: &'static Gpu,
    index: GpuIndex,
    bytes: u64,
    denial: Denial,
) -> Result<Charge<'process>, Code> {
    process.ledger().count_refusal(index);
    let why = match denial {
        Denial::Limit(_) => "",
        Denial::Crowded { .. } => ", and the rest of the card is its neighbours' for now",
        Denial::Never => ", and the rest of the card is reserved for its neighbours",
    };
    log::say(
        Level::Info,
        format_args!(
            "refused {bytes} bytes on {}: {} of {} bytes are in use{why}",
            gpu.identity.uuid_text(),
            process.ledger().used(index),
            gpu.limit()
        ),
    );
    Err(cuda::OUT_OF_MEMORY)
}

/// The card of what was taken out to be freed, if that is of a context, which may be gone before the driver has answered.
#[inline]
pub fn card_of(process: &Process, taken: Taken) -> Option<&'static Gpu> {
    match taken.record.owner {
        Owner::Context(context) => process.contexts.gpu_of(context),
        Owner::Pool(_) | Owner::Orphan(_) => None,
    }
}

/// The driver freed what was taken out, of `gpu`: what that gave back to the card goes back to the budget.
#[inline]
pub fn freed(process: &Process, taken: Taken, gpu: Option<&Gpu>) {
    match taken.record.owner {
        Owner::Context(_) => give_back(process, gpu, taken.gives, taken.record.estimated),
        // The pool may keep it; where the driver does not say, the charge stays until it does.
        Owner::Orphan(pool) => process.pools.less_of_doomed(process, pool, taken.gives),
        Owner::Pool(pool) => {
            let _ = process.pools.settle(process, pool, 0);
        }
    }
}

/// The driver has given `address` anew, on `gpu`: what was known there is gone with its context, and what it was charged
/// goes back to the budget. Unless it is `context` that has gone, in which it was given: then it is somebody else's by now, and
/// false is answered.
#[cold]
pub fn replaced(process: &Process, gpu: &Gpu, address: u64, context: Option<ContextId>) -> bool {
    let Some(stale) = process.allocations.take(address) else { return true };
    // Asked now that it is taken: what was recorded before that is stale if ours is there still.
    if context.is_some_and(|context| !process.contexts.is_alive(context)) {
        not_freed(process, address, stale, card_of(process, stale));
        return false;
    }
    match stale.record.owner {
        Owner::Context(_) => give_back(process, Some(gpu), stale.gives, stale.record.estimated),
        Owner::Orphan(pool) => process.pools.less_of_doomed(process, pool, stale.gives),
        Owner::Pool(_) => {}
    }
    true
}

/// What was recorded at `address` is gone if its context is, and with that it was not forgotten, as it was not there yet.
#[cold]
#[inline(never)]
pub fn forget_if_gone(process: &Process, address: u64, context: ContextId, gpu: Option<&Gpu>) {
    if !process.contexts.is_alive(context)
        && let Some(taken) = process.allocations.take_of(address, context)
    {
        process.lazy.take(process, address);
        give_back(process, gpu, taken.gives, taken.record.estimated);
    }
}

/// The driver refused to free what was taken out, of `gpu`: it stays charged.
#[cold]
#[inline(never)]
pub fn not_freed(process: &Process, address: u64, taken: Taken, gpu: Option<&Gpu>) {
    let paid_by_others = process.allocations.put_back(address, taken);
    match taken.record.owner {
        Owner::Context(context) => {
            give_back(process, gpu, paid_by_others, taken.record.estimated);
            forget_if_gone(process, address, context, gpu);
        }
        Owner::Orphan(pool) => process.pools.less_of_doomed(process, pool, paid_by_others),
        Owner::Pool(_) => {}
    }
}

/// `bytes` of `gpu` go back to the budget; `estimated` tells whether they were charged by estimate.
#[inline]
pub fn give_back(process: &Process, gpu: Option<&Gpu>, bytes: u64, estimated: bool) {
    if let Some(index) = gpu.and_then(|gpu| gpu.ledger).filter(|_| bytes > 0) {
        process.ledger().give_back(index, bytes);
        if estimated {
            process.ledger().less_estimated(index, bytes);
        }
    }
}

/// Keeps what is charged by estimate under `handle` of `place`, for as long as that context is there, which may be no longer. Where
/// another thread has kept something there meanwhile nobody knows which of the two it is, and the larger stays.
#[inline(never)]
pub fn keep_estimated(process: &Process, handle: usize, bytes: u64, place: Place) {
    let other = process.estimates.insert_larger(handle, bytes, place);
    // With its context it was not forgotten, as it was not there yet.
    let alive = process.contexts.is_alive(place.context);
    let gone = if alive { None } else { process.estimates.take_of(handle, place.context) };
    for spare in other.into_iter().chain(gone) {
        give_back(process, Some(spare.gpu), spare.bytes, true);
    }
}

/// Physical memory is gone: its charge goes back to the budget.
#[inline(never)]
pub fn gone(process: &Process, pieces: Vec<Gone>) {
    for piece in pieces {
        piece_gone(process, piece);
    }
}

#[inline(never)]
fn piece_gone(process: &Process, piece: Gone) {
    // First, so that what others hold of it is counted at every moment.
    let _closing = piece.shared.map(|shared| process.ledger().close_shared(shared));
    if let Some(gpu) = piece.gpu {
        process.give_back(gpu, piece.bytes);
    }
}
