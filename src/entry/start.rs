//! What happens before the program's own code runs, in every process of the container: as little as can be.

use core::ffi::{CStr, c_char};

use crate::log;
use crate::resolve::{ours, weak};

/// The library's initialiser (`DT_INIT`).
///
/// # Safety
/// Called by the loader, once, before `main`.
pub unsafe extern "C" fn start() {
    ours::count_start_up_objects();
    weak::clear_unresolved();
    log::start(|name| {
        // SAFETY: `name` is a C string; no other thread can change the environment yet.
        let value = unsafe { libc::getenv(name.as_ptr()) };
        // SAFETY: the strings of the environment at start stay where they are.
        (!value.is_null()).then(|| unsafe { CStr::from_ptr(value.cast::<c_char>()) })
    });
    // This copy of the standard library is ours alone. A panic would be a bug of ours; it is contained at the hook
    // and logged, and its report must not reach the program's stderr.
    std::panic::set_hook(Box::new(|_| {}));
}
