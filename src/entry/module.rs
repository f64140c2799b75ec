//! Modules and libraries: code and its variables lie in device memory. How much they take nobody says, so the card is
//! looked at before and after; what is found not to fit is unloaded again.

use super::*;
use crate::gate;
use crate::process::code::Owner;
use crate::process::weighing::{self, Spot, Weighing};
use crate::sys::image;

/// How code that does not fit is unloaded again.
type Undo = unsafe fn(&Driver, *mut c_void) -> Result<(), Code>;

/// What code is loaded from.
pub(super) trait Origin {
    /// The most that it takes on a card, as far as that can be told; see [`image`].
    ///
    /// # Safety
    /// The driver has just loaded it, in the call that asks.
    unsafe fn weight(from: *const Self) -> u64;
}

/// A file, by its path.
impl Origin for c_char {
    unsafe fn weight(from: *const c_char) -> u64 {
        // SAFETY: the driver has taken it for a path, which is NUL terminated; it outlives the call.
        image::weight_of_file(unsafe { core::ffi::CStr::from_ptr(from) })
    }
}

/// An image in memory.
impl Origin for c_void {
    unsafe fn weight(from: *const c_void) -> u64 {
        // SAFETY: the program lets the driver read it until this call returns.
        unsafe { image::weight_in_memory(from) }
    }
}

/// The way of a call that hands out in `out` a module or library of a `weight` (see [`Origin`]; asked once it is loaded),
/// `everywhere` if it may load that to all cards.
///
/// # Safety
/// `out` is NULL or valid for a handle, which `ask` writes where it answers success and `undo` takes.
#[cold]
unsafe fn loaded(
    call: &Call,
    out: *mut *mut c_void,
    weight: &dyn Fn() -> u64,
    everywhere: bool,
    ask: &mut dyn FnMut() -> Code,
    undo: Undo,
) -> Code {
    let process = call.process;
    if !process.budget.permits() {
        return cuda::NOT_PERMITTED;
    }
    let mut spots = call.spots();
    if !everywhere {
        spots.retain(|spot| spot.context.is_none());
    }
    if out.is_null() {
        return ask();
    }
    let within = spots.first().map(|spot| spot.place.context).filter(|_| !everywhere);
    let weighing = call.weigh(spots);
    // SAFETY: valid for a handle, says the caller; what the program has there need not have a value.
    let untouched = unsafe { out.cast::<core::mem::MaybeUninit<usize>>().read() };
    let code = ask();
    if code != SUCCESS {
        return code;
    }
    // SAFETY: the driver has just written it.
    let handle = unsafe { *out };
    // What the handle stood for before is gone.
    weighing::forget(process, handle as Owner);
    process.code.bound(handle as Owner, within, weight());
    let Some(weighing) = weighing else { return code };
    let grown = weighing.settle(handle as Owner);
    let verdict = grown.map_or(Ok(()), |(_, place)| gate::judge_code(process, place));
    let Err(refusal) = verdict else { return code };
    // SAFETY: the driver has just handed it out, and the program has not seen it.
    let undone =
        || call.api().map_or(cuda::NOT_FOUND, |api| unsafe { undo(api, handle) }.err().unwrap_or(SUCCESS));
    if unloaded(process, Some(weighing), handle as Owner, undone) != SUCCESS {
        return code;
    }
    // SAFETY: as above.
    unsafe { out.cast::<core::mem::MaybeUninit<usize>>().write(untouched) };
    refusal
}

/// The way of what unloads `owner`.
fn unloaded(process: &Process, weighing: Option<Weighing>, owner: Owner, ask: impl FnOnce() -> Code) -> Code {
    let name = process.code.leaving(owner);
    let code = ask();
    match (code, weighing) {
        (SUCCESS, Some(weighing)) => weighing.unloaded(name),
        (SUCCESS, None) => weighing::forget(process, name),
        _ => process.code.stays(name, owner),
    }
    code
}

/// The way of a call that may load code of `owner` to the current context's card and cannot be undone: what it takes is
/// charged whatever the limit.
#[cold]
fn used(call: &Call, owner: &dyn Fn() -> Owner, ask: &mut dyn FnMut() -> Code) -> Code {
    let place = call.place().map(|place| Spot { place, context: None });
    let weighing = call.weigh(place.into_iter().collect());
    let code = ask();
    if let Some(weighing) = weighing {
        // What a failure left behind counts, too.
        let _ = weighing.settle(owner());
    }
    code
}

impl Call<'_> {
    /// A context on each card of the process, this thread's own first.
    fn spots(&self) -> Vec<Spot> {
        self.process.contexts.on_all_cards(self.driver, self.place())
    }

    /// Looks at the cards there, before the driver is asked.
    fn weigh(&self, spots: Vec<Spot>) -> Option<Weighing<'static>> {
        if spots.is_empty() {
            return None;
        }
        Weighing::begin(self.process, self.driver, spots, self.on_its_way.is_some())
    }
}

type Load<T> = unsafe extern "C" fn(*mut CUmodule, *const T) -> Code;

/// `cuModuleLoad`, from a file, and `cuModuleLoadData` and `cuModuleLoadFatBinary`, from an image.
pub(super) unsafe fn load<T: Origin>(
    call: &Call,
    next: Load<T>,
    module: *mut CUmodule,
    from: *const T,
) -> Code {
    // SAFETY: asked when the driver has loaded it.
    let weight = || unsafe { T::weight(from) };
    // SAFETY: the caller's own arguments.
    unsafe { loaded(call, module, &weight, false, &mut || next(module, from), Driver::module_unload) }
}

type LoadEx =
    unsafe extern "C" fn(*mut CUmodule, *const c_void, c_uint, *mut c_int, *mut *mut c_void) -> Code;

/// `cuModuleLoadDataEx`.
pub(super) unsafe fn load_ex(
    call: &Call,
    next: LoadEx,
    module: *mut CUmodule,
    image: *const c_void,
    count: c_uint,
    options: *mut c_int,
    values: *mut *mut c_void,
) -> Code {
    let mut ask = || {
        // SAFETY: the caller's own arguments.
        unsafe { next(module, image, count, options, values) }
    };
    // SAFETY: asked when the driver has loaded it.
    let weight = || unsafe { c_void::weight(image) };
    // SAFETY: the caller's own arguments.
    unsafe { loaded(call, module, &weight, false, &mut ask, Driver::module_unload) }
}

type LoadLibrary<T> = unsafe extern "C" fn(
    *mut CUlibrary,
    *const T,
    *mut c_int,
    *mut *mut c_void,
    c_uint,
    *mut c_int,
    *mut *mut c_void,
    c_uint,
) -> Code;

/// `cuLibraryLoadData` and `cuLibraryLoadFromFile`, which load nothing to a card yet where code is loaded lazily.
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn load_library<T: Origin>(
    call: &Call,
    next: LoadLibrary<T>,
    library: *mut CUlibrary,
    code: *const T,
    jit_options: *mut c_int,
    jit_values: *mut *mut c_void,
    jit_count: c_uint,
    options: *mut c_int,
    values: *mut *mut c_void,
    count: c_uint,
) -> Code {
    let mut ask = || {
        // SAFETY: the caller's own arguments.
        unsafe { next(library, code, jit_options, jit_values, jit_count, options, values, count) }
    };
    // SAFETY: asked when the driver has loaded it.
    let weight = || unsafe { T::weight(code) };
    // SAFETY: the caller's own arguments.
    unsafe { loaded(call, library, &weight, true, &mut ask, Driver::library_unload) }
}

type GetModule = unsafe extern "C" fn(*mut CUmodule, CUlibrary) -> Code;

/// `cuLibraryGetModule`.
pub(super) unsafe fn get_module(
    call: &Call,
    next: GetModule,
    module: *mut CUmodule,
    library: CUlibrary,
) -> Code {
    // SAFETY: the caller's own arguments.
    let code = used(call, &|| library as Owner, &mut || unsafe { next(module, library) });
    if code == SUCCESS && !module.is_null() {
        // SAFETY: the driver has just written it.
        call.process.code.belongs(unsafe { *module } as Owner, library as Owner);
    }
    code
}

type GetFunction = unsafe extern "C" fn(*mut CUfunction, CUmodule, *const c_char) -> Code;

/// `cuModuleGetFunction`.
pub(super) unsafe fn get_function(
    call: &Call,
    next: GetFunction,
    function: *mut CUfunction,
    module: CUmodule,
    name: *const c_char,
) -> Code {
    let owner = || call.process.code.owner_of(module as Owner);
    // SAFETY: the caller's own arguments.
    used(call, &owner, &mut || unsafe { next(function, module, name) })
}

type KernelFunction = unsafe extern "C" fn(*mut CUfunction, CUkernel) -> Code;

/// `cuKernelGetFunction`.
pub(super) unsafe fn kernel_function(
    call: &Call,
    next: KernelFunction,
    function: *mut CUfunction,
    kernel: CUkernel,
) -> Code {
    let owner = || {
        let mut library = core::ptr::null_mut();
        // SAFETY: the output is a live local; a handle that is no kernel's is refused, as it was before this.
        let asked = call.api().map(|api| unsafe { api.kernel_library(&mut library, kernel) });
        if asked == Some(Ok(())) { library as Owner } else { 0 }
    };
    // SAFETY: the caller's own arguments.
    used(call, &owner, &mut || unsafe { next(function, kernel) })
}

type LoadFunction = unsafe extern "C" fn(CUfunction) -> Code;

/// `cuFuncLoad`.
pub(super) unsafe fn load_function(call: &Call, next: LoadFunction, function: CUfunction) -> Code {
    let owner = || {
        let mut module = core::ptr::null_mut();
        // SAFETY: the output is a live local; a handle that is no function's is refused, as it was before this.
        let asked = call.api().map(|api| unsafe { api.function_module(&mut module, function) });
        if asked == Some(Ok(())) { call.process.code.owner_of(module as Owner) } else { 0 }
    };
    // SAFETY: the caller's own argument.
    used(call, &owner, &mut || unsafe { next(function) })
}

type GetGlobal = unsafe extern "C" fn(*mut CUdeviceptr, *mut usize, CUlibrary, *const c_char) -> Code;

/// `cuLibraryGetGlobal`, which has the variables of a library loaded.
pub(super) unsafe fn get_global(
    call: &Call,
    next: GetGlobal,
    address: *mut CUdeviceptr,
    bytes: *mut usize,
    library: CUlibrary,
    name: *const c_char,
) -> Code {
    // SAFETY: the caller's own arguments.
    used(call, &|| library as Owner, &mut || unsafe { next(address, bytes, library, name) })
}

type Unload = unsafe extern "C" fn(*mut c_void) -> Code;

/// `cuModuleUnload` and `cuLibraryUnload`.
pub(super) unsafe fn unload(call: &Call, next: Unload, owner: *mut c_void) -> Code {
    let process = call.process;
    let mut spots = call.spots();
    spots.retain(|spot| process.code.on(spot.place.gpu) > 0);
    let weighing = call.weigh(spots);
    // SAFETY: the caller's own argument.
    unloaded(process, weighing, owner as Owner, || unsafe { next(owner) })
}
