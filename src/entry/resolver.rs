//! `cuGetProcAddress`: the driver is asked first, and what it refuses stays refused, with its code and status.

use core::ffi::CStr;

use super::*;
use crate::resolve::procaddr;

type GetProcAddress = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> Code;

/// `cuGetProcAddress` with four arguments (11.3).
pub(super) unsafe fn get_proc_address(
    call: &Call,
    next: GetProcAddress,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> Code {
    // SAFETY: the caller's own arguments.
    let code = unsafe { next(symbol, pfn, version, flags) };
    // SAFETY: the driver read `symbol` and wrote `pfn`, if it answered success.
    unsafe { substitute(call, code, symbol, pfn, version, flags) };
    code
}

type GetProcAddressV2 = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> Code;

/// `cuGetProcAddress` with a status (12.0), which may be NULL.
pub(super) unsafe fn get_proc_address_v2(
    call: &Call,
    next: GetProcAddressV2,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_int,
) -> Code {
    // SAFETY: the caller's own arguments.
    let code = unsafe { next(symbol, pfn, version, flags, status) };
    // SAFETY: the driver read `symbol` and wrote `pfn`, if it answered success.
    unsafe { substitute(call, code, symbol, pfn, version, flags) };
    code
}

/// # Safety
/// Where `code` is success, `symbol` is a C string or NULL, and `pfn` can be written or is NULL.
unsafe fn substitute(
    call: &Call,
    code: Code,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: u64,
) {
    if code != SUCCESS || symbol.is_null() {
        return;
    }
    // SAFETY: as promised above.
    let (base, pfn) = unsafe { (CStr::from_ptr(symbol), pfn.as_mut()) };
    if let Some(pfn) = pfn.filter(|pfn| !pfn.is_null()) {
        *pfn = procaddr::substitute(base, version, flags, *pfn, call.driver).cast_mut();
    }
}
