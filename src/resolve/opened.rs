//! Libraries that do not look here for the driver's functions: those opened with `RTLD_DEEPBIND`, which look into their
//! own dependencies first, and those in namespaces of their own (`dlmopen`).
//!
//! What such a library has bound straight to a driver, or to the loader's look-up functions, is bound to our hooks after
//! it has been opened, before its opener gets to use it. Its constructors have run by then: what they do is out of
//! reach.
//!
//! `dlopen` searches relative to its caller, so it is called from here only where that makes no difference. Otherwise
//! the caller goes on to the real one by itself, and what it opened is met at the next call of a function of the loader.

use core::ffi::{CStr, c_char, c_int, c_long, c_void};
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::loader::{self, Verdict, real};
use super::names::{self, Lookup, Name};
use super::ours;
use crate::driver::{self, Driver};
use crate::log;
use crate::sys::object::{self, Object, Reference, SearchPath};

type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlmopen = unsafe extern "C" fn(c_long, *const c_char, c_int) -> *mut c_void;

/// `dlopen`.
///
/// # Safety
/// As `dlopen` asks.
pub unsafe extern "C" fn pick_dlopen<const COPY: usize>(
    file: *const c_char,
    mode: c_int,
    _: usize,
    caller: *const c_void,
) -> Verdict {
    catch_up();
    let next = real(Lookup::Dlopen, COPY);
    let elsewhere = object::is_elsewhere(caller);
    if next.is_null() || (mode & libc::RTLD_DEEPBIND == 0 && !elsewhere) {
        return Verdict::forward(next);
    }
    let before = Objects::now();
    // SAFETY: `file` is what the caller of dlopen promised the loader.
    if !unsafe { same_for_everyone(file, caller) } || (elsewhere && mode & libc::RTLD_GLOBAL != 0) {
        before.leave_for_later();
        return Verdict::forward(next);
    }
    let opened = if elsewhere {
        // SAFETY: the handle of a mapped object: the caller's own.
        let Some(namespace) = (unsafe { object::id_of(object::handle_of(caller)) }) else {
            return Verdict::forward(next);
        };
        // SAFETY: copy 1 leads to a `dlmopen`.
        let dlmopen: Dlmopen = unsafe { core::mem::transmute(real(Lookup::Dlmopen, 1)) };
        // SAFETY: the caller's own arguments, and the namespace that the loader would take from the caller.
        unsafe { dlmopen(namespace, file, mode) }
    } else {
        // SAFETY: `next` is a `dlopen`.
        let dlopen: Dlopen = unsafe { core::mem::transmute(next) };
        // SAFETY: the caller's own arguments.
        unsafe { dlopen(file, mode) }
    };
    before.redirect_what_came_since();
    Verdict::answer(opened)
}

/// `dlmopen`.
///
/// # Safety
/// As `dlmopen` asks.
pub unsafe extern "C" fn pick_dlmopen<const COPY: usize>(
    namespace: c_long,
    file: *const c_char,
    mode: c_int,
    caller: *const c_void,
) -> Verdict {
    catch_up();
    let next = real(Lookup::Dlmopen, COPY);
    let base = namespace == libc::LM_ID_BASE;
    if next.is_null() || (base && mode & libc::RTLD_DEEPBIND == 0) {
        return Verdict::forward(next);
    }
    let before = Objects::now();
    object::one_was_made();
    // SAFETY: `file` is what the caller of dlmopen promised the loader.
    if !unsafe { same_for_everyone(file, caller) } {
        before.leave_for_later();
        return Verdict::forward(next);
    }
    // SAFETY: `next` is a `dlmopen`.
    let dlmopen: Dlmopen = unsafe { core::mem::transmute(next) };
    // SAFETY: the caller's own arguments.
    let opened = unsafe { dlmopen(namespace, file, mode) };
    before.redirect_what_came_since();
    // SAFETY: an open handle, or NULL.
    unsafe { report_what_cannot_be_seen(opened) };
    Verdict::answer(opened)
}

/// Says so where a plug-in has a driver in a namespace that the loader (glibc before 2.35) does not show.
///
/// # Safety
/// `opened` is an open handle of another namespace, or NULL.
unsafe fn report_what_cannot_be_seen(opened: *mut c_void) {
    let seen = object::elsewhere(|_| ControlFlow::Break(())).is_some();
    if opened.is_null() || seen {
        return;
    }
    // SAFETY: copy 1 leads to a `dlsym`.
    let dlsym: Dlsym = unsafe { core::mem::transmute(real(Lookup::Dlsym, 1)) };
    // SAFETY: an open handle, as promised, and a C string; then the error that a failure leaves is dropped.
    let driver = unsafe { dlsym(opened, c"cuInit".as_ptr()) };
    if driver.is_null() {
        // SAFETY: takes nothing; the message it drops is the calling thread's.
        unsafe { libc::dlerror() };
    } else {
        log::enforcement_lost(c"dlmopen", "glibc before 2.35 does not show what is in other namespaces");
    }
}

/// Whether the loader finds the same for any caller of this namespace.
///
/// # Safety
/// `file` is NULL or a C string.
unsafe fn same_for_everyone(file: *const c_char, caller: *const c_void) -> bool {
    if file.is_null() {
        return true;
    }
    // SAFETY: as promised.
    let file = unsafe { CStr::from_ptr(file) }.to_bytes();
    let path = object::at(caller, |object| object.search_path()).unwrap_or(SearchPath::None);
    let looked_for = !file.contains(&b'/');
    !file.contains(&b'$')
        && match path {
            SearchPath::None => true,
            SearchPath::ForItself => !looked_for,
            SearchPath::ForDependenciesToo => false,
        }
}

/// The objects of the base namespace at one time, by where they are loaded.
struct Objects(Vec<usize>);

/// Opened by a caller that went on to the real `dlopen` by itself: what had been there before. NULL where nothing was.
static LATER: AtomicPtr<Objects> = AtomicPtr::new(core::ptr::null_mut());

/// Meets what was opened in the meantime, if anything was: one load where nothing was.
#[inline]
pub fn catch_up() {
    if !LATER.load(Ordering::Relaxed).is_null() {
        meet_late();
    }
}

#[cold]
fn meet_late() {
    let before = LATER.swap(core::ptr::null_mut(), Ordering::AcqRel);
    if !before.is_null() {
        // SAFETY: leaked by `leave_for_later`, and taken by this thread alone.
        unsafe { Box::from_raw(before) }.redirect_what_came_since();
    }
}

impl Objects {
    fn now() -> Objects {
        let mut bases = Vec::new();
        object::visit::<()>(|object| {
            bases.push(object.base());
            ControlFlow::Continue(())
        });
        Objects(bases)
    }

    fn leave_for_later(self) {
        let mine = Box::into_raw(Box::new(self));
        let earlier =
            LATER.compare_exchange(core::ptr::null_mut(), mine, Ordering::AcqRel, Ordering::Relaxed);
        if earlier.is_err() {
            // What was there before that counts.
            // SAFETY: nobody else has seen it.
            drop(unsafe { Box::from_raw(mine) });
        }
    }

    /// Binds what has been opened since to our hooks, and whatever lies in other namespaces.
    fn redirect_what_came_since(self) {
        object::visit::<()>(|object| {
            if !self.0.contains(&object.base()) {
                redirect(object);
            }
            ControlFlow::Continue(())
        });
        object::elsewhere::<()>(|object| {
            redirect(object);
            ControlFlow::Continue(())
        });
    }
}

/// Binds the references of `object` that lead into a driver or to the loader's look-up functions to our hooks. The
/// driver's own are the driver's business.
fn redirect(object: &Object) {
    if ours::is(object) || driver::is_driver(object) || loader::is_libc(object) {
        return;
    }
    object.references(|name, reference| {
        // SAFETY: a CStr is a C string.
        let Some(wanted) = (unsafe { names::find(name.as_ptr()) }) else { return };
        let Some(found) = target(object, wanted, &reference) else { return };
        let hook = loader::in_place_of(wanted, found);
        if hook != found {
            reference.redirect(hook);
        }
    });
}

/// Where a reference leads, or will at the first call through it.
fn target(object: &Object, wanted: Name, reference: &Reference) -> Option<*const c_void> {
    if !reference.is_unbound() {
        return Some(reference.target());
    }
    let function = |other: &Object, symbol: &CStr| match other.function(symbol) {
        Some(found) => ControlFlow::Break(found),
        None => ControlFlow::Continue(()),
    };
    match wanted {
        Name::Loader(name) => object::alongside(reference.target(), |other| {
            if loader::is_libc(other) { function(other, name.symbol()) } else { ControlFlow::Continue(()) }
        }),
        Name::Driver(hook) => {
            let symbol = hook.info().symbol;
            let linked = |other: &Object| other.soname().is_some_and(|soname| object.needs(soname));
            let among = |only_linked: bool| {
                object::alongside(reference.target(), |other| {
                    if driver::is_driver(other) && (!only_linked || linked(other)) {
                        function(other, symbol)
                    } else {
                        ControlFlow::Continue(())
                    }
                })
            };
            among(true).or_else(|| among(false)).filter(|found| Driver::around(*found).is_some())
        }
    }
}
