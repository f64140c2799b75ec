//! A small client of the NVIDIA driver: what a program does that opens it and takes memory.
//!
//! It opens `libcuda.so.1` as programs do, by name, and looks every function up, so that whatever stands between
//! programs and the driver stands here too.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;

/// The driver, open and initialised. One for each thread that wants one: a context is current to a thread.
pub struct Driver {
    handle: *mut c_void,
}

/// What the driver, or the loader in its place, answered instead of doing what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriverError {
    /// There is no driver, or it lacks a function; the loader's own words.
    Absent(String),
    /// The driver refused a call.
    Refused {
        /// The function that was called.
        call: &'static str,
        /// Its `CUresult`.
        code: i32,
        /// The name of that code, as the driver gives it.
        name: String,
    },
}

impl DriverError {
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    pub const OUT_OF_MEMORY: i32 = 2;
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DriverError::Absent(words) => f.write_str(words),
            DriverError::Refused { call, code, name } => write!(f, "{call}: {name} ({code})"),
        }
    }
}

impl std::error::Error for DriverError {}

/// What a GPU says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its CUDA ordinal.
    pub ordinal: i32,
    /// Its name.
    pub name: String,
    /// The 16 bytes of its UUID.
    pub uuid: [u8; 16],
    /// Its PCI bus id as the driver writes it.
    pub pci_bus_id: String,
    /// Its memory in bytes, as programs are told.
    pub total: u64,
}

/// An allocation. Freed with the process, or by [`Driver::free`].
#[derive(Debug, PartialEq, Eq)]
pub struct Memory {
    address: u64,
    bytes: u64,
}

const LIBRARY: &CStr = c"libcuda.so.1";

/// Calls the function of that name with those arguments: `call!(self, "cuInit", (c_uint), 0)`.
macro_rules! call {
    ($driver:expr, $name:literal, ($($kind:ty),*), $($argument:expr),*) => {{
        const NAME: &CStr = match CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("a name with a NUL in it"),
        };
        let address = $driver.symbol(NAME)?;
        // SAFETY: the driver's function of that name has this type; that it is loaded is what `symbol` found out.
        let function: unsafe extern "C" fn($($kind),*) -> c_int = unsafe { std::mem::transmute(address) };
        // SAFETY: every pointer among the arguments points to a local variable of the type, or to a buffer of the
        // length, that the function fills in or reads before it returns.
        let code = unsafe { function($($argument),*) };
        $driver.answer($name, code)
    }};
}

impl Driver {
    /// Opens and initialises the driver.
    pub fn open() -> Result<Self, DriverError> {
        // SAFETY: a valid name and flags; loading runs the driver's constructors, as in any CUDA program.
        let handle = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW) };
        if handle.is_null() {
            return Err(DriverError::Absent(loader_error()));
        }
        let driver = Driver { handle };
        call!(driver, "cuInit", (c_uint), 0)?;
        Ok(driver)
    }

    /// The GPUs that this process sees, in its order.
    pub fn devices(&self) -> Result<Vec<Device>, DriverError> {
        let mut count: c_int = 0;
        call!(self, "cuDeviceGetCount", (*mut c_int), &mut count)?;
        (0..count).map(|ordinal| self.device(ordinal)).collect()
    }

    /// What the GPU with this ordinal says of itself.
    pub fn device(&self, ordinal: i32) -> Result<Device, DriverError> {
        let device = self.handle_of(ordinal)?;
        let mut name = [0 as c_char; 256];
        call!(self, "cuDeviceGetName", (*mut c_char, c_int, c_int), name.as_mut_ptr(), 256, device)?;
        let mut uuid = [0u8; 16];
        // The second version (11.4) answers a MIG instance's own.
        let own = |uuid: &mut [u8; 16]| {
            call!(self, "cuDeviceGetUuid_v2", (*mut u8, c_int), uuid.as_mut_ptr(), device)
        };
        if own(&mut uuid).is_err() {
            call!(self, "cuDeviceGetUuid", (*mut u8, c_int), uuid.as_mut_ptr(), device)?;
        }
        let mut pci = [0 as c_char; 32];
        call!(self, "cuDeviceGetPCIBusId", (*mut c_char, c_int, c_int), pci.as_mut_ptr(), 32, device)?;
        let mut total = 0usize;
        call!(self, "cuDeviceTotalMem_v2", (*mut usize, c_int), &mut total, device)?;
        Ok(Device { ordinal, name: text(&name), uuid, pci_bus_id: text(&pci), total: total as u64 })
    }

    /// Makes the primary context of that GPU, and makes it current in this thread.
    pub fn start(&self, ordinal: i32) -> Result<(), DriverError> {
        let device = self.handle_of(ordinal)?;
        let mut context: *mut c_void = std::ptr::null_mut();
        call!(self, "cuDevicePrimaryCtxRetain", (*mut *mut c_void, c_int), &mut context, device)?;
        call!(self, "cuCtxSetCurrent", (*mut c_void), context)
    }

    /// The free and the total bytes of the current context's GPU.
    pub fn memory_info(&self) -> Result<(u64, u64), DriverError> {
        let (mut free, mut total) = (0usize, 0usize);
        call!(self, "cuMemGetInfo_v2", (*mut usize, *mut usize), &mut free, &mut total)?;
        Ok((free as u64, total as u64))
    }

    /// Takes `bytes` of the current context's GPU.
    pub fn allocate(&self, bytes: u64) -> Result<Memory, DriverError> {
        let mut address = 0u64;
        call!(self, "cuMemAlloc_v2", (*mut u64, usize), &mut address, bytes as usize)?;
        Ok(Memory { address, bytes })
    }

    /// Gives an allocation back.
    pub fn free(&self, memory: Memory) -> Result<(), DriverError> {
        call!(self, "cuMemFree_v2", (u64), memory.address)
    }

    /// Writes `value` to the first and the last byte of an allocation and reads both back.
    pub fn write_ends(&self, memory: &Memory, value: u8) -> Result<[u8; 2], DriverError> {
        let ends = [memory.address, memory.address + memory.bytes.saturating_sub(1)];
        let mut found = [!value; 2];
        for (address, byte) in ends.into_iter().zip(&mut found) {
            call!(self, "cuMemsetD8_v2", (u64, u8, usize), address, value, 1)?;
            call!(self, "cuMemcpyDtoH_v2", (*mut u8, u64, usize), byte, address, 1)?;
        }
        Ok(found)
    }

    fn handle_of(&self, ordinal: i32) -> Result<c_int, DriverError> {
        let mut device: c_int = 0;
        call!(self, "cuDeviceGet", (*mut c_int, c_int), &mut device, ordinal)?;
        Ok(device)
    }

    fn symbol(&self, name: &CStr) -> Result<*mut c_void, DriverError> {
        // SAFETY: the handle came from dlopen and is never closed; the name is a valid string.
        let address = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        if address.is_null() { Err(DriverError::Absent(loader_error())) } else { Ok(address) }
    }

    fn answer(&self, call: &'static str, code: c_int) -> Result<(), DriverError> {
        if code == 0 { Ok(()) } else { Err(DriverError::Refused { call, code, name: self.name_of(code) }) }
    }

    fn name_of(&self, code: c_int) -> String {
        let unnamed = || format!("error {code}");
        let Ok(address) = self.symbol(c"cuGetErrorName") else { return unnamed() };
        // SAFETY: the driver's function of that name has this type.
        let function: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int =
            unsafe { std::mem::transmute(address) };
        let mut name: *const c_char = std::ptr::null();
        // SAFETY: it writes one pointer, to a string that stays, or a null one.
        match unsafe { function(code, &mut name) } {
            // SAFETY: as above.
            0 if !name.is_null() => unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned(),
            _ => unnamed(),
        }
    }
}

/// The string at the start of a buffer that the driver filled in.
fn text(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Why the last `dlopen` or `dlsym` of this thread failed.
fn loader_error() -> String {
    // SAFETY: dlerror answers a null pointer or a string that is valid until the next call, and is copied here.
    unsafe {
        let words = libc::dlerror();
        if words.is_null() {
            "the loader gave no reason".to_owned()
        } else {
            CStr::from_ptr(words).to_string_lossy().into_owned()
        }
    }
}
