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
/// Longest name worth hashing: longer than any name of ours.
const LONGEST: usize = 64;

const fn mix(hash: u32, byte: u8) -> u32 {
    hash.rotate_left(5) ^ byte as u32
}

const fn slot(hash: u32) -> usize {
    (hash.wrapping_mul(0x9e37_79b1) >> 22) as usize % SLOTS
}

const fn hash(name: &CStr) -> u32 {
    let bytes = name.to_bytes();
    let (mut hash, mut at) = (0, 0);
    while at < bytes.len() {
        hash = mix(hash, bytes[at]);
        at += 1;
    }
    hash
}

/// Slot -> 1 + index into [`Hook::ALL`] followed by [`Lookup::ALL`]; 0 where empty. Linear probing.
static TABLE: [u8; SLOTS] = {
    let mut table = [0; SLOTS];
    let mut index = 0;
    while index < SYMBOLS.len() {
        let mut at = slot(hash(SYMBOLS[index]));
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
    // SAFETY: the second byte is read only where the first is not the terminator.
    let ours = unsafe {
        match *name {
            b'c' => *name.add(1) == b'u',
            b'n' => *name.add(1) == b'v',
            b'd' => *name.add(1) == b'l',
            _ => false,
        }
    };
    if !ours {
        return None;
    }
    let (mut hash, mut length) = (0, 0);
    loop {
        // SAFETY: every byte before this one was not the terminator.
        let byte = unsafe { *name.add(length) };
        if byte == 0 {
            break;
        }
        if length == LONGEST {
            return None;
        }
        hash = mix(hash, byte);
        length += 1;
    }
    // SAFETY: the loop ended at the terminator, `length` bytes on.
    let name = unsafe { core::slice::from_raw_parts(name, length) };
    let mut at = slot(hash);
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
            c"malloc",
        ] {
            assert_eq!(find(name), None, "{name:?}");
        }
        assert_eq!(find(&std::ffi::CString::new("cu".repeat(100)).unwrap()), None);
    }
}
