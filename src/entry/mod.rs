//! The hooks as programs meet them: `extern "C"` functions that only translate. Judgement lives behind them.
//!
//! Expands the table: for each row a hook in [`COPIES`](crate::resolve::route::COPIES) copies, which finds where
//! it leads, lets calls pass that are not ours to judge, and hands the others to the function the row names.

mod array;
mod bound;
mod capture;
mod context;
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
mod start;
mod vmm;

use core::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
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
    on_its_way: Option<OnItsWay<'static>>,
}

impl<'thread> Call<'thread> {
    /// Begins a call that leads to `driver`; `None` where this thread is inside another one.
    #[inline]
    fn begin(driver: usize, thread: &'thread Thread) -> Option<Call<'thread>> {
        if thread.inside.replace(true) {
            return None;
        }
        let process = Process::current();
        Some(Call { driver, process, thread, on_its_way: process.contexts.calm.on_its_way() })
    }

    /// Asks the driver in a call that charges nothing itself. Whatever it runs meanwhile in this thread, such as a profiler
    /// that it loads when it is initialised, is judged for itself.
    fn uncharged(&self, ask: impl FnOnce() -> Code) -> Code {
        self.thread.inside.set(false);
        let code = ask();
        self.thread.inside.set(true);
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
        self.thread.inside.set(false);
    }
}

/// Runs a hook's body; a panic, which would be a bug of ours, ends here and not in the program.
#[inline]
fn contained(hook: Hook, body: impl FnOnce() -> Code) -> Code {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        log::say(Level::Error, format_args!("internal error in {}", hook.info().symbol.to_string_lossy()));
        if hook.is_nvml() { crate::abi::nvml::UNKNOWN } else { cuda::UNKNOWN }
    })
}

/// What a hook answers whose function no loaded driver has.
#[cold]
fn absent(hook: Hook) -> Code {
    if hook.is_nvml() { crate::abi::nvml::FUNCTION_NOT_FOUND } else { cuda::NOT_FOUND }
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
                    let Some(route) = route::of(Hook::$name, copy) else { return absent(Hook::$name) };
                    // SAFETY: the route leads to the function of this name, whose signature the table states.
                    let next: unsafe extern "C" fn($($ty),*) -> Code = unsafe { core::mem::transmute(route.next) };
                    // SAFETY: the caller's own arguments.
                    let pass = || unsafe { next($($arg),*) };
                    let Some(driver) = route.driver else { return pass() };
                    thread::with(|thread| {
                        let Some(call) = Call::begin(driver, thread) else { return pass() };
                        // SAFETY: the caller's own arguments, with what the driver's function asks of them.
                        contained(Hook::$name, || unsafe { $family::$handler(&call, next, $($arg),*) })
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

        /// The exported symbols: copy 0 of each hook, under a name that only the cdylib's link makes public.
        #[allow(non_snake_case)]
        mod exported {
            $(unsafe extern "C" {
                #[link_name = concat!("cuquota_entry_", stringify!($name))]
                pub fn $name();
            })*
        }

        $(trampoline!(stringify!($name), hooks::$name::<0>);)*

        static COPIES: [[Function; route::COPIES]; Hook::COUNT] = [$({
            const fn address(hook: unsafe extern "C" fn($($ty),*) -> Code) -> Function {
                // SAFETY: nobody calls a `Function`; only its address is used.
                unsafe { core::mem::transmute(hook) }
            }
            [
                exported::$name,
                address(hooks::$name::<1>),
                address(hooks::$name::<2>),
                address(hooks::$name::<3>),
            ]
        }),*];
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
    #[link_name = "cuquota_entry_dlsym"]
    fn exported_dlsym();
    #[link_name = "cuquota_entry_dlvsym"]
    fn exported_dlvsym();
    #[link_name = "cuquota_entry_dlopen"]
    fn exported_dlopen();
    #[link_name = "cuquota_entry_dlmopen"]
    fn exported_dlmopen();
}

/// Copy `copy` of `hook`, to hand out.
pub fn pointer(hook: Hook, copy: usize) -> *const c_void {
    COPIES[hook as usize][copy] as *const c_void
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
