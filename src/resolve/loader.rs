//! `dlsym` and `dlvsym`.
//!
//! The real functions answer `RTLD_NEXT` and `RTLD_DEFAULT` relative to the code they return to, so a foreign name
//! must reach them by a jump, with the caller's return address in place and nothing left to do afterwards. Each
//! entry therefore is a few instructions of assembly: ask [`pick`], then jump or return.
//!
//! Two copies of each, as of every hook: the exported one leads to the next interposer of `dlsym` in link order,
//! the other, handed out for libc's own, leads there.

use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_void};
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::names::{self, Lookup, Name};
use super::{ours, substitute};
use crate::sys::object::{self, Object};

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// What the assembly does next: jump to `forward`, or where that is NULL, return `answer`. Returned in registers.
#[repr(C)]
pub struct Verdict {
    answer: *const c_void,
    forward: *const c_void,
}

/// Declares the entry of one look-up function: save the arguments, ask `pick`, jump or return.
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

unsafe extern "C" fn pick_dlsym<const COPY: usize>(
    handle: *mut c_void,
    name: *const c_char,
    _: *const c_char,
    caller: *const c_void,
) -> Verdict {
    let real = real(Lookup::Dlsym, COPY);
    // SAFETY: `name` is what the caller of dlsym promised the loader.
    match unsafe { names::find(name) } {
        None => Verdict { answer: core::ptr::null(), forward: real },
        Some(wanted) => {
            // SAFETY: `real` is a `dlsym`.
            let dlsym: Dlsym = unsafe { core::mem::transmute(real) };
            // SAFETY: the caller's own arguments, or RTLD_NEXT in their place.
            pick(wanted, handle, caller, |handle| unsafe { dlsym(handle, name) })
        }
    }
}

unsafe extern "C" fn pick_dlvsym<const COPY: usize>(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    caller: *const c_void,
) -> Verdict {
    let real = real(Lookup::Dlvsym, COPY);
    // SAFETY: `name` is what the caller of dlvsym promised the loader.
    match unsafe { names::find(name) } {
        None => Verdict { answer: core::ptr::null(), forward: real },
        Some(wanted) => {
            // SAFETY: `real` is a `dlvsym`.
            let dlvsym: Dlvsym = unsafe { core::mem::transmute(real) };
            // SAFETY: the caller's own arguments, or RTLD_NEXT in their place.
            pick(wanted, handle, caller, |handle| unsafe { dlvsym(handle, name, version) })
        }
    }
}

/// Answers a look-up of one of our names: what it would find without this library, and then its hook.
fn pick(
    wanted: Name,
    handle: *mut c_void,
    caller: *const c_void,
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
                found
            }
            None => ask(libc::RTLD_NEXT),
        }
    } else {
        match ask(handle) {
            found if !ours::contain(found) => found,
            // Our own export stood in front: what is behind it? Last the scope of the caller's own dependencies, which
            // is nobody else's; a handle is the loader's map of an object.
            _ => match ask(libc::RTLD_NEXT) {
                found if !found.is_null() || handle != libc::RTLD_DEFAULT => found,
                _ => match ask(object::handle_of(caller)) {
                    found if !ours::contain(found) => found,
                    // Asked again for the error it leaves.
                    _ => ask(libc::RTLD_NEXT),
                },
            },
        }
    };
    let answer = match wanted {
        _ if found.is_null() => found,
        Name::Driver(hook) => substitute(hook, found),
        Name::Loader(function) => hook_of_look_up(function, found),
    };
    Verdict { answer, forward: core::ptr::null() }
}

/// Copies of each look-up function.
pub const COPIES: usize = 2;

static REAL: [[AtomicPtr<c_void>; COPIES]; 2] =
    [const { [const { AtomicPtr::new(core::ptr::null_mut()) }; COPIES] }; 2];

/// Where copy `copy` of a look-up function leads.
#[inline]
fn real(function: Lookup, copy: usize) -> *const c_void {
    let real = &REAL[function as usize][copy];
    let known = real.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    let found = find_real(function, copy);
    real.store(found.cast_mut(), Ordering::Relaxed);
    found
}

/// Copy 0 leads to the next object in link order, copy 1 to libc (before glibc 2.34, libdl).
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

fn is_libc(object: &Object) -> bool {
    matches!(object.soname().map(CStr::to_bytes), Some(b"libc.so.6" | b"libdl.so.2"))
}

/// A way to look names up is itself handed out as ours, or it would lead around us.
fn hook_of_look_up(function: Lookup, found: *const c_void) -> *const c_void {
    if found == real(function, 0) {
        return crate::entry::look_up_pointer(function, 0);
    }
    match object::at(found, is_libc) {
        Some(true) => crate::entry::look_up_pointer(function, 1),
        _ => found,
    }
}
