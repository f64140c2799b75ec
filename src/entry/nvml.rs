//! What NVML shows of a GPU: the same numbers as CUDA does.

use super::*;
use crate::abi::nvml::NO_PERMISSION;
use crate::policy::Memory;

/// What the container's programs see of the card behind `device`, which has `physical` memory; `None` where NVML
/// does not say which card that is.
fn seen(call: &Call, device: nvmlDevice_t, physical: Memory) -> Option<Memory> {
    let gpu = call.process.gpus.by_nvml(call.process, call.driver, device, physical.total)?;
    Some(info::visible(call, gpu, physical))
}

type MemoryInfo = unsafe extern "C" fn(nvmlDevice_t, *mut nvmlMemory_t) -> Code;

/// `nvmlDeviceGetMemoryInfo`: total = free + used.
pub(super) unsafe fn memory_info(
    call: &Call,
    next: MemoryInfo,
    device: nvmlDevice_t,
    memory: *mut nvmlMemory_t,
) -> Code {
    if !call.process.budget.permits() {
        return NO_PERMISSION;
    }
    // SAFETY: the caller's own arguments.
    let code = unsafe { next(device, memory) };
    // SAFETY: the driver wrote it, as it answered success.
    if let (SUCCESS, Some(memory)) = (code, unsafe { memory.as_mut() })
        && let Some(seen) = seen(call, device, Memory { total: memory.total, free: memory.free })
    {
        *memory = nvmlMemory_t { total: seen.total, free: seen.free, used: seen.total - seen.free };
    }
    code
}

type MemoryInfoV2 = unsafe extern "C" fn(nvmlDevice_t, *mut nvmlMemory_v2_t) -> Code;

/// `nvmlDeviceGetMemoryInfo_v2`: total = free + used + reserved. The driver checks the version word.
pub(super) unsafe fn memory_info_v2(
    call: &Call,
    next: MemoryInfoV2,
    device: nvmlDevice_t,
    memory: *mut nvmlMemory_v2_t,
) -> Code {
    if !call.process.budget.permits() {
        return NO_PERMISSION;
    }
    // SAFETY: the caller's own arguments.
    let code = unsafe { next(device, memory) };
    // SAFETY: the driver wrote it, as it answered success, so it is of the version that this layout is for.
    if let (SUCCESS, Some(memory)) = (code, unsafe { memory.as_mut() })
        && let Some(seen) = seen(call, device, Memory { total: memory.total, free: memory.free })
    {
        let taken = seen.total - seen.free;
        memory.total = seen.total;
        memory.free = seen.free;
        memory.reserved = memory.reserved.min(taken);
        memory.used = taken - memory.reserved;
    }
    code
}
