//! What a process remembers by itself: its own use of each GPU, in private memory.
//!
//! The shared words can be damaged by anybody who may write the file. The account cannot: a process never passes the limit
//! by its own account, whatever the file says, and repairs its words from it. Without a file it is all there is.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::layout::GPUS;

/// A GPU as this process numbers it; the file's order may differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GpuIndex(pub(super) u8);

impl GpuIndex {
    pub(super) fn at(self) -> usize {
        usize::from(self.0)
    }
}

/// The most units that one process can be counted for: what a shared word can say.
const MOST: u64 = u32::MAX as u64;

/// A number of bytes that nobody has as a limit.
const NO_LIMIT_YET: u64 = u64::MAX - 1;

/// In [`Account::tight`]: the limit has been lowered, or passed by a charge that did not ask, and no request has been admitted
/// since.
pub(super) const PASSED: u32 = 1;
/// In [`Account::tight`]: an object is counted for itself already, and in our word still.
pub(super) const HANDING: u32 = 2;

/// Our use of one GPU.
#[repr(align(64))]
pub(super) struct Account {
    key: AtomicU64,
    uuid: [AtomicU64; 2],
    /// Units admitted to us and not given back.
    used: AtomicU64,
    /// Units of others' memory that we hold.
    pub shared: AtomicU64,
    /// The most that `used` has been.
    high: AtomicU64,
    /// Bytes of the limit last applied.
    pub limit: AtomicU64,
    /// Not zero where what is given back is not kept as a lease: [`PASSED`], and [`HANDING`] for each object that is being
    /// handed over.
    pub tight: AtomicU32,
    pub refusals: AtomicU64,
    /// Bytes kept for the container.
    pub reserve: AtomicU64,
    pub context_cost: AtomicU64,
    /// Bytes of the charge that are backed on touch.
    pub lazy: AtomicU64,
    /// Our word of what is charged by estimate.
    pub estimated: AtomicU64,
    /// Our shared word when it was last found to say more than this account, and how often in a row it was just that.
    pub too_high: AtomicU64,
    pub times_too_high: AtomicU64,
}

impl Account {
    const fn new() -> Account {
        Account {
            key: AtomicU64::new(0),
            uuid: [const { AtomicU64::new(0) }; 2],
            used: AtomicU64::new(0),
            shared: AtomicU64::new(0),
            high: AtomicU64::new(0),
            limit: AtomicU64::new(NO_LIMIT_YET),
            tight: AtomicU32::new(0),
            refusals: AtomicU64::new(0),
            reserve: AtomicU64::new(0),
            context_cost: AtomicU64::new(0),
            lazy: AtomicU64::new(0),
            estimated: AtomicU64::new(0),
            too_high: AtomicU64::new(0),
            times_too_high: AtomicU64::new(0),
        }
    }

    /// Units in use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Acquire)
    }

    /// Units in use, and those of others that we hold: no more than the container has.
    pub fn holds(&self) -> u64 {
        self.used().saturating_add(self.shared.load(Ordering::Relaxed))
    }

    /// Units in use, as far as a shared word can say it.
    pub fn used_units(&self) -> u32 {
        u32::try_from(self.used()).unwrap_or(u32::MAX)
    }

    /// The most units that were in use at a time.
    pub fn high(&self) -> u64 {
        self.high.load(Ordering::Relaxed)
    }

    /// Adds `n` units unless that makes more than `cap`. Whether it did, and whether it is more than ever before.
    pub fn add(&self, n: u32, cap: u64) -> Option<bool> {
        let cap = cap.saturating_sub(self.shared.load(Ordering::Relaxed)).min(MOST);
        let mut seen = self.used.load(Ordering::Relaxed);
        loop {
            let next = seen.checked_add(u64::from(n)).filter(|next| *next <= cap)?;
            match self.used.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(self.note_high(next)),
                Err(now) => seen = now,
            }
        }
    }

    /// Adds `n` units without asking, up to the most that can be counted.
    pub fn force(&self, n: u32) {
        let add = |used: u64| Some(used.saturating_add(u64::from(n)).min(MOST));
        if let Ok(before) = self.used.fetch_update(Ordering::AcqRel, Ordering::Relaxed, add) {
            self.note_high(before.saturating_add(u64::from(n)).min(MOST));
        }
    }

    fn note_high(&self, used: u64) -> bool {
        used > self.high.load(Ordering::Relaxed) && self.high.fetch_max(used, Ordering::Relaxed) < used
    }

    /// Takes `n` units off, never below none; how many it were.
    pub fn subtract(&self, n: u32) -> u32 {
        let mut seen = self.used.load(Ordering::Relaxed);
        loop {
            let taken = seen.min(u64::from(n));
            match self.used.compare_exchange_weak(seen, seen - taken, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return taken as u32,
                Err(now) => seen = now,
            }
        }
    }

    fn uuid(&self) -> [u64; 2] {
        [self.uuid[0].load(Ordering::Acquire), self.uuid[1].load(Ordering::Acquire)]
    }
}

/// Our use of all GPUs.
pub(super) struct Accounts([Account; GPUS]);

impl Accounts {
    pub fn new() -> Accounts {
        Accounts([const { Account::new() }; GPUS])
    }

    /// The entry of a GPU, made at its first mention. `None` once there are [`GPUS`] others.
    pub fn find(&self, uuid: [u8; 16]) -> Option<GpuIndex> {
        let entries = self.0.iter().map(|account| (&account.key, &account.uuid));
        claim(entries, uuid).and_then(|at| u8::try_from(at).ok()).map(GpuIndex)
    }

    /// The account of a GPU.
    pub fn of(&self, gpu: GpuIndex) -> &Account {
        // An index is only made by `find`, hence in range; the fallback keeps a stranger's from panicking.
        self.0.get(gpu.at()).unwrap_or(&self.0[0])
    }

    /// What a GPU is.
    pub fn uuid(&self, gpu: GpuIndex) -> [u8; 16] {
        join(self.of(gpu).uuid())
    }

    /// The GPUs mentioned so far.
    pub fn known(&self) -> impl Iterator<Item = (GpuIndex, [u8; 16], &Account)> {
        self.0
            .iter()
            .enumerate()
            .filter(|(_, account)| account.key.load(Ordering::Acquire) != 0)
            .map(|(at, account)| (GpuIndex(at as u8), join(account.uuid()), account))
    }
}

/// Finds the entry of a UUID among (key, UUID) pairs, or claims the first free one for it. Every step can be left undone by
/// a kill and is then completed by whoever comes next: the key is claimed by one exchange, and all that have it write the same
/// UUID. Entries are never freed, so that all searchers agree.
pub(super) fn claim<'a>(
    entries: impl Iterator<Item = (&'a AtomicU64, &'a [AtomicU64; 2])>,
    uuid: [u8; 16],
) -> Option<usize> {
    let key = key_of(uuid);
    let halves = split(uuid);
    for (at, (entry, found)) in entries.enumerate() {
        let claimed = match entry.compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(theirs) => theirs == key,
        };
        if claimed && found.iter().zip(halves).all(|(place, half)| settle(place, half)) {
            return Some(at);
        }
    }
    None
}

/// Writes `value` where nothing is; whether it is there now.
fn settle(place: &AtomicU64, value: u64) -> bool {
    match place.compare_exchange(0, value, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => true,
        Err(found) => found == value,
    }
}

/// FNV-1a of a UUID, never 0.
fn key_of(uuid: [u8; 16]) -> u64 {
    fnv(&uuid).max(1)
}

/// FNV-1a.
pub(super) fn fnv(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
}

fn split(uuid: [u8; 16]) -> [u64; 2] {
    let both = u128::from_ne_bytes(uuid);
    [both as u64, (both >> 64) as u64]
}

/// The bytes of a UUID from its halves.
pub(super) fn join([low, high]: [u64; 2]) -> [u8; 16] {
    (u128::from(high) << 64 | u128::from(low)).to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uuid(n: u8) -> [u8; 16] {
        [n; 16]
    }

    #[test]
    fn a_gpu_keeps_its_entry() {
        let accounts = Accounts::new();
        let a = accounts.find(uuid(1)).expect("room");
        let b = accounts.find(uuid(2)).expect("room");
        assert_ne!(a, b);
        assert_eq!(accounts.find(uuid(1)), Some(a));
        let known: Vec<_> = accounts.known().map(|(gpu, id, _)| (gpu, id)).collect();
        assert_eq!(known, [(a, uuid(1)), (b, uuid(2))]);
    }

    #[test]
    fn a_uuid_of_zeros_is_a_uuid() {
        let accounts = Accounts::new();
        let zero = accounts.find(uuid(0)).expect("room");
        assert_eq!(accounts.find(uuid(0)), Some(zero));
        assert_ne!(accounts.find(uuid(9)), Some(zero));
    }

    #[test]
    fn a_full_table_says_so() {
        let accounts = Accounts::new();
        for n in 0..GPUS as u8 {
            assert!(accounts.find(uuid(n)).is_some());
        }
        assert_eq!(accounts.find(uuid(200)), None);
    }

    #[test]
    fn a_half_written_claim_is_completed_and_a_foreign_one_passed_by() {
        let accounts = Accounts::new();
        accounts.0[0].key.store(key_of(uuid(5)), Ordering::Relaxed);
        assert_eq!(accounts.find(uuid(5)), Some(GpuIndex(0)));
        let accounts = Accounts::new();
        accounts.0[0].key.store(key_of(uuid(5)), Ordering::Relaxed);
        accounts.0[0].uuid[0].store(77, Ordering::Relaxed);
        assert_eq!(accounts.find(uuid(5)), Some(GpuIndex(1)));
    }

    #[test]
    fn an_account_passes_neither_its_cap_nor_zero() {
        let accounts = Accounts::new();
        let gpu = accounts.find(uuid(1)).expect("room");
        let account = accounts.of(gpu);
        assert_eq!(account.add(4, 10), Some(true));
        assert_eq!(account.add(7, 10), None);
        assert_eq!(account.subtract(3), 3);
        assert_eq!(account.add(2, 10), Some(false));
        assert_eq!(account.subtract(9), 3);
        assert_eq!((account.used(), account.high()), (0, 4));
    }
}
