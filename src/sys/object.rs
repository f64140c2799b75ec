//! The objects the loader has mapped, read the way the loader reads them.
//!
//! Looking a symbol up here takes only the loader's own read lock, allocates nothing, leaves `dlerror` alone and
//! cannot be interposed, so it is safe where `dlsym` is not: inside the `dlsym` hook, while an allocator holds
//! its init lock. Only the calling namespace's objects are seen (`dlmopen` namespaces are not).

use core::ffi::{CStr, c_int, c_void};
use core::ops::ControlFlow;

/// One mapped object. Valid only inside the visit that handed it out: the loader keeps it mapped that long.
pub struct Object<'visit> {
    base: usize,
    name: &'visit CStr,
    headers: &'visit [libc::Elf64_Phdr],
}

/// Visits the mapped objects in the order the loader searches them, until `visit` breaks.
pub fn visit<R>(visit: impl FnMut(&Object) -> ControlFlow<R>) -> Option<R> {
    struct State<F, R> {
        visit: F,
        result: Option<R>,
    }
    unsafe extern "C" fn step<F: FnMut(&Object) -> ControlFlow<R>, R>(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        state: *mut c_void,
    ) -> c_int {
        // SAFETY: `state` is the `State` below, borrowed by nobody else while the loader iterates.
        let state = unsafe { &mut *state.cast::<State<F, R>>() };
        // SAFETY: the loader hands out a valid record for the time of this call.
        let info = unsafe { &*info };
        let headers = match info.dlpi_phnum {
            0 => &[],
            // SAFETY: `dlpi_phdr` points to `dlpi_phnum` headers of a mapped object.
            count => unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(count)) },
        };
        // SAFETY: the loader's names are NUL-terminated and outlive the object.
        let name = if info.dlpi_name.is_null() { c"" } else { unsafe { CStr::from_ptr(info.dlpi_name) } };
        match (state.visit)(&Object { base: info.dlpi_addr as usize, name, headers }) {
            ControlFlow::Continue(()) => 0,
            ControlFlow::Break(result) => {
                state.result = Some(result);
                1
            }
        }
    }
    fn callback<F: FnMut(&Object) -> ControlFlow<R>, R>(
        _: &State<F, R>,
    ) -> unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int {
        step::<F, R>
    }
    let mut state = State { visit, result: None };
    let callback = callback(&state);
    // SAFETY: `callback` was made for exactly the type of `state`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(callback), (&raw mut state).cast()) };
    state.result
}

/// What `look` finds in the object that holds `address`, if any object does.
pub fn at<R>(address: *const c_void, look: impl Fn(&Object) -> R) -> Option<R> {
    visit(|object| match object.contains(address) {
        true => ControlFlow::Break(look(object)),
        false => ControlFlow::Continue(()),
    })
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

    /// Sets every weak reference of the object whose name is `wanted` to NULL: the words in its data that hold the
    /// address of such a function.
    pub fn weak_references(&self, wanted: impl Fn(&CStr) -> bool) {
        let Some(dynamic) = self.dynamic() else { return };
        for entry in dynamic.relocations() {
            let (index, kind) = ((entry.r_info >> 32) as u32, entry.r_info as u32);
            // Most relocations are relative and name no symbol.
            if index == 0 || !holds_an_address(kind) {
                continue;
            }
            let symbol = dynamic.symbol(index);
            if is_weak_reference(symbol) && wanted(dynamic.text(symbol.st_name as usize)) {
                clear_word(self.base.wrapping_add(entry.r_offset as usize) as *mut usize);
            }
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

/// `Elf64_Dyn`.
#[repr(C)]
struct DynamicEntry {
    tag: i64,
    value: u64,
}

const DT_NULL: i64 = 0;
const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_PLTRELSZ: i64 = 2;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_SONAME: i64 = 14;
const DT_JMPREL: i64 = 23;
const DT_GNU_HASH: i64 = 0x6fff_fef5;

/// The parts of a dynamic section that a lookup needs, as addresses in the mapped object.
struct Dynamic<'object> {
    strings: *const core::ffi::c_char,
    symbols: *const libc::Elf64_Sym,
    gnu_hash: Option<*const u32>,
    sysv_hash: Option<*const u32>,
    soname: Option<usize>,
    /// The tables of relocations, as address and bytes.
    relocations: [(Option<*const libc::Elf64_Rela>, usize); 2],
    _object: core::marker::PhantomData<&'object ()>,
}

fn is_function(symbol: &libc::Elf64_Sym) -> bool {
    const STT_NOTYPE: u8 = 0;
    const STT_FUNC: u8 = 2;
    symbol.st_shndx != 0 && symbol.st_value != 0 && matches!(symbol.st_info & 0xf, STT_FUNC | STT_NOTYPE)
}

fn is_weak_reference(symbol: &libc::Elf64_Sym) -> bool {
    const STB_WEAK: u8 = 2;
    symbol.st_shndx == 0 && symbol.st_info >> 4 == STB_WEAK
}

/// Whether a relocation of this kind stores the plain address of its symbol.
fn holds_an_address(kind: u32) -> bool {
    // R_X86_64_64, _GLOB_DAT, _JUMP_SLOT; R_AARCH64_ABS64, _GLOB_DAT, _JUMP_SLOT.
    #[cfg(target_arch = "x86_64")]
    return matches!(kind, 1 | 6 | 7);
    #[cfg(target_arch = "aarch64")]
    return matches!(kind, 257 | 1025 | 1026);
}

/// Writes NULL to a word of an object's data, which the loader may have made read-only after relocation.
fn clear_word(word: *mut usize) {
    // SAFETY: asks for a constant.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let start = (word as usize & !(page - 1)) as *mut c_void;
    // SAFETY: the page holds data of a loaded object; it is writable for a moment, while there is one thread, and then
    // read-only again, as relocated data is, unless that cannot be: then it stays writable, as it was without RELRO.
    unsafe {
        let read_only = is_relro(word);
        if read_only && libc::mprotect(start, page, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            return;
        }
        word.write_volatile(0);
        if read_only {
            libc::mprotect(start, page, libc::PROT_READ);
        }
    }
}

/// Whether `word` lies in what the loader makes read-only after relocation.
fn is_relro(word: *mut usize) -> bool {
    let relro = |object: &Object| {
        object.headers.iter().any(|header| {
            let from = object.base.wrapping_add(header.p_vaddr as usize);
            header.p_type == libc::PT_GNU_RELRO
                && (word as usize).wrapping_sub(from) < header.p_memsz as usize
        })
    };
    at(word.cast(), relro) == Some(true)
}

impl<'object> Dynamic<'object> {
    fn read(base: usize, entries: &[DynamicEntry]) -> Option<Self> {
        // glibc relocates these addresses in place, except where the section is read-only.
        let address = |value: u64| match value as usize {
            value if value < base => base + value,
            value => value,
        };
        let (mut strings, mut symbols, mut gnu_hash, mut sysv_hash, mut soname) =
            (None, None, None, None, None);
        let mut relocations = [(None, 0); 2];
        for entry in entries.iter().take_while(|entry| entry.tag != DT_NULL) {
            match entry.tag {
                DT_STRTAB => strings = Some(address(entry.value) as *const core::ffi::c_char),
                DT_SYMTAB => symbols = Some(address(entry.value) as *const libc::Elf64_Sym),
                DT_GNU_HASH => gnu_hash = Some(address(entry.value) as *const u32),
                DT_HASH => sysv_hash = Some(address(entry.value) as *const u32),
                DT_RELA => relocations[0].0 = Some(address(entry.value) as *const libc::Elf64_Rela),
                DT_RELASZ => relocations[0].1 = entry.value as usize,
                DT_JMPREL => relocations[1].0 = Some(address(entry.value) as *const libc::Elf64_Rela),
                DT_PLTRELSZ => relocations[1].1 = entry.value as usize,
                DT_SONAME => soname = Some(entry.value as usize),
                _ => {}
            }
        }
        let _object = core::marker::PhantomData;
        Some(Dynamic {
            strings: strings?,
            symbols: symbols?,
            gnu_hash,
            sysv_hash,
            soname,
            relocations,
            _object,
        })
    }

    fn text(&self, offset: usize) -> &'object CStr {
        // SAFETY: offsets come from the object's own tables, whose strings end inside its string table.
        unsafe { CStr::from_ptr(self.strings.add(offset)) }
    }

    fn symbol(&self, index: u32) -> &libc::Elf64_Sym {
        // SAFETY: callers pass an index that the object's hash table names, so it lies in its symbol table.
        unsafe { &*self.symbols.add(index as usize) }
    }

    fn relocations(&self) -> impl Iterator<Item = &libc::Elf64_Rela> {
        self.relocations.iter().flat_map(|&(table, bytes)| {
            let entries: &[libc::Elf64_Rela] = match table {
                // SAFETY: the dynamic section says that so many bytes of relocations lie there.
                Some(table) => unsafe {
                    core::slice::from_raw_parts(table, bytes / size_of::<libc::Elf64_Rela>())
                },
                None => &[],
            };
            entries.iter()
        })
    }

    fn find(&self, name: &CStr) -> Option<&libc::Elf64_Sym> {
        let wanted = |index: u32| {
            let symbol = self.symbol(index);
            (is_function(symbol) && self.text(symbol.st_name as usize) == name).then_some(symbol)
        };
        match (self.gnu(), self.sysv_hash) {
            (Some(table), _) => table.chain(gnu_hash(name)).find_map(wanted),
            (None, Some(_)) => (1..self.symbol_count()).find_map(wanted),
            (None, None) => None,
        }
    }

    fn symbol_count(&self) -> u32 {
        match (self.sysv_hash, self.gnu()) {
            // SAFETY: DT_HASH starts with the words nbucket and nchain; nchain counts the symbols.
            (Some(table), _) => unsafe { *table.add(1) },
            (None, Some(table)) => table.symbol_count(),
            (None, None) => 0,
        }
    }

    fn gnu(&self) -> Option<GnuHash> {
        let table = self.gnu_hash?;
        // SAFETY: DT_GNU_HASH starts with these four words.
        let [buckets, first, bloom, _shift] = unsafe { *table.cast::<[u32; 4]>() };
        // SAFETY: the bloom words (64 bits each), the buckets and the chains follow one another.
        unsafe {
            let bucket_table = table.add(4).add(bloom as usize * 2);
            Some(GnuHash { buckets, first, bucket_table, chains: bucket_table.add(buckets as usize) })
        }
    }
}

/// `DT_GNU_HASH`, without its bloom filter: lookups here are few.
struct GnuHash {
    buckets: u32,
    first: u32,
    bucket_table: *const u32,
    chains: *const u32,
}

impl GnuHash {
    fn bucket(&self, index: u32) -> u32 {
        // SAFETY: callers keep `index` below the table's own bucket count.
        unsafe { *self.bucket_table.add(index as usize) }
    }

    fn chain_word(&self, symbol: u32) -> u32 {
        // SAFETY: there is one word for every symbol from `first` on, and callers pass no smaller one.
        unsafe { *self.chains.add((symbol - self.first) as usize) }
    }

    /// The symbols whose hash is `hash`, but for its lowest bit.
    fn chain(&self, hash: u32) -> impl Iterator<Item = u32> {
        let start = if self.buckets == 0 { 0 } else { self.bucket(hash % self.buckets) };
        let mut next = (start != 0 && start >= self.first).then_some(start);
        core::iter::from_fn(move || {
            let symbol = next?;
            let word = self.chain_word(symbol);
            next = (word & 1 == 0).then_some(symbol + 1);
            Some((symbol, word))
        })
        .filter(move |(_, word)| word | 1 == hash | 1)
        .map(|(symbol, _)| symbol)
    }

    fn symbol_count(&self) -> u32 {
        let last = (0..self.buckets).map(|index| self.bucket(index)).max().unwrap_or(0);
        if last < self.first {
            return self.first;
        }
        let mut symbol = last;
        while self.chain_word(symbol) & 1 == 0 {
            symbol += 1;
        }
        symbol + 1
    }
}

fn gnu_hash(name: &CStr) -> u32 {
    name.to_bytes().iter().fold(5381, |hash: u32, &byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)))
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
