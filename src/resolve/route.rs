//! Where each hook leads: the function that would have been called without it.
//!
//! A hook exists in a few *copies*, alike but for where they lead. Copy 0 is the exported symbol and leads to the
//! next object in link order. When a look-up answers a pointer that copy 0 does not lead to (a second libcuda in
//! the process, an inner address that equals no export, another interposer's function), a free copy takes it as
//! its own and goes out instead. So a hook never has to guess whom its caller meant.

use core::ffi::c_void;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::driver::{Driver, MOST_DRIVERS};
use crate::entry;
use crate::hook::Hook;
use crate::sys::object;

use super::ours;

/// Copies of each hook.
pub const COPIES: usize = 4;

/// Where one copy leads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The function to call on to.
    pub next: *const c_void,
    /// The driver behind it, or `None` where `next` is another library's own function of that name, which is
    /// none of our business.
    pub driver: Option<usize>,
}

/// A route in one word, so that it appears at once: addresses of user space leave the top byte free, and that
/// holds the driver's place + 1, or `FOREIGN`. 0 is no route yet.
struct Cell(AtomicUsize);

const TAG_SHIFT: u32 = usize::BITS - 8;
const FOREIGN: usize = MOST_DRIVERS + 1;

impl Cell {
    fn load(&self) -> Option<Route> {
        let word = self.0.load(Ordering::Acquire);
        let driver = match word >> TAG_SHIFT {
            0 => return None,
            FOREIGN => None,
            tag => Some(tag - 1),
        };
        Some(Route { next: (word & !(usize::MAX << TAG_SHIFT)) as *const c_void, driver })
    }

    /// Puts `route` in place of `expected`; false where someone else was faster or the address does not fit.
    fn replace(&self, expected: Option<Route>, route: Route) -> bool {
        let (Some(old), Some(new)) = (expected.map_or(Some(0), pack), pack(route)) else { return false };
        self.0.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

fn pack(route: Route) -> Option<usize> {
    let address = route.next as usize;
    (address >> TAG_SHIFT == 0)
        .then(|| route.driver.map_or(FOREIGN, |driver| driver + 1) << TAG_SHIFT | address)
}

static ROUTES: [[Cell; COPIES]; Hook::COUNT] =
    [const { [const { Cell(AtomicUsize::new(0)) }; COPIES] }; Hook::COUNT];

/// Where copy `copy` of `hook` leads. Copy 0 finds its way at the first call; `None` where no loaded object has
/// such a function.
#[inline]
pub fn of(hook: Hook, copy: usize) -> Option<Route> {
    match ROUTES[hook as usize][copy].load() {
        Some(route) => Some(route),
        None if copy == 0 => link_order(hook),
        None => None,
    }
}

/// Finds copy 0's way: the next object of the start-up set that has the function, else a driver opened since
/// (which a plugin linked against it reaches through our export, though the global scope does not hold it).
#[cold]
fn link_order(hook: Hook) -> Option<Route> {
    let symbol = hook.info().symbol;
    let next = ours::after_us(|object| match object.function(symbol) {
        Some(found) => ControlFlow::Break(found),
        None => ControlFlow::Continue(()),
    });
    let route = match next {
        Some(next) => Route { next, driver: Driver::holding(next) },
        None => {
            let (driver, next) = Driver::with(symbol)?;
            Route { next, driver: Some(driver) }
        }
    };
    let cell = &ROUTES[hook as usize][0];
    cell.replace(None, route);
    cell.load()
}

/// The copy of `hook` that leads to `next`, as a pointer to hand out; `None` where all copies are taken.
pub fn leading_to(hook: Hook, next: *const c_void, driver: Option<usize>) -> Option<*const c_void> {
    let route = Route { next, driver };
    let cells = &ROUTES[hook as usize];
    let known = |copy: &usize| of(hook, *copy).is_some_and(|known| known.next == next);
    if let Some(copy) = (0..COPIES).find(known) {
        return Some(entry::pointer(hook, copy));
    }
    for (copy, cell) in cells.iter().enumerate().skip(1) {
        if cell.replace(None, route) || known(&copy) {
            return Some(entry::pointer(hook, copy));
        }
    }
    // A copy whose library was closed serves again.
    let stale = |route: Route| object::at(route.next, |_| ()).is_none();
    let copy = (1..COPIES).find(|&copy| {
        let old = cells[copy].load();
        old.is_some_and(stale) && cells[copy].replace(old, route)
    })?;
    Some(entry::pointer(hook, copy))
}
