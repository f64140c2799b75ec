//! The bytes of a ledger file.
//!
//! A header page, a table of GPUs, one slot a process, then the memory that processes share. All of it is atomics, because several processes that do not
//! trust each other write it at the same time; none of it is believed without a check.

use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicU32, AtomicU64};

/// The first eight bytes.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"cuquota\x1a");
/// Raised with every change to this file; another version is refused, never converted.
pub const VERSION: u32 = 4;
/// GPUs (and MIG instances) that one container can have.
pub const GPUS: usize = 64;
/// Processes that can share a ledger at a time.
pub const SLOTS: usize = 1024;
/// Pieces of memory that processes can share at a time.
pub const OBJECTS: usize = 2048;
/// Bytes of the label, NUL padded.
pub const LABEL: usize = 128;
/// Bytes of a process's name, NUL padded.
pub const COMM: usize = 16;

/// The first page.
#[repr(C, align(64))]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// [`GPUS`].
    pub gpus: AtomicU32,
    /// [`SLOTS`].
    pub slots: AtomicU32,
    /// Bytes of a [`Slot`].
    pub slot_size: AtomicU32,
    /// Bytes of the file.
    pub file_size: AtomicU64,
    /// One where the file system showed the whole file allocated when it was made, so that less is an alarm.
    pub allocated: AtomicU32,
    /// All slots that were ever taken are below this one. A hint, cut to [`SLOTS`].
    pub high_water: AtomicU32,
    /// When the slots of the dead were last looked for, in milliseconds since boot. A hint.
    pub last_sweep: AtomicU64,
    /// The container's name from its quota file.
    pub label: [AtomicU64; LABEL / 8],
    /// How often somebody has asked that lazy memory go to the host.
    pub trims: AtomicU64,
    /// All objects that were ever entered are below this one. A hint, cut to [`OBJECTS`].
    pub objects_end: AtomicU32,
    /// Who changes the table of objects: the slot plus one, and above that its owner's number; 0 is nobody.
    pub objects_owner: AtomicU64,
}

/// What all processes know of a GPU.
#[repr(C, align(128))]
pub struct Gpu {
    /// Hash of the UUID, never 0; claims the entry.
    pub key: AtomicU64,
    /// The UUID, both halves zero until its claimant has written them.
    pub uuid: [AtomicU64; 2],
    /// Bytes of the limit that was last applied; `u64::MAX` is unlimited. Meaningless without [`LIMIT_KNOWN`].
    pub limit: AtomicU64,
    /// The most units seen in use by all together.
    pub peak: AtomicU64,
    /// Requests refused.
    pub refusals: AtomicU64,
    /// Smallest cost of a context seen, in bytes; 0 is unknown.
    pub context_cost: AtomicU64,
    /// [`LIMIT_KNOWN`] or nothing.
    pub flags: AtomicU32,
    /// Not zero while an arbiter decides.
    pub arbitrating: AtomicU32,
    /// Bytes kept for the container; its neighbours on the card read it here.
    pub reserve: AtomicU64,
}

/// [`Gpu::flags`]: a limit has been applied.
pub const LIMIT_KNOWN: u32 = 1;

/// What a process writes of itself.
#[repr(C, align(64))]
pub struct Slot {
    /// Process id in its own namespace; 0 is a slot nobody has.
    pub pid: AtomicU32,
    /// Effective user when it registered.
    pub uid: AtomicU32,
    /// Start time in clock ticks since boot.
    pub start: AtomicU64,
    /// Inode of its process id namespace.
    pub pid_namespace: AtomicU64,
    /// The number of the process that has the slot, see [`owner`](super).
    pub owner: AtomicU64,
    /// Its name.
    pub comm: [AtomicU64; COMM / 8],
    /// Threads between publishing and having checked.
    pub in_flight: AtomicU32,
    /// Threads between publishing and having looked at the neighbours, see [`beside`](super).
    pub asking: AtomicU32,
    /// Since when the oldest request waits for a neighbour's memory, in milliseconds since boot; 0 if none does.
    pub waiting_since: AtomicU64,
    /// One word a GPU, see [`protocol`](super::protocol).
    pub words: [AtomicU64; GPUS],
    /// What is charged by estimate, a word a GPU, see [`Census`](super::Census).
    pub estimated: [AtomicU64; GPUS],
    /// Bytes of the charge that are backed on touch, a GPU: the card may hold none of them.
    pub lazy: [AtomicU64; GPUS],
}

/// Memory that several processes may hold, see [`objects`](super).
#[repr(C, align(64))]
pub struct Object {
    /// What it is called between processes; zeros are found by nobody.
    pub key: [AtomicU64; 2],
    /// The GPU's number above 32 bits of units; 0 is an entry nobody has.
    pub size: AtomicU64,
    /// The slot, plus one, of the process whose word has it; 0 where the object is counted for itself.
    pub payer: AtomicU64,
    /// How often the entry has been taken.
    pub generation: AtomicU64,
    /// What its open descriptors are marked with, see [`mark`](crate::sys::mark); 0 where it has none.
    pub mark: AtomicU64,
    /// A bit a slot: who holds it.
    pub holders: [AtomicU64; SLOTS / 64],
}

/// Where the table of GPUs starts.
pub const GPU_TABLE: usize = 4096;
/// Where the slots start.
pub const SLOT_TABLE: usize = GPU_TABLE + GPUS * size_of::<Gpu>();
/// Where the charges of objects start, a word each: its [`Object::size`] while it is counted for itself, else 0.
pub const CHARGES: usize = SLOT_TABLE + SLOTS * size_of::<Slot>();
/// Where the objects start.
pub const OBJECT_TABLE: usize = CHARGES + OBJECTS * size_of::<AtomicU64>();
/// Bytes of the file.
pub const FILE_SIZE: usize = OBJECT_TABLE + OBJECTS * size_of::<Object>();

/// Where a GPU's entry starts. Its first byte is the arbiter's lock.
pub const fn gpu_offset(gpu: usize) -> usize {
    GPU_TABLE + gpu * size_of::<Gpu>()
}

/// Where a slot starts. Its first byte is its owner's lock, unless that has a file of its own.
pub const fn slot_offset(slot: usize) -> usize {
    SLOT_TABLE + slot * size_of::<Slot>()
}

/// The constants at the head of a ledger, as found in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preamble {
    /// See [`Header::magic`].
    pub magic: u64,
    /// See [`Header::version`].
    pub version: u32,
    /// See [`Header::gpus`].
    pub gpus: u32,
    /// See [`Header::slots`].
    pub slots: u32,
    /// See [`Header::slot_size`].
    pub slot_size: u32,
    /// See [`Header::file_size`].
    pub file_size: u64,
}

impl Preamble {
    /// What this version of the program writes, and the only one that it accepts.
    pub const OURS: Preamble = Preamble {
        magic: MAGIC,
        version: VERSION,
        gpus: GPUS as u32,
        slots: SLOTS as u32,
        slot_size: size_of::<Slot>() as u32,
        file_size: FILE_SIZE as u64,
    };

    /// Bytes of it in the file.
    pub const SIZE: usize = offset_of!(Header, allocated);

    /// From the first bytes of a file; `None` where there are too few.
    pub fn parse(bytes: &[u8]) -> Option<Preamble> {
        Some(Preamble {
            magic: u64_at(bytes, offset_of!(Header, magic))?,
            version: u32_at(bytes, offset_of!(Header, version))?,
            gpus: u32_at(bytes, offset_of!(Header, gpus))?,
            slots: u32_at(bytes, offset_of!(Header, slots))?,
            slot_size: u32_at(bytes, offset_of!(Header, slot_size))?,
            file_size: u64_at(bytes, offset_of!(Header, file_size))?,
        })
    }

    /// The first bytes of a new file.
    pub fn bytes(&self, allocated: bool) -> [u8; Preamble::SIZE + 4] {
        let mut bytes = [0; Preamble::SIZE + 4];
        let mut put = |at: usize, value: &[u8]| {
            if let Some(place) = bytes.get_mut(at..at + value.len()) {
                place.copy_from_slice(value);
            }
        };
        put(offset_of!(Header, magic), &self.magic.to_ne_bytes());
        put(offset_of!(Header, version), &self.version.to_ne_bytes());
        put(offset_of!(Header, gpus), &self.gpus.to_ne_bytes());
        put(offset_of!(Header, slots), &self.slots.to_ne_bytes());
        put(offset_of!(Header, slot_size), &self.slot_size.to_ne_bytes());
        put(offset_of!(Header, file_size), &self.file_size.to_ne_bytes());
        put(offset_of!(Header, allocated), &u32::from(allocated).to_ne_bytes());
        bytes
    }
}

/// A number at an offset of a copy of the file; `None` beyond its end.
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at.checked_add(8)?)?.try_into().ok().map(u64::from_ne_bytes)
}

/// A number at an offset of a copy of the file; `None` beyond its end.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_ne_bytes)
}

const _: () = {
    assert!(size_of::<Header>() <= GPU_TABLE);
    assert!(size_of::<Gpu>() == 128 && size_of::<Slot>() == 1600);
    assert!(size_of::<Slot>().is_multiple_of(64) && SLOT_TABLE.is_multiple_of(64));
    assert!(size_of::<Object>() == 192 && CHARGES.is_multiple_of(64) && OBJECT_TABLE.is_multiple_of(64));
    assert!(Preamble::SIZE == 32 && FILE_SIZE.is_multiple_of(4096));
};
