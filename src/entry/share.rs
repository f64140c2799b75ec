//! Memory that goes from process to process and has an address in each: by legacy IPC handles and pointers of exported pools.
//!
//! Whoever makes it says in the ledger how it is called (`Ledger::share`), whoever opens it looks there. What nobody
//! of the container has is the opener's to pay for, or is closed again.

use super::*;
use crate::gate;
use crate::ledger::{Closing, Key};
use crate::process::allocations::Owner;
use crate::process::gpus::Gpu;
use crate::process::sharing::{Holding, key_of};

/// What a [`Key`] is made of.
const IPC: u8 = 1;
pub(super) const MARK: u8 = 2;
pub(super) const FABRIC: u8 = 3;
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
