//! The dynamic section of a mapped object: names, symbols, relocations.

use core::ffi::CStr;

/// `Elf64_Dyn`.
#[repr(C)]
pub(super) struct DynamicEntry {
    pub tag: i64,
    pub value: u64,
}

const DT_NULL: i64 = 0;
/// A library it needs, by name.
pub(super) const DT_NEEDED: i64 = 1;
/// Where its dependencies and what it opens are looked for; the older form holds for what those open, too.
pub(super) const DT_RPATH: i64 = 15;
pub(super) const DT_RUNPATH: i64 = 29;
/// In a program: the loader's record for debuggers.
pub(super) const DT_DEBUG: i64 = 21;
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
pub(super) struct Dynamic<'object> {
    entries: &'object [DynamicEntry],
    strings: *const core::ffi::c_char,
    symbols: *const libc::Elf64_Sym,
    gnu_hash: Option<*const u32>,
    sysv_hash: Option<*const u32>,
    pub soname: Option<usize>,
    /// The tables of relocations, as address and bytes.
    relocations: [(Option<*const libc::Elf64_Rela>, usize); 2],
}

pub(super) fn is_function(symbol: &libc::Elf64_Sym) -> bool {
    const STT_NOTYPE: u8 = 0;
    const STT_FUNC: u8 = 2;
    symbol.st_shndx != 0 && symbol.st_value != 0 && matches!(symbol.st_info & 0xf, STT_FUNC | STT_NOTYPE)
}

impl<'object> Dynamic<'object> {
    pub fn read(base: usize, entries: &'object [DynamicEntry]) -> Option<Self> {
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
        Some(Dynamic {
            entries,
            strings: strings?,
            symbols: symbols?,
            gnu_hash,
            sysv_hash,
            soname,
            relocations,
        })
    }

    /// What the entries with this tag say.
    pub fn values(&self, tag: i64) -> impl Iterator<Item = u64> {
        let entries = self.entries.iter().take_while(|entry| entry.tag != DT_NULL);
        entries.filter(move |entry| entry.tag == tag).map(|entry| entry.value)
    }

    pub fn text(&self, offset: usize) -> &'object CStr {
        // SAFETY: offsets come from the object's own tables, whose strings end inside its string table.
        unsafe { CStr::from_ptr(self.strings.add(offset)) }
    }

    pub fn symbol(&self, index: u32) -> &libc::Elf64_Sym {
        // SAFETY: callers pass an index that the object's hash table names, so it lies in its symbol table.
        unsafe { &*self.symbols.add(index as usize) }
    }

    pub fn relocations(&self) -> impl Iterator<Item = &libc::Elf64_Rela> {
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

    pub fn find(&self, name: &CStr) -> Option<&libc::Elf64_Sym> {
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

    pub fn symbol_count(&self) -> u32 {
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
