//! The hooks as programs meet them: `extern "C"` functions that only translate. Judgement lives behind them.
//!
//! Expands the table: for each row a hook in [`COPIES`](crate::resolve::route::COPIES) copies, which finds where
//! it leads, lets calls pass that are not ours to judge, and hands the others to the function the row names.

mod array;
mod bound;
mod capture;
mod context;
mod external;
mod graph;
mod green;
mod info;
mod lazy;
mod lazy_batch;
mod memory;
mod module;
mod nvml;
mod pool;
mod resolver;
mod share;
mod share_physical;
mod start;
mod vmm;

use core::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use core::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::abi::*;
use crate::driver::Driver;
use crate::hook::Hook;
use crate::log::{self, Level};
use crate::process::Process;
use crate::process::calm::OnItsWay;
use crate::process::contexts::Place;
use crate::process::thread::{self, Thread};
use crate::resolve::loader;
use crate::resolve::names::Lookup;
use crate::resolve::route;

/// One call that is ours to judge. While it lives, hooked calls of the same thread pass straight through: memory
/// is charged once, by the outermost, also where the driver calls its own exports.
struct Call<'thread> {
    driver: usize,
    process: &'static Process,
    thread: &'thread Thread,
    /// Where on the stack.
    begun: usize,
    on_its_way: Option<OnItsWay<'static>>,
}

impl<'thread> Call<'thread> {
    /// Begins a call that leads to `driver`; `None` where this thread is inside another one: one that began further up the
    /// stack. Others it has left by a jump, as out of a signal's handler.
    #[inline]
    fn begin(driver: usize, thread: &'thread Thread) -> Option<Call<'thread>> {
        let here = MaybeUninit::<u8>::uninit();
        let begun = here.as_ptr() as usize;
        if begun < thread.inside.get() {
            return None;
        }
        thread.inside.set(begun);
        let process = Process::current();
        Some(Call { driver, process, thread, begun, on_its_way: process.contexts.calm.on_its_way() })
    }

    /// Asks the driver in a call that charges nothing itself. Whatever it runs meanwhile in this thread, such as a profiler
    /// that it loads when it is initialised, is judged for itself.
    fn uncharged(&self, ask: impl FnOnce() -> Code) -> Code {
        self.thread.inside.set(0);
        let code = ask();
        self.thread.inside.set(self.begun);
        code
    }

    /// The driver's functions, for questions of our own.
    fn api(&self) -> Option<&'static Driver> {
        Driver::get(self.driver)
    }

    /// Where a request of this thread lands; `None` where it has no context, and then the driver says so best.
    #[inline]
    fn place(&self) -> Option<Place> {
        self.process.contexts.current(self.process, self.driver, self.thread)
    }
}

impl Drop for Call<'_> {
    #[inline]
    fn drop(&mut self) {
        self.thread.inside.set(0);
    }
}

/// The body of one hook, with its caller's arguments.
trait Body {
    /// Asks the driver's function of that name at `next`, or serves the call where it is ours to judge.
    fn run(&self, call: Option<&Call>, next: *const c_void) -> Code;
}

impl<F: Fn(Option<&Call>, *const c_void) -> Code> Body for F {
    fn run(&self, call: Option<&Call>, next: *const c_void) -> Code {
        self(call, next)
    }
}

/// The way of every hook: finds where it leads, and has `body` ask that function, or serve the call where it is ours to
/// judge. Here once for all of them, and not in each.
#[inline(never)]
fn serve(hook: Hook, copy: usize, body: &dyn Body) -> Code {
    let Some(route) = route::of(hook, copy) else { return absent(hook) };
    let Some(driver) = route.driver else { return body.run(None, route.next) };
    thread::with(|thread| {
        let Some(call) = Call::begin(driver, thread) else { return body.run(None, route.next) };
        // A panic, which would be a bug of ours, ends here and not in the program.
        catch_unwind(AssertUnwindSafe(|| body.run(Some(&call), route.next))).unwrap_or_else(|_| broken(hook))
    })
}

#[cold]
fn broken(hook: Hook) -> Code {
    log::say(Level::Error, format_args!("internal error in {}", hook.info().symbol.to_string_lossy()));
    if hook.is_nvml() { crate::abi::nvml::UNKNOWN } else { cuda::UNKNOWN }
}

/// What a hook answers whose function no loaded driver has.
#[cold]
fn absent(hook: Hook) -> Code {
    if hook.is_nvml() { crate::abi::nvml::FUNCTION_NOT_FOUND } else { cuda::NOT_FOUND }
}

/// What is handed out in place of a function that no hook can lead to.
pub fn refusing(hook: Hook) -> *const c_void {
    extern "C" fn refuse_cuda() -> Code {
        cuda::NOT_PERMITTED
    }
    extern "C" fn refuse_nvml() -> Code {
        crate::abi::nvml::NO_PERMISSION
    }
    let refuse: extern "C" fn() -> Code = if hook.is_nvml() { refuse_nvml } else { refuse_cuda };
    refuse as *const c_void
}

/// Any function, as far as its address goes.
type Function = unsafe extern "C" fn();

macro_rules! hooks {
    ($($name:ident = $base:literal @ $since:literal $stream:ident
       fn($($arg:ident: $ty:ty),*) via $family:ident :: $handler:ident : $effect:literal;)*) => {
        /// What the copies of a hook have in common, which is all but their number. It comes last, so that the others
        /// are where the caller has put them and a copy is hardly more than a jump.
        #[allow(non_snake_case, clippy::too_many_arguments)]
        mod bodies {
            use super::*;
            $(
                #[inline(never)]
                pub unsafe extern "C" fn $name($($arg: $ty,)* copy: usize) -> Code {
                    serve(Hook::$name, copy, &|call: Option<&Call>, next: *const c_void| {
                        // SAFETY: the route leads to the function of this name, whose signature the table states.
                        let next: unsafe extern "C" fn($($ty),*) -> Code = unsafe { core::mem::transmute(next) };
                        match call {
                            // SAFETY: the caller's own arguments.
                            None => unsafe { next($($arg),*) },
                            // SAFETY: the caller's own arguments, with what the driver's function asks of them.
                            Some(call) => unsafe { $family::$handler(call, next, $($arg),*) },
                        }
                    })
                }
            )*
        }

        /// The hooks, each named as the function it stands for.
        #[allow(non_snake_case)]
        mod hooks {
            use super::*;
            $(
                pub unsafe extern "C" fn $name<const COPY: usize>($($arg: $ty),*) -> Code {
                    // SAFETY: the caller's own arguments.
                    unsafe { bodies::$name($($arg,)* COPY) }
                }
            )*
        }

        $(trampoline!(stringify!($name), hooks::$name::<0>);)*

        // By their distance from the table: an address would have to be put right by the loader in every process.
        core::arch::global_asm!(
            ".pushsection .rodata.cuquota_copies,\"a\",@progbits",
            ".globl cuquota_copies",
            ".hidden cuquota_copies",
            ".p2align 2",
            "cuquota_copies:",
            $(
                concat!(".long cuquota_entry_", stringify!($name), " - cuquota_copies"),
                ".long {} - cuquota_copies",
                ".long {} - cuquota_copies",
                ".long {} - cuquota_copies",
            )*
            ".popsection",
            $(sym hooks::$name::<1>, sym hooks::$name::<2>, sym hooks::$name::<3>,)*
        );
    };
}

/// Defines `cuquota_entry_NAME`, hidden, as a jump to a function; `build.rs` has the cdylib's link export it as
/// `NAME`. So the public names exist in the library alone, and the command line and the tests, which link the
/// same code, never stand in their own way.
macro_rules! trampoline {
    ($name:expr, $target:path) => {
        core::arch::global_asm!(
            concat!(".pushsection .text.cuquota_entry_", $name, ",\"ax\",@progbits"),
            concat!(".globl cuquota_entry_", $name),
            concat!(".hidden cuquota_entry_", $name),
            concat!(".type cuquota_entry_", $name, ",@function"),
            ".p2align 4",
            concat!("cuquota_entry_", $name, ":"),
            #[cfg(target_arch = "x86_64")]
            "endbr64",
            #[cfg(target_arch = "x86_64")]
            "jmp {target}",
            #[cfg(target_arch = "aarch64")]
            "hint #34",
            #[cfg(target_arch = "aarch64")]
            "b {target}",
            concat!(".size cuquota_entry_", $name, ", . - cuquota_entry_", $name),
            ".popsection",
            target = sym $target,
        );
    };
}

hooked_functions!(hooks);
trampoline!("dlsym", loader::dlsym::<0>);
trampoline!("dlvsym", loader::dlvsym::<0>);
trampoline!("dlopen", loader::dlopen::<0>);
trampoline!("dlmopen", loader::dlmopen::<0>);
trampoline!("start", start::start);

unsafe extern "C" {
    /// The copies of each hook, copy 0 being the exported symbol: how many bytes behind the table each begins.
    #[link_name = "cuquota_copies"]
    static COPIES: [[i32; route::COPIES]; Hook::COUNT];

    #[link_name = "cuquota_entry_dlsym"]
    fn exported_dlsym();
    #[link_name = "cuquota_entry_dlvsym"]
    fn exported_dlvsym();
    #[link_name = "cuquota_entry_dlopen"]
    fn exported_dlopen();
    #[link_name = "cuquota_entry_dlmopen"]
    fn exported_dlmopen();
}

const _: () = assert!(route::COPIES == 4, "as many as the table of copies names");

/// Copy `copy` of `hook`, to hand out.
pub fn pointer(hook: Hook, copy: usize) -> *const c_void {
    // SAFETY: the table above, which is never written.
    let (table, distance) = unsafe { (&raw const COPIES, COPIES[hook as usize][copy]) };
    table.wrapping_byte_offset(distance as isize).cast()
}

/// Copy `copy` of a function of the loader, to hand out.
pub fn look_up_pointer(function: Lookup, copy: usize) -> *const c_void {
    macro_rules! copies {
        ($exported:ident, $name:ident) => {
            [$exported, loader::$name::<1>, loader::$name::<2>, loader::$name::<3>]
        };
    }
    let copies: [Function; loader::COPIES] = match function {
        Lookup::Dlsym => copies!(exported_dlsym, dlsym),
        Lookup::Dlvsym => copies!(exported_dlvsym, dlvsym),
        Lookup::Dlopen => copies!(exported_dlopen, dlopen),
        Lookup::Dlmopen => copies!(exported_dlmopen, dlmopen),
    };
    copies[copy] as *const c_void
}
