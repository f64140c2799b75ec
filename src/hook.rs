//! The table as data: one [`Hook`] a row, for everyone who asks *which* function rather than calling it.

use core::ffi::CStr;

/// What the table says of one entry point.
#[derive(Clone, Copy, Debug)]
pub struct HookInfo {
    /// The exported symbol.
    pub symbol: &'static CStr,
    /// The name that `cuGetProcAddress` answers it under; empty where it answers none (NVML).
    pub base: &'static str,
    /// The first version that answers it, as the driver writes versions (12080 is 12.8).
    pub since: u32,
    /// Whether this is the variant for the per-thread default stream.
    pub per_thread: bool,
}

/// A [`HookInfo`] without addresses, which the loader would have to put right in every process.
#[derive(Clone, Copy)]
struct Row {
    /// Where the symbol begins in the names of all.
    symbol: u16,
    /// How much of the symbol is the base name.
    base: u8,
    since: u16,
    per_thread: bool,
}

const fn is_prefix(prefix: &[u8], of: &[u8]) -> bool {
    let mut at = 0;
    while at < prefix.len() {
        if at >= of.len() || prefix[at] != of[at] {
            return false;
        }
        at += 1;
    }
    true
}

macro_rules! describe {
    (@per_thread plain) => { false };
    (@per_thread per_thread) => { true };
    ($($name:ident = $base:literal @ $since:literal $stream:ident
       fn($($arg:ident: $ty:ty),*) via $family:ident :: $handler:ident : $effect:literal;)*) => {
        /// A hooked entry point, named as the driver exports it.
        #[allow(non_camel_case_types, missing_docs)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Hook { $($name),* }

        impl Hook {
            /// All of them, in the table's order.
            pub const ALL: &'static [Hook] = &[$(Hook::$name),*];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();
        }

        static NAMES: &str = concat!($(stringify!($name), "\0"),*);

        static ROWS: [Row; Hook::COUNT] = {
            let mut rows = [$({
                assert!(is_prefix($base.as_bytes(), stringify!($name).as_bytes()), "a symbol begins with its base name");
                Row { symbol: 0, base: $base.len() as u8, since: $since, per_thread: describe!(@per_thread $stream) }
            }),*];
            let lengths = [$(stringify!($name).len()),*];
            let (mut at, mut begins) = (0, 0);
            while at < Hook::COUNT {
                assert!(begins <= u16::MAX as usize);
                rows[at].symbol = begins as u16;
                begins += lengths[at] + 1;
                at += 1;
            }
            rows
        };

        /// Kept apart: the preload library has no use for them.
        static EFFECTS: [&str; Hook::COUNT] = [$($effect),*];
    };
}
hooked_functions!(describe);

impl Hook {
    /// Its row.
    pub fn info(self) -> HookInfo {
        let Row { symbol, base, since, per_thread } = ROWS[self as usize];
        let name = &NAMES[usize::from(symbol)..];
        HookInfo {
            symbol: CStr::from_bytes_until_nul(name.as_bytes()).unwrap_or_default(),
            base: &name[..usize::from(base)],
            since: u32::from(since),
            per_thread,
        }
    }

    /// What it does to memory, in words.
    pub fn effect(self) -> &'static str {
        EFFECTS[self as usize]
    }

    /// Whether it belongs to libnvidia-ml rather than libcuda.
    pub fn is_nvml(self) -> bool {
        ROWS[self as usize].base == 0
    }

    /// The variant that `cuGetProcAddress` means by `base` at `version`: the newest that is not newer, in the
    /// per-thread form where that was asked for and exists.
    pub fn variant(base: &str, version: u32, per_thread: bool) -> Option<Hook> {
        let newest = |per_thread: bool| {
            Self::ALL
                .iter()
                .copied()
                .filter(|hook| {
                    let info = hook.info();
                    info.base == base && info.since <= version && info.per_thread == per_thread
                })
                .max_by_key(|hook| hook.info().since)
        };
        if base.is_empty() {
            return None;
        }
        per_thread.then(|| newest(true)).flatten().or_else(|| newest(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_means_the_newest_variant_that_is_not_newer() {
        assert_eq!(Hook::variant("cuMemAlloc", 2000, false), Some(Hook::cuMemAlloc));
        assert_eq!(Hook::variant("cuMemAlloc", 12000, false), Some(Hook::cuMemAlloc_v2));
        assert_eq!(Hook::variant("cuCtxCreate", 11050, false), Some(Hook::cuCtxCreate_v3));
        assert_eq!(
            Hook::variant("cuDevicePrimaryCtxRelease", 7000, false),
            Some(Hook::cuDevicePrimaryCtxRelease)
        );
        assert_eq!(Hook::variant("cuMemAllocAsync", 11000, false), None);
        assert_eq!(Hook::variant("", 0, false), None);
    }

    #[test]
    fn the_per_thread_form_is_given_only_where_it_exists() {
        assert_eq!(Hook::variant("cuMemAllocAsync", 12000, true), Some(Hook::cuMemAllocAsync_ptsz));
        assert_eq!(Hook::variant("cuMemAlloc", 12000, true), Some(Hook::cuMemAlloc_v2));
    }
}
