//! `dlsym` and `dlvsym`, and how all hooked functions of the loader are entered.
//!
//! The real functions answer relative to the code they return to (`RTLD_NEXT` and `RTLD_DEFAULT`, run paths, the
//! namespace), so what is not ours to answer must reach them by a jump, with the caller's return address in place and
//! nothing left to do afterwards. Each entry therefore is a few instructions of assembly: ask a picker, then jump or
//! return.
//!
//! Each exists in a few copies, as every hook does: the exported one leads to the next interposer of that name in link
//! order, another, handed out for libc's own, leads there, and further ones to the libc of other namespaces.

use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_void};
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::names::{self, Lookup, Name};
use super::{opened, ours, substitute};
use crate::driver::Driver;
use crate::sys::object::{self, Object};

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// What the assembly does next: jump to `forward`, or where that is NULL, return `answer`. Returned in registers.
#[repr(C)]
pub struct Verdict {
    answer: *const c_void,
    forward: *const c_void,
}

impl Verdict {
    /// The caller goes on to the function there, as if it had called that.
    pub fn forward(to: *const c_void) -> Verdict {
        Verdict { answer: core::ptr::null(), forward: to }
    }

    /// The caller gets this answer.
    pub fn answer(answer: *const c_void) -> Verdict {
        Verdict { answer, forward: core::ptr::null() }
    }
}

/// Declares the entry of one function of the loader: save the arguments, ask `pick`, jump or return.
macro_rules! look_up_entry {
    ($(#[$doc:meta])* $name:ident asks $pick:ident) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As the loader's function of that name asks.
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name<const COPY: usize>() {
            naked_asm!(
                "endbr64",
                "push rdi",
                "push rsi",
                "push rdx",
                "mov rcx, [rsp + 24]", // the return address: who asks
                "call {pick}",
                "mov rcx, rdx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "test rcx, rcx",
                "jz 2f",
                "jmp rcx",
                "2: ret",
                pick = sym $pick::<COPY>,
            )
        }

        $(#[$doc])*
        ///
        /// # Safety
        /// As the loader's function of that name asks.
        #[cfg(target_arch = "aarch64")]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name<const COPY: usize>() {
            naked_asm!(
                "hint #34", // bti c
                "stp x29, x30, [sp, #-48]!",
                "stp x0, x1, [sp, #16]",
                "str x2, [sp, #32]",
                "mov x3, x30", // the return address: who asks
                "bl {pick}",
                "mov x16, x1",
                "cbz x16, 2f",
                "ldp x0, x1, [sp, #16]",
                "ldr x2, [sp, #32]",
                "2: ldp x29, x30, [sp], #48",
                "cbz x16, 3f",
                "br x16",
                "3: ret",
                pick = sym $pick::<COPY>,
            )
        }
    };
}

look_up_entry! {
    /// `dlsym(handle, name)`.
    dlsym asks pick_dlsym
}
look_up_entry! {
    /// `dlvsym(handle, name, version)`.
    dlvsym asks pick_dlvsym
}
look_up_entry! {
    /// `dlopen(file, mode)`.
    dlopen asks pick_dlopen
}
look_up_entry! {
    /// `dlmopen(namespace, file, mode)`.
    dlmopen asks pick_dlmopen
}
use opened::{pick_dlmopen, pick_dlopen};

unsafe extern "C" fn pick_dlsym<const COPY: usize>(
    handle: *mut c_void,
    name: *const c_char,
    _: *const c_char,
    caller: *const c_void,
) -> Verdict {
    opened::catch_up();
    let real = real(Lookup::Dlsym, COPY);
    // SAFETY: `name` is what the caller of dlsym promised the loader.
    match unsafe { names::find(name) } {
        None => Verdict::forward(real),
        Some(wanted) => {
            // SAFETY: `real` is a `dlsym`.
            let dlsym: Dlsym = unsafe { core::mem::transmute(real) };
            // SAFETY: the caller's own arguments, or RTLD_NEXT in their place.
            pick(wanted, handle, caller, real, |handle| unsafe { dlsym(handle, name) })
        }
    }
}

unsafe extern "C" fn pick_dlvsym<const COPY: usize>(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    caller: *const c_void,
) -> Verdict {
    opened::catch_up();
    let real = real(Lookup::Dlvsym, COPY);
    // SAFETY: `name` is what the caller of dlvsym promised the loader.
    match unsafe { names::find(name) } {
        None => Verdict::forward(real),
        Some(wanted) => {
            // SAFETY: `real` is a `dlvsym`.
            let dlvsym: Dlvsym = unsafe { core::mem::transmute(real) };
            // SAFETY: the caller's own arguments, or RTLD_NEXT in their place.
            pick(wanted, handle, caller, real, |handle| unsafe { dlvsym(handle, name, version) })
        }
    }
}

/// Answers a look-up of one of our names: what it would find without this library, and then its hook. Not inlined, so
/// that the look-up of a foreign name saves no registers for it.
#[inline(never)]
fn pick(
    wanted: Name,
    handle: *mut c_void,
    caller: *const c_void,
    real: *const c_void,
    ask: impl Fn(*mut c_void) -> *mut c_void,
) -> Verdict {
    let symbol = match wanted {
        Name::Driver(hook) => hook.info().symbol,
        Name::Loader(function) => function.symbol(),
    };
    let found = if handle == libc::RTLD_NEXT {
        // Asked from here, the real one would answer relative to us.
        match ours::next_after(caller, symbol) {
            Some(found) => {
                // As after every look-up that succeeds; the program may test it.
                // SAFETY: takes nothing; the message it drops is the calling thread's.
                unsafe { libc::dlerror() };
                found.cast_mut()
            }
            None => ask(libc::RTLD_NEXT),
        }
    } else if handle == libc::RTLD_DEFAULT && object::is_elsewhere(caller) {
        // The global scope of another namespace, which this library is not in.
        let first = object::alongside(caller, |object| match object.function(symbol) {
            Some(found) => ControlFlow::Break(found),
            None => ControlFlow::Continue(()),
        });
        // Not there for the loader either, which says so.
        let Some(first) = first else { return Verdict::forward(real) };
        first.cast_mut()
    } else {
        match ask(handle) {
            found if !ours::contain(found) => found,
            // Our own export stood in front: what is behind it? Last what a plug-in was opened with, which is nobody else's. Its
            // map is no handle to ask by: that of a mere dependency makes the loader crash.
            _ => match ask(libc::RTLD_NEXT) {
                found if !found.is_null() || handle != libc::RTLD_DEFAULT => found,
                found if !ours::is_opened_later(caller) => found,
                found => Driver::with(symbol).map_or(found, |(_, found)| found.cast_mut()),
            },
        }
    };
    Verdict::answer(in_place_of(wanted, found))
}

/// What goes out in place of `found`, the function that bears the name `wanted`.
pub fn in_place_of(wanted: Name, found: *const c_void) -> *const c_void {
    match wanted {
        _ if found.is_null() => found,
        Name::Driver(hook) => substitute(hook, found),
        Name::Loader(function) => hook_of_look_up(function, found),
    }
}

/// Copies of each function of the loader.
pub const COPIES: usize = 4;

static REAL: [[AtomicPtr<c_void>; COPIES]; Lookup::ALL.len()] =
    [const { [const { AtomicPtr::new(core::ptr::null_mut()) }; COPIES] }; Lookup::ALL.len()];

/// Where copy `copy` of a function of the loader leads.
#[inline]
pub fn real(function: Lookup, copy: usize) -> *const c_void {
    let real = &REAL[function as usize][copy];
    let known = real.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    let found = find_real(function, copy);
    real.store(found.cast_mut(), Ordering::Relaxed);
    found
}

/// Copy 0 leads to the next object in link order, copy 1 to libc (before glibc 2.34, libdl). The others are handed out
/// with their way set.
#[cold]
fn find_real(function: Lookup, copy: usize) -> *const c_void {
    let symbol = function.symbol();
    let look = |object: &Object| match object.function(symbol) {
        Some(found) if copy == 0 || is_libc(object) => ControlFlow::Break(found),
        _ => ControlFlow::Continue(()),
    };
    // libc is always behind a preloaded library: this is found.
    ours::after_us(look)
        .or_else(|| object::visit(|o| if is_libc(o) { look(o) } else { ControlFlow::Continue(()) }))
        .unwrap_or(core::ptr::null())
}

pub fn is_libc(object: &Object) -> bool {
    matches!(object.soname().map(CStr::to_bytes), Some(b"libc.so.6" | b"libdl.so.2"))
}

/// A function of the loader is itself handed out as ours, or it would lead around us.
fn hook_of_look_up(function: Lookup, found: *const c_void) -> *const c_void {
    let copy = if found == real(function, 0) {
        0
    } else if object::at(found, is_libc) != Some(true) {
        return found;
    } else if found == real(function, 1) {
        1
    } else {
        leading_to(function, found)
    };
    crate::entry::look_up_pointer(function, copy)
}

/// The copy that leads to the libc of another namespace. Where there are too many of them it is the one that leads to
/// the base namespace's, which answers the same, but for `dlerror`.
fn leading_to(function: Lookup, found: *const c_void) -> usize {
    let taken = |copy: &usize| {
        let place = &REAL[function as usize][*copy];
        let old = place.compare_exchange(
            core::ptr::null_mut(),
            found.cast_mut(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        old.map_or_else(|old| old == found.cast_mut(), |_| true)
    };
    (2..COPIES).find(taken).unwrap_or(1)
}
