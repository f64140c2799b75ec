//! What `cuquota doctor` does inside the container it looks at: reach the driver by each route that programs take, and
//! ask for memory there.

/// Calls the function of that name as this route finds it: `Some(code)`, or `None` where it finds none.
macro_rules! ask {
    ($reach:expr, $find:ident, $name:literal, ($($kind:ty),*), $($argument:expr),*) => {{
        let address = $reach.$find($name);
        (!address.is_null()).then(|| {
            // SAFETY: the driver's function of that name has this type.
            let function: unsafe extern "C" fn($($kind),*) -> c_int = unsafe { std::mem::transmute(address) };
            // SAFETY: every pointer among the arguments points to a local variable of the type that the function reads
            // or fills in before it returns, and every handle came from the driver and has not been given back.
            unsafe { function($($argument),*) }
        })
    }};
}

mod arrays;
mod code;
mod contexts;
mod entries;
mod graphs;
mod memory;
mod reports;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;

use super::object;
use crate::hook::Hook;

pub use entries::{ENTRIES, Entry, Held, Size};

/// A way to the driver's functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Route {
    Linked,
    Handle,
    Default,
    Next,
    LookedUp,
    Path,
    OtherName,
    ProcAddress,
    ProcAddressV2,
    ProcAddressOfItself,
    Deep,
    DeepLookUp,
    Namespace,
    NamespaceLookUp,
}

/// All routes: a word for each that names it to the probe, and what users call it.
pub const ROUTES: &[(Route, &str, &str)] = &[
    (Route::Linked, "linked", "linked against libcuda.so.1"),
    (Route::Handle, "dlsym", "dlopen and dlsym"),
    (Route::Default, "default", "dlsym(RTLD_DEFAULT)"),
    (Route::Next, "next", "dlsym(RTLD_NEXT)"),
    (Route::LookedUp, "looked-up", "dlsym, itself looked up"),
    (Route::Path, "path", "the driver opened by its path"),
    (Route::OtherName, "other-name", "the driver under another file name"),
    (Route::ProcAddress, "procaddress", "cuGetProcAddress of CUDA 11"),
    (Route::ProcAddressV2, "procaddress-v2", "cuGetProcAddress of CUDA 12"),
    (Route::ProcAddressOfItself, "procaddress-of-itself", "cuGetProcAddress, asked for itself"),
    (Route::Deep, "deepbind", "a plug-in opened with RTLD_DEEPBIND"),
    (Route::DeepLookUp, "deepbind-dlsym", "such a plug-in's own dlsym"),
    (Route::Namespace, "dlmopen", "a plug-in in a namespace of its own"),
    (Route::NamespaceLookUp, "dlmopen-dlsym", "such a plug-in's own dlsym"),
];

/// Why a route does not lead anywhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoWay {
    /// This driver has no such function: nobody can go this way.
    Absent(String),
    /// The loader refused; its words.
    Loader(String),
}

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type LookUp = unsafe extern "C" fn(*const c_char) -> *mut c_void;
type ProcAddress = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> c_int;
type ProcAddressV2 = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> c_int;

/// A row of the plug-in's table.
#[repr(C)]
struct Function {
    name: *const c_char,
    address: *mut c_void,
}

enum Source {
    Scope(*mut c_void),
    LookedUp(Dlsym, *mut c_void),
    ProcAddress(ProcAddress),
    ProcAddressV2(ProcAddressV2),
    Table(*const Function),
    Plugin,
}

/// The driver, reached by one route.
pub struct Reach {
    source: Source,
    driver: *mut c_void,
    /// The plug-in's own look-up, on the routes that lead through it.
    plugin: Option<LookUp>,
}

impl Reach {
    /// Goes that way. `driver` is the name or path to open, `plugin` the plug-in's path.
    pub fn open(route: Route, driver: &Path, plugin: &Path) -> Result<Reach, NoWay> {
        let plugin_way = |mode: c_int, namespace: bool, direct: bool| {
            let library = open(plugin, mode, namespace)?;
            let table = symbol(library, c"cuquota_probe_table")?;
            let look_up = symbol(library, c"cuquota_probe_look_up")?;
            // SAFETY: the plug-in defines it with this type.
            let look_up: LookUp = unsafe { std::mem::transmute(look_up) };
            let source = if direct { Source::Table(table.cast()) } else { Source::Plugin };
            Ok(Reach { source, driver: std::ptr::null_mut(), plugin: Some(look_up) })
        };
        match route {
            Route::Linked => return plugin_way(libc::RTLD_NOW, false, true),
            Route::Deep => return plugin_way(libc::RTLD_LAZY | libc::RTLD_DEEPBIND, false, true),
            Route::DeepLookUp => return plugin_way(libc::RTLD_NOW | libc::RTLD_DEEPBIND, false, false),
            Route::Namespace => return plugin_way(libc::RTLD_LAZY, true, true),
            Route::NamespaceLookUp => return plugin_way(libc::RTLD_NOW, true, false),
            _ => {}
        }
        let scope = if matches!(route, Route::Default | Route::Next) { libc::RTLD_GLOBAL } else { 0 };
        let driver = open(driver, libc::RTLD_NOW | scope, false)?;
        let source = match route {
            Route::Default => Source::Scope(libc::RTLD_DEFAULT),
            Route::Next => Source::Scope(libc::RTLD_NEXT),
            Route::LookedUp => {
                let found = symbol(libc::RTLD_DEFAULT, c"dlsym")?;
                // SAFETY: the loader's function of that name has this type.
                Source::LookedUp(unsafe { std::mem::transmute::<*mut c_void, Dlsym>(found) }, driver)
            }
            Route::ProcAddress => {
                let found = own(driver, c"cuGetProcAddress")?;
                // SAFETY: the driver's function of that name has this type.
                Source::ProcAddress(unsafe { std::mem::transmute::<*mut c_void, ProcAddress>(found) })
            }
            Route::ProcAddressV2 | Route::ProcAddressOfItself => {
                let found = own(driver, c"cuGetProcAddress_v2")?;
                // SAFETY: the driver's function of that name has this type.
                let mut function: ProcAddressV2 = unsafe { std::mem::transmute(found) };
                if route == Route::ProcAddressOfItself {
                    let mut again = std::ptr::null_mut();
                    // SAFETY: a name, a live local for the pointer, and no status.
                    unsafe {
                        function(c"cuGetProcAddress".as_ptr(), &mut again, 12000, 0, std::ptr::null_mut())
                    };
                    if again.is_null() {
                        return Err(NoWay::Absent("the driver does not answer for it".to_owned()));
                    }
                    // SAFETY: at this version the name means this function.
                    function = unsafe { std::mem::transmute::<*mut c_void, ProcAddressV2>(again) };
                }
                Source::ProcAddressV2(function)
            }
            _ => Source::Scope(driver),
        };
        Ok(Reach { source, driver, plugin: None })
    }

    /// Where this route leads for one of the driver's functions; NULL where it leads nowhere.
    fn find(&self, name: &CStr) -> *mut c_void {
        let Some(info) = Hook::ALL.iter().map(|hook| hook.info()).find(|info| info.symbol == name) else {
            return self.helper(name);
        };
        // An older driver lacks it: a plug-in's weak reference to it may have met the library's export, and
        // `cuGetProcAddress` may answer with an earlier variant of other arguments.
        if self.helper(name).is_null() {
            return std::ptr::null_mut();
        }
        let Ok(base) = CString::new(info.base) else { return std::ptr::null_mut() };
        let version = info.since as c_int;
        const PER_THREAD_DEFAULT_STREAM: u64 = 2;
        let flags = if info.per_thread { PER_THREAD_DEFAULT_STREAM } else { 0 };
        let mut found = std::ptr::null_mut();
        // SAFETY: each is a look-up function with a name that is a C string, an open handle or a scope, and live locals
        // for what it writes. The table ends with a row without a name, and the loader filled it in; it is read anew
        // each time, since what is bound late is bound there.
        unsafe {
            match self.source {
                Source::Scope(scope) => found = libc::dlsym(scope, name.as_ptr()),
                Source::LookedUp(dlsym, driver) => found = dlsym(driver, name.as_ptr()),
                Source::ProcAddress(function) => {
                    function(base.as_ptr(), &mut found, version, flags);
                }
                Source::ProcAddressV2(function) => {
                    function(base.as_ptr(), &mut found, version, flags, std::ptr::null_mut());
                }
                Source::Table(table) => {
                    let mut row = table;
                    while !(*row).name.is_null() {
                        if CStr::from_ptr((*row).name) == name {
                            found = (&raw const (*row).address).read_volatile();
                        }
                        row = row.add(1);
                    }
                }
                Source::Plugin => found = self.helper(name),
            }
        }
        found
    }

    /// A function that only prepares the ground.
    fn helper(&self, name: &CStr) -> *mut c_void {
        match self.plugin {
            // SAFETY: a C string, as the plug-in's look-up takes.
            Some(look_up) => unsafe { look_up(name.as_ptr()) },
            // SAFETY: an open handle and a C string.
            None => unsafe { libc::dlsym(self.driver, name.as_ptr()) },
        }
    }
}

/// Whether the preload library is mapped in this process.
pub fn library_is_loaded() -> bool {
    object::visit(|object| {
        let name = object.path().to_bytes();
        match name.windows(b"libcuquota".len()).any(|part| part == b"libcuquota") {
            true => std::ops::ControlFlow::Break(()),
            false => std::ops::ControlFlow::Continue(()),
        }
    })
    .is_some()
}

/// The path that the loader finds the driver at.
pub fn driver_path() -> Result<String, NoWay> {
    let driver = open(Path::new("libcuda.so.1"), libc::RTLD_NOW, false)?;
    let address = own(driver, c"cuDriverGetVersion")?;
    let path = object::at(address, |object| object.path().to_string_lossy().into_owned());
    path.ok_or_else(|| NoWay::Loader("the driver is nowhere to be found after it was opened".to_owned()))
}

fn open(path: &Path, mode: c_int, namespace: bool) -> Result<*mut c_void, NoWay> {
    use std::os::unix::ffi::OsStrExt;
    let no_path = |_| NoWay::Loader(format!("{} is no path", path.display()));
    let name = CString::new(path.as_os_str().as_bytes()).map_err(no_path)?;
    // SAFETY: a valid name and flags; loading runs the library's constructors, as in any program that opens it.
    let handle = unsafe {
        match namespace {
            true => libc::dlmopen(libc::LM_ID_NEWLM, name.as_ptr(), mode),
            false => libc::dlopen(name.as_ptr(), mode),
        }
    };
    if handle.is_null() { Err(NoWay::Loader(loader_error())) } else { Ok(handle) }
}

/// A symbol that has to be there.
fn symbol(handle: *mut c_void, name: &CStr) -> Result<*mut c_void, NoWay> {
    // SAFETY: an open handle or a scope, and a C string.
    let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
    if found.is_null() { Err(NoWay::Loader(loader_error())) } else { Ok(found) }
}

/// A function of the driver that older ones lack.
fn own(driver: *mut c_void, name: &CStr) -> Result<*mut c_void, NoWay> {
    symbol(driver, name).map_err(|_| NoWay::Absent(format!("this driver has no {}", name.to_string_lossy())))
}

fn loader_error() -> String {
    // SAFETY: dlerror answers a null pointer or a string that is valid until the next call, and is copied here.
    unsafe {
        let words = libc::dlerror();
        if words.is_null() {
            "the loader gave no reason".to_owned()
        } else {
            CStr::from_ptr(words).to_string_lossy().into_owned()
        }
    }
}
