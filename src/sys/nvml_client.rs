//! A small client of NVML: which processes hold how much of which GPU.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};

/// What one process holds of one GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// The GPU's UUID, as NVML writes it.
    pub uuid: String,
    /// Process id, in the namespace of whoever asks as far as the driver translates it.
    pub pid: u32,
    /// Bytes that lie on the GPU.
    pub bytes: u64,
}

const LIBRARY: &CStr = c"libnvidia-ml.so.1";
const SUCCESS: c_int = 0;
const INSUFFICIENT_SIZE: c_int = 7;
/// What NVML answers for a number that it does not have.
const NOT_AVAILABLE: c_ulonglong = c_ulonglong::MAX;

#[derive(Clone, Copy, Default)]
#[repr(C)]
struct ProcessInfo {
    pid: c_uint,
    bytes: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}
const _: () = assert!(size_of::<ProcessInfo>() == 24);

/// All that the machine's GPUs hold for processes; `None` without NVML, or where it does not tell.
pub fn holdings() -> Option<Vec<Holding>> {
    // SAFETY: a valid name and flags; loading runs NVML's constructors, as in any program that uses it.
    let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW) };
    if library.is_null() {
        return None;
    }
    let nvml = Nvml { library };
    // SAFETY: NVML's functions of these names have these types; outputs are live locals, buffers as long as said.
    unsafe {
        let init: unsafe extern "C" fn() -> c_int = nvml.function(c"nvmlInit_v2")?;
        let count: unsafe extern "C" fn(*mut c_uint) -> c_int = nvml.function(c"nvmlDeviceGetCount_v2")?;
        let by_index: unsafe extern "C" fn(c_uint, *mut *mut c_void) -> c_int =
            nvml.function(c"nvmlDeviceGetHandleByIndex_v2")?;
        let mut devices = 0;
        if init() != SUCCESS || count(&mut devices) != SUCCESS {
            return None;
        }
        let mut all = Vec::new();
        for index in 0..devices {
            let mut device = core::ptr::null_mut();
            if by_index(index, &mut device) == SUCCESS {
                all.extend(nvml.of_device(device)?);
            }
        }
        Some(all)
    }
}

struct Nvml {
    library: *mut c_void,
}

impl Nvml {
    /// The function of that name.
    ///
    /// # Safety
    /// `F` is the type of that function pointer.
    unsafe fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: the handle came from dlopen and is never closed; the name is a valid string.
        let found = unsafe { libc::dlsym(self.library, name.as_ptr()) };
        // SAFETY: both are pointers; that the type is right is the caller's promise.
        (!found.is_null()).then(|| unsafe { core::mem::transmute_copy(&found) })
    }

    fn of_device(&self, device: *mut c_void) -> Option<Vec<Holding>> {
        let mut uuid = [0 as c_char; 96];
        let mut processes = vec![ProcessInfo::default(); 64];
        // SAFETY: NVML's functions of these names have these types; outputs are live locals, buffers as long as said.
        let found = unsafe {
            let uuid_of: unsafe extern "C" fn(*mut c_void, *mut c_char, c_uint) -> c_int =
                self.function(c"nvmlDeviceGetUUID")?;
            let running: unsafe extern "C" fn(*mut c_void, *mut c_uint, *mut ProcessInfo) -> c_int =
                self.function(c"nvmlDeviceGetComputeRunningProcesses_v3")?;
            if uuid_of(device, uuid.as_mut_ptr(), uuid.len() as c_uint) != SUCCESS {
                return None;
            }
            loop {
                let mut found = processes.len() as c_uint;
                match running(device, &mut found, processes.as_mut_ptr()) {
                    SUCCESS => break found as usize,
                    // More may come before the next question.
                    INSUFFICIENT_SIZE if processes.len() < 1 << 16 => {
                        processes.resize(processes.len().max(found as usize) * 2, ProcessInfo::default());
                    }
                    _ => return None,
                }
            }
        };
        // SAFETY: NVML ends what it writes with a NUL, and the buffer was all NUL before.
        let uuid = unsafe { CStr::from_ptr(uuid.as_ptr()) }.to_string_lossy().into_owned();
        let holding =
            |process: &ProcessInfo| Holding { uuid: uuid.clone(), pid: process.pid, bytes: process.bytes };
        let known = processes.iter().take(found).filter(|process| process.bytes != NOT_AVAILABLE);
        Some(known.map(holding).collect())
    }
}
