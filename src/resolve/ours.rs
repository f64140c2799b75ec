//! This library among the loaded objects.

use core::ffi::c_void;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::sys::object::{self, Object};

/// How many objects the program started with; those opened later are not in everyone's scope. 0 until counted.
static AT_START: AtomicUsize = AtomicUsize::new(0);

/// An address inside this library.
fn marker() -> *const c_void {
    (&raw const AT_START).cast()
}

/// Counts the start-up set; called before the program's own code runs. Costs one walk over the objects.
pub fn count_start_up_objects() {
    let mut count = 0;
    object::visit::<()>(|_| {
        count += 1;
        ControlFlow::Continue(())
    });
    AT_START.store(count, Ordering::Relaxed);
}

/// Whether what holds `address` was opened after the program had started.
pub fn is_opened_later(address: *const c_void) -> bool {
    let mut index = 0;
    let place = object::visit(|object| {
        index += 1;
        if object.contains(address) { ControlFlow::Break(index) } else { ControlFlow::Continue(()) }
    });
    place.is_some_and(|place| place > at_start())
}

fn at_start() -> usize {
    match AT_START.load(Ordering::Relaxed) {
        0 => usize::MAX,
        count => count,
    }
}

/// Whether `address` lies in this library.
pub fn contain(address: *const c_void) -> bool {
    object::at(address, is) == Some(true)
}

/// Whether `object` is this library.
pub fn is(object: &Object) -> bool {
    object.contains(marker())
}

/// Visits the start-up objects behind this library in link order: whom an exported hook stands in front of.
pub fn after_us<R>(mut look: impl FnMut(&Object) -> ControlFlow<R>) -> Option<R> {
    let at_start = at_start();
    let (mut index, mut behind) = (0, false);
    object::visit(|object| {
        index += 1;
        let passed = behind;
        behind |= is(object);
        match passed && index <= at_start {
            true => look(object),
            false => ControlFlow::Continue(()),
        }
    })
}

/// The function `name` of the first object behind the one that holds `caller`, this library left out: what
/// `dlsym(RTLD_NEXT)` answers that caller where this library is not there. Code outside any object counts as the
/// program's own, as for the loader.
pub fn next_after(caller: *const c_void, name: &core::ffi::CStr) -> Option<*const c_void> {
    let known = object::at(caller, |object| object.base());
    let mut behind = false;
    object::alongside(caller, |object| {
        let passed = behind;
        behind |= known.is_none_or(|base| base == object.base());
        match passed && !is(object) {
            true => match object.function(name) {
                Some(found) => ControlFlow::Break(found),
                None => ControlFlow::Continue(()),
            },
            false => ControlFlow::Continue(()),
        }
    })
}
