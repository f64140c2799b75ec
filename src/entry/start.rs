//! What happens before the program's own code runs, in every process of the container: as little as can be.

use core::ffi::{CStr, c_char};

use std::panic::catch_unwind;

use crate::config::{Quota, Source};
use crate::growth::{self, SWITCHES};
use crate::log::{self, Level};
use crate::resolve::{ours, weak};
use crate::sys::environment;

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
    // A panic would be a bug of ours; the program starts all the same.
    let _ = catch_unwind(set_switches);
}

/// Sets the frameworks' own switches where the quota file asks for it. A file that is missing or refused is none of
/// our business yet: the program may never use a GPU.
fn set_switches() {
    // So it is in the children of programs that were here before, and then no file is read.
    if SWITCHES.iter().all(|switch| environment::is_set(switch.variable)) {
        return;
    }
    // SAFETY: errno is the calling thread's own.
    let errno = unsafe { *libc::__errno_location() };
    let quota = Source::locate().and_then(|source| Quota::load(&source.quota));
    if quota.is_ok_and(|quota| growth::wants_switches(&quota)) {
        for switch in SWITCHES.iter().filter(|switch| !environment::is_set(switch.variable)) {
            if environment::set_if_absent(switch.variable, switch.value) {
                let (variable, value) = (switch.variable.to_string_lossy(), switch.value.to_string_lossy());
                log::say(
                    Level::Info,
                    format_args!("{variable}={value} set: {} {}", switch.framework, switch.why),
                );
            }
        }
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}
