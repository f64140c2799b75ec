//! The objects the loader has mapped, read the way the loader reads them.
//!
//! Looking a symbol up here takes only the loader's own read lock, allocates nothing, leaves `dlerror` alone and
//! cannot be interposed, so it is safe where `dlsym` is not: inside the `dlsym` hook, while an allocator holds
//! its init lock. [`visit`] sees the base namespace, where the program and this library live, and [`elsewhere`] those
//! that `dlmopen` made.

mod elf;
mod namespaces;
mod references;

use core::ffi::{CStr, c_int, c_void};
use core::ops::ControlFlow;

use elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, Dynamic, DynamicEntry, is_function};

pub use namespaces::{alongside, elsewhere, holds as is_elsewhere, id_of, one_was_made};
pub use references::Reference;

/// One mapped object. Valid only inside the visit that handed it out: the loader keeps it mapped that long.
pub struct Object<'visit> {
    base: usize,
    name: &'visit CStr,
    headers: &'visit [libc::Elf64_Phdr],
}

/// What an object adds to the loader's search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchPath {
    /// Nothing.
    None,
    /// `DT_RUNPATH`.
    ForItself,
    /// `DT_RPATH`.
    ForDependenciesToo,
}

/// Visits the mapped objects of the base namespace in the order the loader searches them, until `visit` breaks.
pub fn visit<R>(mut visit: impl FnMut(&Object) -> ControlFlow<R>) -> Option<R> {
    let mut result = None;
    visit_each(&mut |object| match visit(object) {
        ControlFlow::Continue(()) => false,
        ControlFlow::Break(found) => {
            result = Some(found);
            true
        }
    });
    result
}

/// As [`visit`], until `visit` answers true.
fn visit_each(mut visit: &mut dyn FnMut(&Object) -> bool) {
    unsafe extern "C" fn step(info: *mut libc::dl_phdr_info, _size: usize, visit: *mut c_void) -> c_int {
        // SAFETY: `visit` is the local below, borrowed by nobody else while the loader iterates.
        let visit = unsafe { &mut *visit.cast::<&mut dyn FnMut(&Object) -> bool>() };
        // SAFETY: the loader hands out a valid record for the time of this call.
        let info = unsafe { &*info };
        let headers = match info.dlpi_phnum {
            0 => &[],
            // SAFETY: `dlpi_phdr` points to `dlpi_phnum` headers of a mapped object.
            count => unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(count)) },
        };
        // SAFETY: the loader's names are NUL-terminated and outlive the object.
        let name = if info.dlpi_name.is_null() { c"" } else { unsafe { CStr::from_ptr(info.dlpi_name) } };
        c_int::from(visit(&Object { base: info.dlpi_addr as usize, name, headers }))
    }
    // SAFETY: `step` takes what it is given as what it is, and `visit` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(step), (&raw mut visit).cast()) };
}

/// What `look` finds in the object that holds `address`, if any object of any namespace does.
pub fn at<R>(address: *const c_void, look: impl Fn(&Object) -> R) -> Option<R> {
    let here = |object: &Object| match object.contains(address) {
        true => ControlFlow::Break(look(object)),
        false => ControlFlow::Continue(()),
    };
    visit(here).or_else(|| elsewhere(here))
}

/// The loader's handle for the object that holds `address`, as `dlopen` would answer it; NULL, which stands for the
/// global scope, where no object does.
pub fn handle_of(address: *const c_void) -> *mut c_void {
    unsafe extern "C" {
        fn dladdr1(
            address: *const c_void,
            info: *mut libc::Dl_info,
            extra: *mut *mut c_void,
            flags: c_int,
        ) -> c_int;
    }
    const RTLD_DL_LINKMAP: c_int = 2;
    // SAFETY: all-zero is a valid `Dl_info`.
    let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
    let mut map = core::ptr::null_mut();
    // SAFETY: the outputs are live locals; any address may be asked about. With this flag the second one gets the map,
    // which in glibc is what `dlopen` answers as a handle.
    match unsafe { dladdr1(address, &mut info, &mut map, RTLD_DL_LINKMAP) } {
        0 => core::ptr::null_mut(),
        _ => map,
    }
}

impl Object<'_> {
    /// Where the object is loaded: its identity while it stays mapped.
    pub fn base(&self) -> usize {
        self.base
    }

    /// The path it was opened by; empty for the program itself.
    pub fn path(&self) -> &CStr {
        self.name
    }

    /// Whether `address` lies in one of the object's mapped segments.
    pub fn contains(&self, address: *const c_void) -> bool {
        self.headers.iter().any(|header| {
            header.p_type == libc::PT_LOAD
                && (address as usize).wrapping_sub(self.base.wrapping_add(header.p_vaddr as usize))
                    < header.p_memsz as usize
        })
    }

    /// Its `DT_SONAME`.
    pub fn soname(&self) -> Option<&CStr> {
        let dynamic = self.dynamic()?;
        Some(dynamic.text(dynamic.soname?))
    }

    /// The address of an exported function, or `None` where the object defines no such name.
    pub fn function(&self, name: &CStr) -> Option<*const c_void> {
        let dynamic = self.dynamic()?;
        dynamic.find(name).map(|symbol| self.base.wrapping_add(symbol.st_value as usize) as *const c_void)
    }

    /// Calls `visit` with the name of every exported function that starts at `address`.
    pub fn names_at<R>(
        &self,
        address: *const c_void,
        mut visit: impl FnMut(&CStr) -> Option<R>,
    ) -> Option<R> {
        let dynamic = self.dynamic()?;
        let value = (address as usize).wrapping_sub(self.base) as u64;
        (1..dynamic.symbol_count()).find_map(|index| {
            let symbol = dynamic.symbol(index);
            (symbol.st_value == value && is_function(symbol))
                .then(|| visit(dynamic.text(symbol.st_name as usize)))?
        })
    }

    /// Whether it was linked against a library of that name.
    pub fn needs(&self, soname: &CStr) -> bool {
        let Some(dynamic) = self.dynamic() else { return false };
        dynamic.values(DT_NEEDED).any(|name| dynamic.text(name as usize) == soname)
    }

    /// Whether what it opens is also looked for in directories that it names itself: for names without a slash, or
    /// for the dependencies of what it opens as well.
    pub fn search_path(&self) -> SearchPath {
        let Some(dynamic) = self.dynamic() else { return SearchPath::None };
        match (dynamic.values(DT_RPATH).next(), dynamic.values(DT_RUNPATH).next()) {
            (Some(_), None) => SearchPath::ForDependenciesToo,
            (_, Some(_)) => SearchPath::ForItself,
            (None, None) => SearchPath::None,
        }
    }

    fn dynamic(&self) -> Option<Dynamic<'_>> {
        let header = self.headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
        let entries = self.base.wrapping_add(header.p_vaddr as usize) as *const DynamicEntry;
        // SAFETY: PT_DYNAMIC of a mapped object is readable and holds `p_memsz` bytes of entries.
        let entries = unsafe {
            core::slice::from_raw_parts(entries, header.p_memsz as usize / size_of::<DynamicEntry>())
        };
        Dynamic::read(self.base, entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_functions_the_loader_finds() {
        let ours = visit(|object| match object.function(c"getpid") {
            Some(found) if object.soname() == Some(c"libc.so.6") => ControlFlow::Break(found),
            _ => ControlFlow::Continue(()),
        });
        assert_eq!(ours, Some(libc::getpid as *const c_void));
        let name = at(ours.unwrap(), |object| {
            object.names_at(ours.unwrap(), |name| name.to_bytes().ends_with(b"getpid").then_some(()))
        });
        assert_eq!(name, Some(Some(())));
    }

    #[test]
    fn finds_nothing_that_is_not_there() {
        let found = visit(|object| match object.function(c"cuquota_no_such_function") {
            Some(found) => ControlFlow::Break(found),
            None => ControlFlow::Continue(()),
        });
        assert_eq!(found, None);
    }
}
