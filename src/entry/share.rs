//! Memory that goes from process to process: legacy IPC handles, descriptors and fabric handles of physical memory, pointers of
//! exported pools, and memory of other interfaces.
//!
//! Whoever makes it says in the ledger how it is called (`Ledger::share`), whoever opens it looks there. What nobody
//! of the container has is the opener's to pay for, or is closed again.

use super::*;
use crate::gate;
use crate::ledger::protocol::UNIT;
use crate::ledger::{Closing, Key};
use crate::policy::{self, BLOCK};
use crate::process::allocations::Owner;
use crate::process::gpus::Gpu;
use crate::process::physical::Common;
use crate::process::sharing::{Holding, key_of};
use crate::sys::{mark, random};

/// What a [`Key`] is made of.
const IPC: u8 = 1;
const MARK: u8 = 2;
const FABRIC: u8 = 3;
const POOL_POINTER: u8 = 4;

/// The driver has handed out `handle` for the allocation around `address`: other processes may open it.
///
/// # Safety
/// `handle` is what the driver filled.
pub(super) unsafe fn ipc_exported(call: &Call, handle: *const c_void, address: CUdeviceptr) {
    let (mut start, mut size) = (0, 0);
    // SAFETY: the outputs are live locals of the types that the driver fills.
    let asked = call.api().map(|api| unsafe { api.mem_address_range(&mut start, &mut size, address) });
    let start = if asked == Some(Ok(())) { start } else { address };
    // SAFETY: the driver has filled all of it.
    unsafe { exported(call, IPC, handle, start) }
}

/// # Safety
/// `token` is what the driver filled, of 64 bytes.
#[inline(never)]
unsafe fn exported(call: &Call, kind: u8, token: *const c_void, address: CUdeviceptr) {
    let process = call.process;
    let Some((record, bytes)) = process.allocations.look(address) else { return };
    let (gpu, context) = match record.owner {
        Owner::Context(context) => (process.contexts.gpu_of(context), Some(context)),
        Owner::Pool(pool) | Owner::Orphan(pool) => (process.pools.find_gpu(pool), None),
    };
    let Some(gpu) = gpu else { return };
    // SAFETY: by contract.
    let key = key_of(kind, &unsafe { *token.cast::<CUipcMemHandle>() }.bytes);
    process.sharing.export(process, address, key, gpu, bytes, context);
}

type OpenMemHandle = unsafe extern "C" fn(*mut CUdeviceptr, CUipcMemHandle, c_uint) -> Code;

/// `cuIpcOpenMemHandle`.
pub(super) unsafe fn open_mem_handle(
    call: &Call,
    next: OpenMemHandle,
    address: *mut CUdeviceptr,
    handle: CUipcMemHandle,
    flags: c_uint,
) -> Code {
    // SAFETY: the caller's own arguments.
    let ask = || unsafe { next(address, handle, flags) };
    let close = |given| {
        // SAFETY: the driver has just opened it, and nobody has seen it.
        let _ = call.api().map(|api| unsafe { api.ipc_close(given) });
    };
    // SAFETY: the output is the caller's.
    unsafe { opened(call, key_of(IPC, &handle.bytes), address, &ask, &close) }
}

/// The way of memory of others to an address: take hold of it, ask the driver, and pay for what is nobody's here.
///
/// # Safety
/// Where `ask` answers success it wrote `address`.
#[inline(never)]
unsafe fn opened(
    call: &Call,
    key: Key,
    address: *mut CUdeviceptr,
    ask: &dyn Fn() -> Code,
    close: &dyn Fn(CUdeviceptr),
) -> Code {
    let process = call.process;
    let Some(place) = call.place().filter(|_| !address.is_null()) else { return ask() };
    if !process.budget.permits() {
        return cuda::NOT_PERMITTED;
    }
    // SAFETY: not NULL; the driver would write it.
    let before = unsafe { *address };
    // Before the driver is asked: whoever pays may be gone at any moment.
    let known = process.ledger().open_shared(key).map(|opened| Holding::Together(opened.shared));
    let end = |known: Option<Holding>| {
        if let Some(holding) = known {
            holding.end(process);
        }
    };
    let code = ask();
    if code != SUCCESS {
        end(known);
        return code;
    }
    // SAFETY: the driver has just written it.
    let given = unsafe { *address };
    if process.sharing.opened_again(given) {
        end(known);
        return SUCCESS;
    }
    let holding = match known {
        Some(holding) => Ok(Some(holding)),
        None => pay_at(call, given, place.gpu),
    };
    match holding {
        Ok(Some(holding)) => process.sharing.opened(process, given, place.context, holding),
        Ok(None) => {}
        Err(code) => {
            close(given);
            // SAFETY: as above; a failed call leaves its outputs alone.
            unsafe { *address = before };
            return code;
        }
    }
    SUCCESS
}

/// Charges this process for memory at `address`, which is thought to be on `gpu`; `None` where its size cannot be learned.
#[inline(never)]
fn pay_at(call: &Call, address: CUdeviceptr, gpu: &'static Gpu) -> Result<Option<Holding>, Code> {
    let Some(api) = call.api() else { return Ok(None) };
    let (mut start, mut size) = (0, 0);
    // SAFETY: the outputs are live locals of the types that the driver fills.
    unsafe { api.mem_address_range(&mut start, &mut size, address) }?;
    let mut device: CUdevice = 0;
    // SAFETY: the output is a live local of the attribute's type.
    let asked =
        unsafe { api.pointer_attribute((&raw mut device).cast(), POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) };
    let of = asked.ok().and_then(|()| call.process.gpus.by_device(call.process, call.driver, device));
    pay(call, of.unwrap_or(gpu), size as u64).map(Some)
}

fn pay(call: &Call, gpu: &'static Gpu, bytes: u64) -> Result<Holding, Code> {
    let charge = gate::reserve(call.process, gpu, bytes)?;
    let bytes = charge.bytes();
    charge.hand_over();
    Ok(Holding::Alone(gpu, bytes))
}

type CloseMemHandle = unsafe extern "C" fn(CUdeviceptr) -> Code;

/// `cuIpcCloseMemHandle`.
pub(super) unsafe fn close_mem_handle(call: &Call, next: CloseMemHandle, address: CUdeviceptr) -> Code {
    // SAFETY: the caller's own argument.
    let (code, _closing) = settled(call, address, &mut || unsafe { next(address) });
    code
}

/// The driver is asked to end what is at `address` between processes.
fn settled(
    call: &Call,
    address: CUdeviceptr,
    ask: &mut dyn FnMut() -> Code,
) -> (Code, Option<Closing<'static>>) {
    let sharing = &call.process.sharing;
    let taken = sharing.take(address);
    let code = ask();
    let closing = match taken {
        Some(taken) if code == SUCCESS => sharing.gone(call.process, taken),
        Some(taken) => {
            sharing.put_back(call.process, taken);
            None
        }
        None => None,
    };
    (code, closing)
}

/// As `memory::freed`, of what other processes may have, or have given. What is theirs is counted for itself before it is
/// taken off ours.
#[cold]
pub(super) fn freed(call: &Call, address: CUdeviceptr, ask: &mut dyn FnMut() -> Code) -> Code {
    let mut closing = None;
    memory::freed_here(call, address, || {
        let (code, closed) = settled(call, address, ask);
        closing = closed;
        code
    })
}

type ExportPointer = unsafe extern "C" fn(*mut c_void, CUdeviceptr) -> Code;

/// `cuMemPoolExportPointer`.
pub(super) unsafe fn export_pointer(
    call: &Call,
    next: ExportPointer,
    token: *mut c_void,
    address: CUdeviceptr,
) -> Code {
    // SAFETY: the caller's own arguments.
    let code = unsafe { next(token, address) };
    if code == SUCCESS && !token.is_null() {
        // SAFETY: the driver has just filled it.
        unsafe { exported(call, POOL_POINTER, token, address) };
    }
    code
}

type ImportPointer = unsafe extern "C" fn(*mut CUdeviceptr, CUmemoryPool, *mut c_void) -> Code;

/// `cuMemPoolImportPointer`.
pub(super) unsafe fn import_pointer(
    call: &Call,
    next: ImportPointer,
    address: *mut CUdeviceptr,
    pool: CUmemoryPool,
    token: *mut c_void,
) -> Code {
    // SAFETY: the caller's own arguments.
    let ask = || unsafe { next(address, pool, token) };
    if token.is_null() {
        return ask();
    }
    let free = |given| {
        // SAFETY: the driver has just given it, and nobody has seen it.
        let _ = call.api().map(|api| unsafe { api.mem_free(given) });
    };
    // SAFETY: a token has 64 bytes, which the driver reads, too.
    let key = key_of(POOL_POINTER, &unsafe { *token.cast::<CUipcMemHandle>() }.bytes);
    // SAFETY: the output is the caller's.
    unsafe { opened(call, key, address, &ask, &free) }
}

type ExportHandle =
    unsafe extern "C" fn(*mut c_void, CUmemGenericAllocationHandle, c_int, c_ulonglong) -> Code;

/// `cuMemExportToShareableHandle`.
pub(super) unsafe fn export_handle(
    call: &Call,
    next: ExportHandle,
    out: *mut c_void,
    handle: CUmemGenericAllocationHandle,
    kind: c_int,
    flags: c_ulonglong,
) -> Code {
    // SAFETY: the caller's own arguments.
    let code = unsafe { next(out, handle, kind, flags) };
    let known = call.process.physical.look(handle);
    if let (SUCCESS, Some((gpu, bytes, common))) = (code, known)
        // A multicast object lies on no card, and takes nothing; importers know it by a page of this one's.
        && let Some(index) = gpu.or_else(|| Some(call.place()?.gpu)).and_then(|gpu| gpu.ledger)
    {
        let bytes = bytes.max(UNIT);
        let ledger = call.process.ledger();
        let give = |key, mark, place| {
            let shared = ledger.share(index, key, bytes, mark);
            if !call.process.physical.shared(handle, Common { shared, place }) {
                drop(ledger.close_shared(shared));
            }
        };
        match (kind, common) {
            (HANDLE_DESCRIPTOR, Some(Common { place, .. })) if place != 0 => {
                // SAFETY: the driver has just written a descriptor.
                let _ = mark::put(unsafe { *out.cast::<c_int>() }, place);
            }
            (HANDLE_DESCRIPTOR, None) => {
                // SAFETY: as above.
                let fd = unsafe { *out.cast::<c_int>() };
                if let Some(mark) = mark::put(fd, mark::place(random::bits())) {
                    give(key_of(MARK, &mark.id.to_ne_bytes()), mark.id, mark.place);
                }
            }
            (HANDLE_FABRIC, None) => {
                // SAFETY: the driver has just filled a handle of 64 bytes.
                let token = unsafe { *out.cast::<CUipcMemHandle>() };
                give(key_of(FABRIC, &token.bytes), 0, 0);
            }
            _ => {}
        }
    }
    code
}

type ImportHandle = unsafe extern "C" fn(*mut CUmemGenericAllocationHandle, *mut c_void, c_int) -> Code;

/// `cuMemImportFromShareableHandle`.
pub(super) unsafe fn import_handle(
    call: &Call,
    next: ImportHandle,
    handle: *mut CUmemGenericAllocationHandle,
    os_handle: *mut c_void,
    kind: c_int,
) -> Code {
    let process = call.process;
    // SAFETY: the caller's own arguments.
    let ask = || unsafe { next(handle, os_handle, kind) };
    if handle.is_null() {
        return ask();
    }
    if !process.budget.permits() {
        return cuda::NOT_PERMITTED;
    }
    let (key, place) = match kind {
        HANDLE_DESCRIPTOR => {
            let mark = mark::get(os_handle as usize as c_int);
            (mark.map(|mark| key_of(MARK, &mark.id.to_ne_bytes())), mark.map_or(0, |mark| mark.place))
        }
        HANDLE_FABRIC if !os_handle.is_null() => {
            // SAFETY: a fabric handle has 64 bytes, which the driver reads, too.
            (Some(key_of(FABRIC, &unsafe { *os_handle.cast::<CUipcMemHandle>() }.bytes)), 0)
        }
        _ => (None, 0),
    };
    let opened = key.and_then(|key| process.ledger().open_shared(key));
    let common = opened.map(|opened| Common { shared: opened.shared, place });
    let end = || drop(common.map(|common| process.ledger().close_shared(common.shared)));
    // SAFETY: not NULL; the driver would write it.
    let before = unsafe { *handle };
    let code = ask();
    if code != SUCCESS {
        end();
        return code;
    }
    // SAFETY: the driver has just written it.
    let given = unsafe { *handle };
    if process.physical.imported(given, common) {
        end();
        return SUCCESS;
    }
    match located(call, given, common) {
        Ok(Where::Card(gpu, bytes)) => process.physical.entered(given, Some(gpu), bytes, common),
        Ok(Where::Nowhere) => process.physical.entered(given, None, 0, common),
        Ok(Where::Host) => end(),
        Err(code) => {
            // SAFETY: the driver has just given it, and nobody has seen it.
            let _ = call.api().map(|api| unsafe { api.mem_release(given) });
            // SAFETY: as above; a failed call leaves its outputs alone.
            unsafe { *handle = before };
            return code;
        }
    }
    SUCCESS
}

/// Where imported physical memory lies.
enum Where {
    /// On a card, and what this process pays for it.
    Card(&'static Gpu, u64),
    Host,
    /// It is a multicast object, which takes nothing itself.
    Nowhere,
}

#[inline(never)]
fn located(call: &Call, handle: CUmemGenericAllocationHandle, common: Option<Common>) -> Result<Where, Code> {
    let Some(api) = call.api() else { return Ok(Where::Host) };
    // SAFETY: all zeros is valid for plain numbers and a NULL.
    let mut properties: CUmemAllocationProp = unsafe { core::mem::zeroed() };
    // SAFETY: the output is a live local of the type that the driver fills.
    if unsafe { api.mem_properties(&mut properties, handle) }.is_err() {
        return Ok(Where::Nowhere);
    }
    let location = properties.location;
    let device = (location.kind == LOCATION_DEVICE).then_some(location.id);
    let gpu = device.and_then(|device| call.process.gpus.by_device(call.process, call.driver, device));
    let Some(gpu) = gpu else { return Ok(Where::Host) };
    if common.is_some() {
        return Ok(Where::Card(gpu, 0));
    }
    let Some(bytes) = size_of_physical(call, handle, gpu) else { return Ok(Where::Nowhere) };
    let charge = gate::reserve(call.process, gpu, bytes)?;
    let bytes = charge.bytes();
    charge.hand_over();
    Ok(Where::Card(gpu, bytes))
}

/// How large imported memory is, which the driver does not say: the most of it that can be mapped. Mapping without giving access
/// is bookkeeping, and addresses cost nothing. `None` for a multicast object that has not all its devices yet.
#[inline(never)]
fn size_of_physical(call: &Call, handle: CUmemGenericAllocationHandle, gpu: &Gpu) -> Option<u64> {
    let api = call.api()?;
    let most = policy::blocks(gpu.physical());
    let mut start: CUdeviceptr = 0;
    // SAFETY: the output is a live local of the type that the driver fills; any place will do.
    unsafe { api.address_reserve(&mut start, most as usize, 0, 0, 0) }.ok()?;
    let fits = |blocks: u64| {
        let bytes = (blocks * BLOCK) as usize;
        // SAFETY: the addresses were reserved above and nothing is mapped there; the handle was given by the driver.
        let mapped = unsafe { api.mem_map(start, bytes, 0, handle, 0) }.is_ok();
        if mapped {
            // SAFETY: exactly what was mapped.
            let _ = unsafe { api.mem_unmap(start, bytes) };
        }
        mapped
    };
    let (mut fitting, mut beyond) = (0, most / BLOCK + 1);
    while beyond - fitting > 1 {
        let middle = fitting + (beyond - fitting) / 2;
        if fits(middle) {
            fitting = middle;
        } else {
            beyond = middle;
        }
    }
    // SAFETY: exactly what was reserved, with nothing mapped in it.
    let _ = unsafe { api.address_free(start, most as usize) };
    (fitting > 0).then_some(fitting * BLOCK)
}

type ImportExternal =
    unsafe extern "C" fn(*mut CUexternalMemory, *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC) -> Code;

/// `cuImportExternalMemory`: charged to the process that imports it, since who made it did so without CUDA.
pub(super) unsafe fn import_external(
    call: &Call,
    next: ImportExternal,
    memory: *mut CUexternalMemory,
    description: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
) -> Code {
    // SAFETY: the caller's own arguments.
    let ask = || unsafe { next(memory, description) };
    // SAFETY: NULL, or a description that the driver itself would read.
    let bytes = unsafe { description.as_ref() }.map(|description| description.size);
    let (Some(bytes), Some(place)) = (bytes.filter(|bytes| *bytes > 0 && !memory.is_null()), call.place())
    else {
        return ask();
    };
    let charge = match gate::reserve(call.process, place.gpu, bytes) {
        Ok(charge) => charge,
        Err(code) => return code,
    };
    let code = ask();
    if code == SUCCESS {
        // SAFETY: the driver has just written it.
        let stale = call.process.external.insert(unsafe { *memory } as usize, charge.bytes(), place);
        charge.hand_over();
        if let Some((stale, index)) = stale.and_then(|stale| Some((stale, stale.gpu.ledger?))) {
            call.process.ledger().give_back(index, stale.bytes);
        }
    }
    code
}

type DestroyExternal = unsafe extern "C" fn(CUexternalMemory) -> Code;

/// `cuDestroyExternalMemory`.
pub(super) unsafe fn destroy_external(call: &Call, next: DestroyExternal, memory: CUexternalMemory) -> Code {
    let taken = call.process.external.take(memory as usize);
    // SAFETY: the caller's own argument.
    let code = unsafe { next(memory) };
    match taken {
        Some(taken) if code == SUCCESS => {
            if let Some(index) = taken.gpu.ledger {
                call.process.ledger().give_back(index, taken.bytes);
            }
        }
        Some(taken) => call.process.external.put_back(memory as usize, taken),
        None => {}
    }
    code
}
