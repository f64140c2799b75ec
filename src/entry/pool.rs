//! Stream-ordered memory.

use super::*;
use crate::gate::{self, Charge};
use crate::process::allocations::{Owner, Record};
use crate::process::gpus::Gpu;
use crate::process::pools::PoolId;

use super::capture::{is_captured, per_thread};

type AllocAsync = unsafe extern "C" fn(*mut CUdeviceptr, usize, CUstream) -> Code;

/// `cuMemAllocAsync`: from the current pool of the stream's device.
pub(super) unsafe fn alloc_async(
    call: &Call,
    next: AllocAsync,
    address: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Code {
    // SAFETY: the caller's own arguments.
    unsafe { pooled(call, &mut || next(address, bytes, stream), address, bytes as u64, None, stream) }
}

/// `cuMemAllocAsync`, where no stream is the thread's own.
pub(super) unsafe fn alloc_async_ptsz(
    call: &Call,
    next: AllocAsync,
    address: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Code {
    let own = per_thread(stream);
    // SAFETY: the caller's own arguments.
    unsafe { pooled(call, &mut || next(address, bytes, stream), address, bytes as u64, None, own) }
}

type AllocFromPoolAsync = unsafe extern "C" fn(*mut CUdeviceptr, usize, CUmemoryPool, CUstream) -> Code;

/// `cuMemAllocFromPoolAsync`.
pub(super) unsafe fn alloc_from_pool_async(
    call: &Call,
    next: AllocFromPoolAsync,
    address: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> Code {
    // SAFETY: the caller's own arguments.
    unsafe {
        pooled(call, &mut || next(address, bytes, pool, stream), address, bytes as u64, Some(pool), stream)
    }
}

/// `cuMemAllocFromPoolAsync`, where no stream is the thread's own.
pub(super) unsafe fn alloc_from_pool_async_ptsz(
    call: &Call,
    next: AllocFromPoolAsync,
    address: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> Code {
    let own = per_thread(stream);
    // SAFETY: the caller's own arguments.
    unsafe {
        pooled(call, &mut || next(address, bytes, pool, stream), address, bytes as u64, Some(pool), own)
    }
}

/// The way of a request to a pool: reserve what the pool may grow by, ask the driver, charge what it then holds. If
/// that cannot be learned or is above the budget after all, the memory goes back and the call fails.
///
/// # Safety
/// `ask` makes the request with these outputs and this stream.
#[inline(never)]
unsafe fn pooled(
    call: &Call,
    ask: &mut dyn FnMut() -> Code,
    address: *mut CUdeviceptr,
    bytes: u64,
    pool: Option<CUmemoryPool>,
    stream: CUstream,
) -> Code {
    let process = call.process;
    // In a capture this makes a node of a graph and takes nothing yet.
    let pass = address.is_null() || bytes == 0 || is_captured(call, stream);
    let place = if pass { None } else { place_of(call, stream) };
    let known = pool.filter(|_| !pass).and_then(|pool| process.pools.find(call.driver, pool));
    let gpu = match (known, place) {
        (Some((_, Some(gpu))), _) => gpu,
        (None, Some(place)) => place.gpu,
        // Memory of the host costs nothing.
        _ => return ask(),
    };
    let charge = match reserve(call, gpu, known.map(|(id, _)| id), bytes) {
        Ok(charge) => charge,
        Err(code) => return code,
    };
    // SAFETY: not NULL; the driver would write it.
    let before = unsafe { *address };
    let code = charge.ask(ask);
    if code != SUCCESS {
        return code;
    }
    // SAFETY: the driver has just written it.
    let given = unsafe { *address };
    let from = match (known, pool) {
        (Some((id, _)), _) => Ok((id, Some(gpu))),
        (None, pool) => identify(call, given, pool, gpu),
    };
    let known_now = from.ok();
    let record = |id| {
        let owner = Owner::Pool(id);
        process.allocations.insert(given, Record { bytes, owner, estimated: false });
    };
    let settled = from.and_then(|(id, of)| match of {
        Some(of) if core::ptr::eq(of, gpu) => {
            process.pools.settle(process, id, charge.bytes())?;
            Ok(Some(id))
        }
        // The device's current pool is one in memory of the host.
        None => Ok(None),
        // It is another card's, on which nothing was reserved.
        Some(of) => elsewhere(call, id, of, bytes).map(Some),
    });
    match settled {
        Ok(Some(id)) => {
            if known.is_some() || process.pools.find_gpu(id).is_some_and(|of| core::ptr::eq(of, gpu)) {
                charge.hand_over();
            }
            if process.contexts.is_any_gone() {
                let _ = gate::replaced(process, gpu, given, None);
            }
            record(id);
            SUCCESS
        }
        Ok(None) => SUCCESS,
        Err(code) => {
            // SAFETY: the driver has just given this memory on this stream, and nobody has seen it.
            let freed = call.api().is_some_and(|api| unsafe { api.mem_free_async(given, stream) }.is_ok());
            if let Some((id, _)) = known_now {
                // The pool may keep it, or has to: then it is there as long as the pool, and after that.
                if !freed {
                    record(id);
                }
                process.pools.suspect(id);
            }
            // SAFETY: as above; a failed call leaves its outputs alone.
            unsafe { *address = before };
            code
        }
    }
}

/// Charges what turned out to lie on another card than was thought.
fn elsewhere(call: &Call, id: PoolId, gpu: &'static Gpu, bytes: u64) -> Result<PoolId, Code> {
    let charge = reserve(call, gpu, Some(id), bytes)?;
    call.process.pools.settle(call.process, id, charge.bytes())?;
    charge.hand_over();
    Ok(id)
}

/// Where work on `stream` is done. The driver lets a stream be used while another card's context is current, or none.
#[inline(never)]
pub(super) fn place_of(call: &Call, stream: CUstream) -> Option<Place> {
    let current = call.place();
    let own = stream as usize > PER_THREAD_STREAM as usize;
    let context = (own && (current.is_none() || call.process.gpus.are_several())).then(|| {
        let mut context = core::ptr::null_mut();
        // SAFETY: the caller's stream; the output is a live local of the type that the driver fills.
        unsafe { call.api()?.stream_context(stream, &mut context) }.ok()?;
        Some(context).filter(|context| !context.is_null())
    });
    match context.flatten() {
        Some(context) => call.process.contexts.of(call.process, call.driver, context),
        None => current,
    }
}

/// Reserves for a pool: the whole request where the budget has room for it, else what the pool must grow by, and that
/// again after all pools gave up what they do not use.
fn reserve(
    call: &Call,
    gpu: &'static Gpu,
    pool: Option<PoolId>,
    bytes: u64,
) -> Result<Charge<'static>, Code> {
    let process = call.process;
    let growth = || pool.map_or(bytes, |pool| process.pools.growth(process, pool, bytes).min(bytes));
    gate::reserve_with(process, gpu, bytes, |round| match round {
        0 => Some(growth()),
        1 if process.leaving.settle(process) | process.pools.trim(process, gpu) => Some(growth()),
        _ => None,
    })
}

/// The pool that memory at `address` came from, and its card, which is thought to be `gpu`.
fn identify(
    call: &Call,
    address: CUdeviceptr,
    pool: Option<CUmemoryPool>,
    gpu: &'static Gpu,
) -> Result<(PoolId, Option<&'static Gpu>), Code> {
    let api = call.api().ok_or(cuda::NOT_FOUND)?;
    let mut handle = pool.unwrap_or(core::ptr::null_mut());
    if handle.is_null() {
        // SAFETY: the output is a live local of the attribute's type.
        let asked = unsafe {
            api.pointer_attribute((&raw mut handle).cast(), POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address)
        };
        if asked.is_err() {
            let device = call.process.gpus.device_of(call.driver, gpu).ok_or(cuda::NOT_FOUND)?;
            // SAFETY: the output is a live local of the type that the driver fills.
            unsafe { api.device_pool(&mut handle, device) }?;
        }
    }
    if let Some(known) = call.process.pools.find(call.driver, handle) {
        return Ok(known);
    }
    // A pool that is met for the first time: which card is it on?
    let mut device: CUdevice = 0;
    // SAFETY: the output is a live local of the attribute's type.
    let asked =
        unsafe { api.pointer_attribute((&raw mut device).cast(), POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) };
    let of = asked.ok().and_then(|()| call.process.gpus.by_device(call.process, call.driver, device));
    let of = of.unwrap_or(gpu);
    let id = call.process.pools.meet(call.driver, handle, Some(of)).ok_or(cuda::OUT_OF_MEMORY)?;
    Ok((id, Some(of)))
}

type FreeAsync = unsafe extern "C" fn(CUdeviceptr, CUstream) -> Code;

/// `cuMemFreeAsync`.
pub(super) unsafe fn free_async(
    call: &Call,
    next: FreeAsync,
    address: CUdeviceptr,
    stream: CUstream,
) -> Code {
    // SAFETY: the caller's own arguments.
    freed_on(call, stream, address, &mut || unsafe { next(address, stream) })
}

/// `cuMemFreeAsync`, where no stream is the thread's own.
pub(super) unsafe fn free_async_ptsz(
    call: &Call,
    next: FreeAsync,
    address: CUdeviceptr,
    stream: CUstream,
) -> Code {
    // SAFETY: the caller's own arguments.
    freed_on(call, per_thread(stream), address, &mut || unsafe { next(address, stream) })
}

#[inline(never)]
fn freed_on(call: &Call, stream: CUstream, address: CUdeviceptr, ask: &mut dyn FnMut() -> Code) -> Code {
    if is_captured(call, stream) {
        // A node of a graph, which frees when it is launched.
        return ask();
    }
    if call.process.lazy.starts_at(address) {
        return lazy::free_async(call, address, stream);
    }
    memory::freed(call, address, ask)
}

type Create = unsafe extern "C" fn(*mut CUmemoryPool, *const CUmemPoolProps) -> Code;

/// `cuMemPoolCreate`: takes nothing yet. Where its memory will lie is known now; a pool in memory of the host costs
/// nothing, unless it is managed, as that moves.
pub(super) unsafe fn create(
    call: &Call,
    next: Create,
    pool: *mut CUmemoryPool,
    properties: *const CUmemPoolProps,
) -> Code {
    // SAFETY: the caller's own arguments.
    let code = unsafe { next(pool, properties) };
    // SAFETY: NULL, or what the driver itself has read and written, if it answered success.
    let (properties, pool) = unsafe { (properties.as_ref(), pool.as_ref()) };
    if let (SUCCESS, Some(properties), Some(pool)) = (code, properties, pool) {
        let process = call.process;
        let location = properties.location;
        let gpu = match location.kind {
            LOCATION_DEVICE => process.gpus.by_device(process, call.driver, location.id),
            _ => None,
        };
        // A device that cannot be told is found out at the first allocation.
        let stays = location.kind != LOCATION_DEVICE && properties.kind != ALLOCATION_MANAGED;
        if gpu.is_some() || stays {
            let _ = process.pools.meet(call.driver, *pool, gpu);
        }
    }
    code
}

type TrimTo = unsafe extern "C" fn(CUmemoryPool, usize) -> Code;

/// `cuMemPoolTrimTo`.
pub(super) unsafe fn trim_to(call: &Call, next: TrimTo, pool: CUmemoryPool, keep: usize) -> Code {
    // SAFETY: the caller's own arguments.
    let code = unsafe { next(pool, keep) };
    if let Some((id, _)) = call.process.pools.find(call.driver, pool) {
        // Where the driver does not say, the charge stays.
        let _ = call.process.pools.settle(call.process, id, 0);
    }
    code
}

type Destroy = unsafe extern "C" fn(CUmemoryPool) -> Code;

/// `cuMemPoolDestroy`. What is still live in the pool stays until it is freed, which the driver allows.
pub(super) unsafe fn destroy(call: &Call, next: Destroy, pool: CUmemoryPool) -> Code {
    let pools = &call.process.pools;
    let known = pools.destroying(call.driver, pool);
    // SAFETY: the caller's own argument.
    let code = unsafe { next(pool) };
    match known {
        Some(id) if code == SUCCESS => pools.destroyed(call.process, id),
        Some(id) => pools.not_destroyed(id, pool),
        None => {}
    }
    code
}

/// The ways to wait, after which a pool's memory above its threshold goes back to the card.
type Wait = unsafe extern "C" fn(*mut c_void) -> Code;

/// `cuStreamSynchronize` and `cuEventSynchronize`.
pub(super) unsafe fn synchronized(call: &Call, next: Wait, what: *mut c_void) -> Code {
    // SAFETY: the caller's own argument.
    let code = call.uncharged(|| unsafe { next(what) });
    waited(call);
    code
}

/// The driver has waited, and a program that only computes may have been asked to trim.
fn waited(call: &Call) {
    call.process.catch_up(call.driver);
    if !call.process.lazy.is_empty() {
        call.process.tend();
    }
}

type WaitAll = unsafe extern "C" fn() -> Code;

/// `cuCtxSynchronize`.
pub(super) unsafe fn context_synchronized(call: &Call, next: WaitAll) -> Code {
    // SAFETY: takes nothing.
    let code = call.uncharged(|| unsafe { next() });
    waited(call);
    code
}
