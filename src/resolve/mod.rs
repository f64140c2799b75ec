//! Real pointer -> hook.
//!
//! Programs reach the driver by many roads: link-time symbols, `dlsym`, `dlvsym`, `RTLD_NEXT`,
//! `cuGetProcAddress` and that asked for itself. On all of them the real resolver is asked first, and what it
//! refuses stays refused; [`substitute`] then swaps the answer for the hook that stands for exactly that function.

pub mod loader;
pub mod names;
pub mod opened;
pub mod ours;
pub mod procaddr;
pub mod route;
pub mod weak;

use core::ffi::c_void;

use crate::driver::Driver;
use crate::hook::Hook;
use crate::log;

/// What a look-up of `hook`'s symbol that found `found` hands out: the hook, where `found` lies in one of the
/// driver's libraries, and otherwise `found`, another library's own function of that name.
pub fn substitute(hook: Hook, found: *const c_void) -> *const c_void {
    match Driver::around(found) {
        Some(driver) => hooked(hook, found, driver),
        None => found,
    }
}

/// The hook that leads to `next` of `driver`, or one that refuses: more copies of the driver are loaded than can be told apart.
fn hooked(hook: Hook, next: *const c_void, driver: Option<usize>) -> *const c_void {
    let leading = driver.and_then(|driver| route::leading_to(hook, next, Some(driver)));
    leading.unwrap_or_else(|| {
        log::too_many_drivers(hook.info().symbol);
        crate::entry::refusing(hook)
    })
}
