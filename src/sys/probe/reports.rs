//! What NVML says of the memory of the first GPU, by which some programs size themselves.

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;

use super::{Reach, open, symbol};
use crate::abi::nvmlMemory_t;

impl Reach {
    /// The bytes of memory that NVML says the first GPU has, or why it does not say: the loader's words, or its code.
    pub fn nvml_total(&self) -> Result<u64, String> {
        let loader = |no_way| match no_way {
            super::NoWay::Absent(words) | super::NoWay::Loader(words) => words,
        };
        let library = open(Path::new("libnvidia-ml.so.1"), libc::RTLD_NOW, false).map_err(loader)?;
        let done = |code: c_int| match code {
            0 => Ok(()),
            code => Err(format!("it answers {code}")),
        };
        let init = symbol(library, c"nvmlInit_v2").map_err(loader)?;
        let by_pci = symbol(library, c"nvmlDeviceGetHandleByPciBusId_v2").map_err(loader)?;
        let info = symbol(library, c"nvmlDeviceGetMemoryInfo").map_err(loader)?;
        // SAFETY: NVML's functions of those names have these types.
        let (init, by_pci, info) = unsafe {
            (
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(init),
                std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int,
                >(by_pci),
                std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*mut c_void, *mut nvmlMemory_t) -> c_int,
                >(info),
            )
        };
        let (mut pci, mut device, mut memory) =
            ([0 as c_char; 32], std::ptr::null_mut(), nvmlMemory_t::default());
        let named =
            ask!(self, helper, c"cuDeviceGetPCIBusId", (*mut c_char, c_int, c_int), pci.as_mut_ptr(), 32, 0);
        done(named.unwrap_or(-1))?;
        // SAFETY: takes nothing.
        done(unsafe { init() })?;
        // SAFETY: the driver has just ended the text in `pci`; the outputs are live locals of their types, and the device
        // is what NVML itself handed out.
        unsafe {
            done(by_pci(pci.as_ptr(), &mut device))?;
            done(info(device, &mut memory))?;
        }
        Ok(memory.total)
    }
}
