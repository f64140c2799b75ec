//! The table as data: one [`Hook`] a row, for everyone who asks *which* function rather than calling it.

use core::ffi::CStr;

/// What the table says of one entry point.
#[derive(Debug)]
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

        static INFO: [HookInfo; Hook::COUNT] = [$(HookInfo {
            // Nothing in a Rust identifier is a NUL.
            symbol: match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(symbol) => symbol,
                Err(_) => panic!(),
            },
            base: $base,
            since: $since,
            per_thread: describe!(@per_thread $stream),
        }),*];

        /// Kept apart: the preload library has no use for them.
        static EFFECTS: [&str; Hook::COUNT] = [$($effect),*];
    };
}
hooked_functions!(describe);

impl Hook {
    /// Its row.
    pub fn info(self) -> &'static HookInfo {
        &INFO[self as usize]
    }

    /// What it does to memory, in words.
    pub fn effect(self) -> &'static str {
        EFFECTS[self as usize]
    }

    /// Whether it belongs to libnvidia-ml rather than libcuda.
    pub fn is_nvml(self) -> bool {
        self.info().base.is_empty()
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
