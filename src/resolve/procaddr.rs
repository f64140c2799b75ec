//! `cuGetProcAddress`: which function did the driver hand out?
//!
//! Most pointers equal an export, whose name settles it. The driver may also hand out inner addresses, and
//! another interposer below us its own functions: there the table says what the name means at that version.

use core::ffi::{CStr, c_void};

use crate::driver::Driver;
use crate::hook::Hook;
use crate::log;
use crate::sys::object;

use super::{hooked, names};

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD: u64 = 2;

/// What to hand out in place of `found`, the answer of the driver `asked` to `base` at `version` and `flags`.
pub fn substitute(
    base: &CStr,
    version: i32,
    flags: u64,
    found: *const c_void,
    asked: usize,
) -> *const c_void {
    let Ok(base) = base.to_str() else { return found };
    if base.is_empty() || !Hook::ALL.iter().any(|hook| hook.info().base == base) {
        return found;
    }
    let meant = Hook::variant(base, u32::try_from(version).unwrap_or(0), flags & PER_THREAD != 0);
    match exported_as(found) {
        Exported::Hook(hook) => super::substitute(hook, found),
        // The driver's own address, yet no export, or another's function: the table decides.
        Exported::No => match meant {
            Some(hook) => hooked(hook, found, Driver::around(found).unwrap_or(Some(asked))),
            None => found,
        },
        Exported::Unknown => {
            log::enforcement_lost(
                Hook::ALL.iter().find(|hook| hook.info().base == base).map_or(c"", |hook| hook.info().symbol),
                "the driver has a newer version of it than this cuquota knows",
            );
            found
        }
    }
}

enum Exported {
    /// The export that this hook stands for.
    Hook(Hook),
    /// No export of a driver library.
    No,
    /// An export that the table does not have.
    Unknown,
}

fn exported_as(found: *const c_void) -> Exported {
    if Driver::holding(found).is_none() {
        return Exported::No;
    }
    let names = object::at(found, |object| {
        let mut exported = false;
        let hook = object.names_at(found, |name| {
            exported = true;
            // SAFETY: a CStr is a C string.
            match unsafe { names::find(name.as_ptr()) } {
                Some(names::Name::Driver(hook)) => Some(hook),
                _ => None,
            }
        });
        (hook, exported)
    });
    match names {
        Some((Some(hook), _)) => Exported::Hook(hook),
        Some((None, true)) => Exported::Unknown,
        _ => Exported::No,
    }
}
