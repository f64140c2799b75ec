//! The objects of other namespaces, which `dlmopen` made.
//!
//! `dl_iterate_phdr` shows each caller its own namespace. The others are found as debuggers find them: from glibc 2.35
//! on the loader links the records of all namespaces together. Before that they cannot be seen.

use core::ffi::{CStr, c_char, c_int, c_long, c_void};
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicBool, Ordering};

use super::elf::{DT_DEBUG, DynamicEntry};
use super::{Object, visit};

/// Set once this process has made a namespace; most never do.
static THERE: AtomicBool = AtomicBool::new(false);

/// Whether there may be other namespaces.
#[inline]
pub fn are_there() -> bool {
    THERE.load(Ordering::Relaxed)
}

/// Takes note that a namespace has been made.
pub fn one_was_made() {
    THERE.store(true, Ordering::Relaxed);
}

/// `struct r_debug_extended`: what the loader keeps for debuggers, one for each namespace.
#[repr(C)]
struct Record {
    version: c_int,
    map: *const Map,
    breakpoint: usize,
    state: c_int,
    loader: usize,
    next: *const Record,
}

/// The public part of `struct link_map`.
#[repr(C)]
struct Map {
    base: usize,
    name: *const c_char,
    dynamic: *const DynamicEntry,
    next: *const Map,
    previous: *const Map,
}

/// The version of the records from which `next` is there and set.
const EXTENDED: c_int = 2;

/// Visits the objects of all namespaces but the base one, until `look` breaks.
pub fn elsewhere<R>(mut look: impl FnMut(&Object) -> ControlFlow<R>) -> Option<R> {
    each_namespace(|maps| maps.into_iter().find_map(|map| map.show(&mut look)))
}

/// Visits the objects of the namespace that holds `address`; the base namespace where none does.
pub fn alongside<R>(address: *const c_void, mut look: impl FnMut(&Object) -> ControlFlow<R>) -> Option<R> {
    if !holds(address) {
        return visit(look);
    }
    each_namespace(|maps| {
        let here = maps.into_iter().any(|map| map.show(&mut holding(address)).is_some());
        here.then(|| maps.into_iter().find_map(|map| map.show(&mut look)))
    })?
}

/// Whether `address` lies in an object of another namespace than the base one.
pub fn holds(address: *const c_void) -> bool {
    are_there() && elsewhere(holding(address)).is_some()
}

fn holding(address: *const c_void) -> impl FnMut(&Object) -> ControlFlow<()> {
    move |object| match object.contains(address) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    }
}

/// The id of the namespace of an open library, as `dlmopen` takes it.
///
/// # Safety
/// `handle` is one that `dlopen` answered, or would.
pub unsafe fn id_of(handle: *mut c_void) -> Option<c_long> {
    let mut id: c_long = 0;
    // SAFETY: a handle, as promised, and a live local of the type that this request fills.
    match unsafe { libc::dlinfo(handle, libc::RTLD_DI_LMID, (&raw mut id).cast()) } {
        0 => Some(id),
        _ => None,
    }
}

/// A namespace's list of objects.
#[derive(Clone, Copy)]
struct Maps(*const Map);

impl IntoIterator for Maps {
    type Item = &'static Map;
    type IntoIter = MapsIter;
    fn into_iter(self) -> MapsIter {
        MapsIter(self.0)
    }
}

struct MapsIter(*const Map);

impl Iterator for MapsIter {
    type Item = &'static Map;
    fn next(&mut self) -> Option<&'static Map> {
        // SAFETY: the list is the loader's, whose lock is held while it is walked.
        let map = unsafe { self.0.as_ref() }?;
        self.0 = map.next;
        Some(map)
    }
}

fn each_namespace<R>(mut look: impl FnMut(Maps) -> Option<R>) -> Option<R> {
    if !are_there() {
        return None;
    }
    // The visit is for the loader's lock, under which no list of objects changes, and for the program's own record.
    visit(|program| {
        let found = records(program).find_map(|record| look(Maps(record.map)));
        ControlFlow::Break(found)
    })?
}

/// The records of all namespaces but the base one. `program` is the first object that a visit shows.
fn records(program: &Object) -> impl Iterator<Item = &'static Record> {
    let base = program.dynamic().and_then(|dynamic| dynamic.values(DT_DEBUG).next()).unwrap_or(0);
    // SAFETY: the loader put the address of its record there, or nothing.
    let base = unsafe { (base as *const Record).as_ref() };
    let mut next = match base {
        Some(base) if base.version >= EXTENDED => base.next,
        _ => core::ptr::null(),
    };
    core::iter::from_fn(move || {
        // SAFETY: the loader's records are never freed.
        let record = unsafe { next.as_ref() }?;
        next = record.next;
        Some(record)
    })
}

impl Map {
    /// Shows the object, if its headers can be read.
    fn show<R>(&self, look: &mut impl FnMut(&Object) -> ControlFlow<R>) -> Option<R> {
        let headers = self.headers()?;
        // SAFETY: the loader's names are NUL-terminated and outlive the object.
        let name = if self.name.is_null() { c"" } else { unsafe { CStr::from_ptr(self.name) } };
        match look(&Object { base: self.base, name, headers }) {
            ControlFlow::Break(found) => Some(found),
            ControlFlow::Continue(()) => None,
        }
    }

    /// Its program headers, which lie behind the ELF header at its first byte.
    fn headers(&self) -> Option<&'static [libc::Elf64_Phdr]> {
        let mut resident = 0;
        // SAFETY: asks the kernel whether that page is mapped at all; the answer fits a byte.
        if self.base == 0 || unsafe { libc::mincore(self.base as *mut c_void, 1, &mut resident) } != 0 {
            return None;
        }
        // SAFETY: the page is mapped, and a library's first page is readable.
        let header = unsafe { &*(self.base as *const libc::Elf64_Ehdr) };
        const MAGIC: [u8; 4] = [0x7f, b'E', b'L', b'F'];
        let count = usize::from(header.e_phnum);
        let end = header.e_phoff as usize + count * size_of::<libc::Elf64_Phdr>();
        if header.e_ident[..4] != MAGIC || end > 4096 {
            return None;
        }
        // SAFETY: they lie in the first page, as just checked.
        Some(unsafe { core::slice::from_raw_parts((self.base + header.e_phoff as usize) as *const _, count) })
    }
}
