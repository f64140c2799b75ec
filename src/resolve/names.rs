//! Is a looked-up name one of ours? One probe of a table built at compile time: no lock, no allocation.
//!
//! This stands in the way of every `dlsym` of every process in the container, so a foreign name is turned away
//! by its first bytes.

use core::ffi::{CStr, c_char};

use crate::hook::Hook;

/// A name that the library answers for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// An entry point of the driver.
    Driver(Hook),
    /// A function of the loader, which would otherwise lead around the library.
    Loader(Lookup),
}

/// The loader's own functions by which programs look names up and open libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Lookup {
    Dlsym,
    Dlvsym,
    Dlopen,
    Dlmopen,
}

impl Lookup {
    /// All of them.
    pub const ALL: [Lookup; 4] = [Lookup::Dlsym, Lookup::Dlvsym, Lookup::Dlopen, Lookup::Dlmopen];

    /// The exported symbol.
    pub const fn symbol(self) -> &'static CStr {
        match self {
            Lookup::Dlsym => c"dlsym",
            Lookup::Dlvsym => c"dlvsym",
            Lookup::Dlopen => c"dlopen",
            Lookup::Dlmopen => c"dlmopen",
        }
    }
}

/// Slots of the probe table: a power of two, several times the number of names.
const SLOTS: usize = 1024;
/// Lengths between which all names of ours lie.
const LENGTHS: core::ops::RangeInclusive<usize> = 5..=64;

/// Eight bytes of `name` from `at` on, zeros behind its end.
#[inline(always)]
const fn word(name: &[u8], at: usize) -> u64 {
    let rest = name.split_at(at).1;
    if let Some(bytes) = rest.first_chunk() {
        return u64::from_le_bytes(*bytes);
    }
    let (mut bytes, mut index) = ([0; 8], 0);
    while index < rest.len() {
        bytes[index] = rest[index];
        index += 1;
    }
    u64::from_le_bytes(bytes)
}

/// Where a name is looked for first: its length and both its ends tell most names apart.
#[inline(always)]
const fn slot(name: &[u8]) -> usize {
    let ends = word(name, 0).rotate_left(29) ^ word(name, name.len().saturating_sub(8));
    ((ends ^ name.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize % SLOTS
}

/// Which pairs of a third and a sixth byte the names have, by six bits of each: a word for a third, a bit for a sixth.
static PAIRS: [u64; 64] = {
    let mut pairs = [0; 64];
    let mut index = 0;
    while index < SYMBOLS.len() {
        // The terminator is the sixth byte of the shortest.
        let name = SYMBOLS[index].to_bytes_with_nul();
        pairs[name[2] as usize % 64] |= 1 << (name[5] % 64);
        index += 1;
    }
    pairs
};

/// Slot -> 1 + index into [`Hook::ALL`] followed by [`Lookup::ALL`]; 0 where empty. Linear probing.
static TABLE: [u8; SLOTS] = {
    let mut table = [0; SLOTS];
    let mut index = 0;
    while index < SYMBOLS.len() {
        let length = SYMBOLS[index].count_bytes();
        assert!(*LENGTHS.start() <= length && length <= *LENGTHS.end());
        let mut at = slot(SYMBOLS[index].to_bytes());
        while table[at] != 0 {
            at = (at + 1) % SLOTS;
        }
        table[at] = index as u8 + 1;
        index += 1;
    }
    table
};

macro_rules! symbols {
    ($($name:ident = $base:literal @ $since:literal $stream:ident
       fn($($arg:ident: $ty:ty),*) via $family:ident :: $handler:ident : $effect:literal;)*) => {
        const SYMBOLS: [&CStr; Hook::COUNT + Lookup::ALL.len()] = [
            $(match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(symbol) => symbol,
                Err(_) => panic!(),
            },)*
            Lookup::Dlsym.symbol(),
            Lookup::Dlvsym.symbol(),
            Lookup::Dlopen.symbol(),
            Lookup::Dlmopen.symbol(),
        ];
    };
}
hooked_functions!(symbols);
const _: () = assert!(SYMBOLS.len() < 255, "the table's slots are bytes");

/// What a name handed to a look-up function stands for, if it is one of ours.
///
/// # Safety
/// `name` is NULL or a C string, as the caller of `dlsym` promised the loader.
#[inline]
pub unsafe fn find(name: *const c_char) -> Option<Name> {
    if name.is_null() {
        return None;
    }
    let name = name.cast::<u8>();
    // SAFETY: each byte is read only where the one before it is not the terminator.
    let may_be_ours = unsafe {
        let second = match *name {
            b'c' => b'u',
            b'n' => b'v',
            b'd' => b'l',
            _ => return None,
        };
        *name.add(1) == second
            && *name.add(2) != 0
            && *name.add(3) != 0
            && *name.add(4) != 0
            && PAIRS[usize::from(*name.add(2)) % 64] >> (*name.add(5) % 64) & 1 != 0
    };
    if !may_be_ours {
        return None;
    }
    // SAFETY: as the caller promises.
    unsafe { find_whole(name.cast()) }
}

/// [`find`] for a name that begins like one of ours. Not inlined, so that those that do not save no registers for it.
///
/// # Safety
/// `name` is a C string.
#[inline(never)]
unsafe fn find_whole(name: *const c_char) -> Option<Name> {
    // This may call the C library's `strlen`, or somebody's who stands in front of it and looks his own functions up at
    // that moment: under names that have been turned away above.
    // SAFETY: a C string, as the caller promises.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    if !LENGTHS.contains(&name.len()) {
        return None;
    }
    let mut at = slot(name);
    loop {
        let index = usize::from(TABLE[at].checked_sub(1)?);
        if SYMBOLS[index].to_bytes() == name {
            return Some(match Hook::ALL.get(index) {
                Some(&hook) => Name::Driver(hook),
                None => Name::Loader(Lookup::ALL[index - Hook::COUNT]),
            });
        }
        at = (at + 1) % SLOTS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(name: &CStr) -> Option<Name> {
        // SAFETY: a CStr is a C string.
        unsafe { super::find(name.as_ptr()) }
    }

    #[test]
    fn every_name_of_the_table_is_found_as_itself() {
        for &hook in Hook::ALL {
            assert_eq!(find(hook.info().symbol), Some(Name::Driver(hook)));
        }
        assert_eq!(find(c"dlsym"), Some(Name::Loader(Lookup::Dlsym)));
    }

    #[test]
    fn names_are_never_matched_by_prefix() {
        for name in [
            c"",
            c"c",
            c"cu",
            c"cuMemAlloc_v2x",
            c"cuMemAllo",
            c"CuMemAlloc_v2",
            c"cuLaunchKernel",
            c"cuMemcpyDtoH_v2",
            c"dl",
            c"dlclose",
            c"malloc",
        ] {
            assert_eq!(find(name), None, "{name:?}");
        }
        assert_eq!(find(&std::ffi::CString::new("cu".repeat(100)).unwrap()), None);
    }
}
