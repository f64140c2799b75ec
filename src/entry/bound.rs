//! Physical memory that is bound where it has no address: to tiles of sparse arrays, and to multicast objects. Nothing is
//! charged here, as `cuMemCreate` has charged it; but it stays charged after its handle is released.

use core::sync::atomic::{AtomicU64, Ordering};

use super::capture::per_thread;
use super::*;
use crate::gate;
use crate::process::bound::Region;
use crate::process::contexts::ContextId;
use crate::process::gpus::Gpu;
use crate::process::physical::{Detached, Pin};

/// Numbers the calls, so that what one of them bound can be told apart.
static CALLS: AtomicU64 = AtomicU64::new(0);

/// Marks the tail of a layer among the levels.
const TAIL: u64 = 1 << 63;

/// Where an operation maps or unmaps.
fn region_of(holder: u64, info: &CUarrayMapInfo) -> Region {
    if info.subresource_kind == SUBRESOURCE_MIPTAIL {
        // SAFETY: all members of the union are plain numbers; this is the one that the kind names.
        let tail = unsafe { info.subresource.tail };
        let to = tail.offset.saturating_add(tail.size);
        let part = TAIL | u64::from(tail.layer);
        return Region { holder, part, from: [0, 0, tail.offset], to: [1, 1, to] };
    }
    // SAFETY: as above.
    let level = unsafe { info.subresource.level };
    let [x, y, z] = level.offset.map(u64::from);
    let [width, height, depth] = level.extent.map(u64::from);
    let part = u64::from(level.level) << 32 | u64::from(level.layer);
    Region { holder, part, from: [z, y, x], to: [z + depth, y + height, x + width] }
}

/// No array and no object.
const NOBODY: u64 = u64::MAX;

/// A list is read before the driver is asked, and a wrong count must not end the program. So many tiles are 64 GiB.
const MOST_OPERATIONS: c_uint = 1 << 20;

/// One operation on its way: what it is to bind, and what was bound there before.
struct Operation {
    array: usize,
    /// The context that the array goes with.
    context: ContextId,
    region: Region,
    pin: Option<Pin>,
    before: Detached,
}

type MapArray = unsafe extern "C" fn(*mut CUarrayMapInfo, c_uint, CUstream) -> Code;

/// `cuMemMapArrayAsync`. Where the driver refuses a list, some of its operations may be done: then what it was to map counts
/// as mapped, beside what was there, until the place is mapped or unmapped again or its array is gone. What is unmapped stays
/// charged until the stream has come that far.
pub(super) unsafe fn map_array(
    call: &Call,
    next: MapArray,
    list: *mut CUarrayMapInfo,
    count: c_uint,
    stream: CUstream,
) -> Code {
    // SAFETY: the caller's own arguments.
    unsafe { operate(call, list, count, stream, &mut || next(list, count, stream)) }
}

/// `cuMemMapArrayAsync`, where no stream is the thread's own.
pub(super) unsafe fn map_array_ptsz(
    call: &Call,
    next: MapArray,
    list: *mut CUarrayMapInfo,
    count: c_uint,
    stream: CUstream,
) -> Code {
    // SAFETY: the caller's own arguments.
    unsafe { operate(call, list, count, per_thread(stream), &mut || next(list, count, stream)) }
}

/// # Safety
/// `list` is what the driver itself would read `count` of, if there is a context.
unsafe fn operate(
    call: &Call,
    list: *mut CUarrayMapInfo,
    count: c_uint,
    stream: CUstream,
    ask: &mut dyn FnMut() -> Code,
) -> Code {
    if count > MOST_OPERATIONS {
        return cuda::INVALID_VALUE;
    }
    // The stream's context need not be current.
    let Some(place) = pool::place_of(call, stream).filter(|_| !list.is_null()) else { return ask() };
    let (process, physical, arrays) = (call.process, &call.process.physical, &call.process.arrays);
    let this = CALLS.fetch_add(1, Ordering::Relaxed);
    let prepare = |at: usize| {
        // SAFETY: there is a context, so the driver itself reads `count` of them.
        let info = unsafe { &*list.add(at) };
        let array = info.resource as usize;
        let known = arrays.find(array).filter(|array| array.bytes == 0);
        let region = region_of(known.map_or(NOBODY, |array| array.name), info);
        let pin = (info.operation == OPERATION_MAP).then(|| physical.pin(info.handle)).flatten();
        let context = known.map_or(place.context, |array| array.context);
        Operation { array, context, region, pin, before: physical.detach(&region, None) }
    };
    let operations: Vec<Operation> = (0..count as usize).map(prepare).collect();
    let code = ask();
    let mut leaving = Vec::new();
    for Operation { array, context, mut region, pin, before } in operations {
        if code == SUCCESS {
            leaving.push(before);
            if region.holder == NOBODY {
                // Made where nobody saw it, it is met here.
                region.holder = arrays.meet(array, place).name;
            }
            // What an earlier operation of the same list put there.
            leaving.push(physical.detach(&region, Some(this)));
        } else {
            physical.attach(before);
        }
        let perhaps = count > 1 && region.holder != NOBODY;
        if let Some(pin) = pin {
            let bound = code == SUCCESS || perhaps;
            let let_go = if bound { physical.bind(pin, region, this) } else { physical.unpin(pin) };
            gate::gone(process, let_go);
        }
        if !process.contexts.is_alive(context) {
            // With its context the array was let go of before this was bound to it.
            gate::gone(process, physical.holder_gone(region.holder));
        }
    }
    leaving.retain(|bindings| !bindings.is_empty());
    process.leaving.add(process, call.driver, place, stream, leaving);
    code
}

type MulticastCreate = unsafe extern "C" fn(*mut CUmemGenericAllocationHandle, *const c_void) -> Code;

/// `cuMulticastCreate`: what such an object takes itself nobody says, and nothing is charged for it.
pub(super) unsafe fn multicast_create(
    call: &Call,
    next: MulticastCreate,
    handle: *mut CUmemGenericAllocationHandle,
    properties: *const c_void,
) -> Code {
    // SAFETY: the caller's own arguments.
    let code = unsafe { next(handle, properties) };
    if code == SUCCESS && !handle.is_null() {
        // SAFETY: the driver has just written it.
        call.process.physical.multicast_created(unsafe { *handle });
    }
    code
}

/// Bytes of a multicast object on a card.
fn bytes_of(object: u64, gpu: Option<&'static Gpu>, offset: u64, bytes: u64) -> Region {
    let part = gpu.map_or(0, |gpu| core::ptr::from_ref(gpu) as u64);
    Region { holder: object, part, from: [0, 0, offset], to: [1, 1, offset.saturating_add(bytes)] }
}

/// The way of every call that binds. `pins` are what it is to bind, each with where it begins and ends in what is bound;
/// `device` is the one it is bound on, where that is not the memory's own.
fn bound(
    call: &Call,
    object: CUmemGenericAllocationHandle,
    device: Option<CUdevice>,
    offset: usize,
    pins: Vec<(Pin, u64, u64)>,
    ask: &mut dyn FnMut() -> Code,
) -> Code {
    let (process, physical) = (call.process, &call.process.physical);
    let known = physical.pin(object);
    let code = ask();
    // One that was not seen being made is another process's, imported.
    let holder = match &known {
        Some(object) => object.piece,
        None if code == SUCCESS && !pins.is_empty() => physical.multicast_created(object),
        None => NOBODY,
    };
    for (pin, from, to) in pins {
        if code != SUCCESS {
            gate::gone(process, physical.unpin(pin));
            continue;
        }
        let gpu = device.map_or(pin.gpu, |device| process.gpus.by_device(process, call.driver, device));
        gate::gone(process, physical.bind(pin, bytes_of(holder, gpu, offset as u64 + from, to - from), 0));
    }
    if let Some(object) = known {
        gate::gone(process, physical.unpin(object));
    }
    code
}

fn pinned(call: &Call, memory: CUmemGenericAllocationHandle, bytes: usize) -> Vec<(Pin, u64, u64)> {
    call.process.physical.pin(memory).map(|pin| (pin, 0, bytes as u64)).into_iter().collect()
}

type BindMemory = unsafe extern "C" fn(
    CUmemGenericAllocationHandle,
    usize,
    CUmemGenericAllocationHandle,
    usize,
    usize,
    u64,
) -> Code;

/// `cuMulticastBindMem`.
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn bind_memory(
    call: &Call,
    next: BindMemory,
    object: CUmemGenericAllocationHandle,
    offset: usize,
    memory: CUmemGenericAllocationHandle,
    memory_offset: usize,
    bytes: usize,
    flags: u64,
) -> Code {
    let pins = pinned(call, memory, bytes);
    // SAFETY: the caller's own arguments.
    bound(call, object, None, offset, pins, &mut || unsafe {
        next(object, offset, memory, memory_offset, bytes, flags)
    })
}

type BindMemoryV2 = unsafe extern "C" fn(
    CUmemGenericAllocationHandle,
    CUdevice,
    usize,
    CUmemGenericAllocationHandle,
    usize,
    usize,
    u64,
) -> Code;

/// `cuMulticastBindMem` that names the device.
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn bind_memory_v2(
    call: &Call,
    next: BindMemoryV2,
    object: CUmemGenericAllocationHandle,
    device: CUdevice,
    offset: usize,
    memory: CUmemGenericAllocationHandle,
    memory_offset: usize,
    bytes: usize,
    flags: u64,
) -> Code {
    let pins = pinned(call, memory, bytes);
    // SAFETY: the caller's own arguments.
    bound(call, object, Some(device), offset, pins, &mut || unsafe {
        next(object, device, offset, memory, memory_offset, bytes, flags)
    })
}

type BindAddress = unsafe extern "C" fn(CUmemGenericAllocationHandle, usize, CUdeviceptr, usize, u64) -> Code;

/// `cuMulticastBindAddr`. Memory of a pool stays charged to the pool.
pub(super) unsafe fn bind_address(
    call: &Call,
    next: BindAddress,
    object: CUmemGenericAllocationHandle,
    offset: usize,
    address: CUdeviceptr,
    bytes: usize,
    flags: u64,
) -> Code {
    let pins = call.process.physical.pin_range(address, bytes as u64);
    // SAFETY: the caller's own arguments.
    bound(call, object, None, offset, pins, &mut || unsafe { next(object, offset, address, bytes, flags) })
}

type BindAddressV2 =
    unsafe extern "C" fn(CUmemGenericAllocationHandle, CUdevice, usize, CUdeviceptr, usize, u64) -> Code;

/// `cuMulticastBindAddr` that names the device.
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn bind_address_v2(
    call: &Call,
    next: BindAddressV2,
    object: CUmemGenericAllocationHandle,
    device: CUdevice,
    offset: usize,
    address: CUdeviceptr,
    bytes: usize,
    flags: u64,
) -> Code {
    let pins = call.process.physical.pin_range(address, bytes as u64);
    // SAFETY: the caller's own arguments.
    bound(call, object, Some(device), offset, pins, &mut || unsafe {
        next(object, device, offset, address, bytes, flags)
    })
}

type Unbind = unsafe extern "C" fn(CUmemGenericAllocationHandle, CUdevice, usize, usize) -> Code;

/// `cuMulticastUnbind`.
pub(super) unsafe fn unbind(
    call: &Call,
    next: Unbind,
    object: CUmemGenericAllocationHandle,
    device: CUdevice,
    offset: usize,
    bytes: usize,
) -> Code {
    let (process, physical) = (call.process, &call.process.physical);
    let gpu = process.gpus.by_device(process, call.driver, device);
    let known = physical.pin(object);
    let holder = known.map_or(NOBODY, |object| object.piece);
    let before = physical.detach(&bytes_of(holder, gpu, offset as u64, bytes as u64), None);
    // SAFETY: the caller's own arguments.
    let code = unsafe { next(object, device, offset, bytes) };
    if code == SUCCESS {
        gate::gone(process, physical.unbound(before));
    } else {
        physical.attach(before);
    }
    if let Some(object) = known {
        gate::gone(process, physical.unpin(object));
    }
    code
}
