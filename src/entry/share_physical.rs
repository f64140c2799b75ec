//! Physical memory that goes from process to process, as a descriptor or a fabric handle; see [`share`](super::share).

use super::share::{FABRIC, MARK};
use super::*;
use crate::gate;
use crate::ledger::protocol::UNIT;
use crate::policy::{self, BLOCK};
use crate::process::gpus::Gpu;
use crate::process::physical::Common;
use crate::process::sharing::key_of;
use crate::sys::{mark, random};

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
