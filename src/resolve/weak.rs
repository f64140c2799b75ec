//! Weak references: "use the driver if it is there".
//!
//! A program that declares `cuInit` weak finds its address NULL where no driver is loaded. Our export would give it an
//! address, and the program a driver it does not have. So before the program's own code runs, such references are put
//! back to what they would be without this library.

use core::ops::ControlFlow;

use super::names::{self, Name};
use super::ours;
use crate::sys::object;

/// Clears the weak references of the start-up objects to functions that no start-up object but this library has.
/// Called before the program's own code runs, while there is one thread.
pub fn clear_unresolved() {
    object::visit::<()>(|object| {
        if !ours::is(object) {
            object.references(|name, reference| {
                if reference.is_weak() && is_ours_alone(name) {
                    reference.redirect(core::ptr::null());
                }
            });
        }
        ControlFlow::Continue(())
    });
}

fn is_ours_alone(name: &core::ffi::CStr) -> bool {
    // SAFETY: a CStr is a C string.
    let hooked = matches!(unsafe { names::find(name.as_ptr()) }, Some(Name::Driver(_)));
    hooked
        && object::visit(|object| match !ours::is(object) && object.function(name).is_some() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
        .is_none()
}
