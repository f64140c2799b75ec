//! Memory of other interfaces, such as Vulkan's, that a process imports.

use super::*;
use crate::gate;

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
        let bytes = charge.bytes();
        charge.hand_over();
        if let Some(index) = place.gpu.ledger {
            // It may lie in memory of the host, for all that the description says.
            call.process.ledger().more_estimated(index, bytes);
        }
        // SAFETY: the driver has just written it.
        let handle = unsafe { *memory } as usize;
        gate::keep_estimated(call.process, handle, bytes, place);
    }
    code
}

type DestroyExternal = unsafe extern "C" fn(CUexternalMemory) -> Code;

/// `cuDestroyExternalMemory`.
pub(super) unsafe fn destroy_external(call: &Call, next: DestroyExternal, memory: CUexternalMemory) -> Code {
    let taken = call.process.estimates.take(memory as usize);
    // SAFETY: the caller's own argument.
    let code = unsafe { next(memory) };
    match taken {
        Some(taken) if code == SUCCESS => gate::give_back(call.process, Some(taken.gpu), taken.bytes, true),
        Some(taken) => {
            let place = Place { gpu: taken.gpu, context: taken.context };
            gate::keep_estimated(call.process, memory as usize, taken.bytes, place);
        }
        None => {}
    }
    code
}
