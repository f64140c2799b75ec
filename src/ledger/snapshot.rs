//! A look at a ledger from outside, for `status`.

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use core::mem::{offset_of, size_of};

use super::account::join;
use super::guard;
use super::layout::{
    COMM, FILE_SIZE, GPUS, Gpu, Header, LABEL, LIMIT_KNOWN, OBJECT_TABLE, Preamble, SLOTS, Slot, gpu_offset,
    slot_offset, u32_at, u64_at,
};
use super::lost::{Fault, SharingLost};
use super::place::{check_preamble, check_status};
use super::protocol::{UNIT, granted, held, used};
use super::table;
use crate::sys::file::File;

/// A ledger at one moment. All of it was written by processes that need not be honest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The container's name from its quota file; empty without one.
    pub label: String,
    /// The GPUs that any of its processes has used.
    pub gpus: Vec<GpuState>,
    /// The processes that have a part in it, and the dead that have not been swept yet.
    pub processes: Vec<ProcessState>,
}

/// A GPU in a [`Snapshot`]. Amounts are bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuState {
    /// Its UUID.
    pub uuid: [u8; 16],
    /// The limit last applied, `u64::MAX` for unlimited; `None` before the first request.
    pub limit: Option<u64>,
    /// What is kept for the container.
    pub reserve: u64,
    /// What the living use.
    pub used: u64,
    /// What of that several may hold and is in no process's own use, since the one that made it is gone.
    pub shared: u64,
    /// What of it is backed on touch, so that the card may hold none of it.
    pub lazy: u64,
    /// What the living use or have leased.
    pub granted: u64,
    /// The most that was seen in use at a time.
    pub peak: u64,
    /// Requests refused.
    pub refusals: u64,
    /// What a context takes, once learned.
    pub context_cost: Option<u64>,
}

/// A process in a [`Snapshot`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessState {
    /// Process id, in its own namespace.
    pub pid: u32,
    /// Inode of that namespace; 0 if it did not know.
    pub pid_namespace: u64,
    /// Start time in clock ticks since boot; 0 if it did not know.
    pub start: u64,
    /// Effective user.
    pub uid: u32,
    /// Its name.
    pub comm: String,
    /// Whether the kernel still holds its lock.
    pub alive: bool,
    /// Bytes it uses of each GPU in [`Snapshot::gpus`], in that order.
    pub used: Vec<u64>,
    /// Bytes of those that are backed on touch, likewise.
    pub lazy: Vec<u64>,
}

impl Snapshot {
    /// Reads the ledger at `path`, without mapping or changing it. A read-only mount will do.
    pub fn read(path: &Path) -> Result<Snapshot, SharingLost> {
        let name = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
        read(&name).map_err(|fault| fault.at(&name))
    }
}

fn read(path: &CString) -> Result<Snapshot, Fault> {
    let file = File::open(path, libc::O_RDONLY).map_err(Fault::system("open it"))?;
    let status = file.status().map_err(Fault::system("look at it"))?;
    check_status(&status, false)?;
    let mut bytes = vec![0; FILE_SIZE];
    let read = file.read_at(&mut bytes, 0).map_err(Fault::system("read it"))?;
    if read < FILE_SIZE {
        return Err(Fault::Size { found: read as u64, expected: FILE_SIZE as u64 });
    }
    check_preamble(Preamble::parse(&bytes))?;
    let open = |name: &CStr| File::open(&guard::beside(path, name), libc::O_RDONLY);
    Ok(parse(&bytes, |slot, owner| guard::is_alive(&file, slot, owner, open)))
}

fn parse(bytes: &[u8], is_alive: impl Fn(usize, u64) -> io::Result<bool>) -> Snapshot {
    let columns: Vec<usize> =
        (0..GPUS).filter(|gpu| u64_at(bytes, gpu_offset(*gpu) + offset_of!(Gpu, key)) != Some(0)).collect();
    let mut gpus: Vec<GpuState> = columns.iter().map(|gpu| gpu_state(bytes, gpu_offset(*gpu))).collect();
    let mut processes = Vec::new();
    for slot in 0..SLOTS {
        let at = slot_offset(slot);
        let words: Vec<u64> = columns
            .iter()
            .map(|gpu| number(bytes, at + offset_of!(Slot, words) + gpu * size_of::<u64>()))
            .collect();
        let lazy: Vec<u64> = columns
            .iter()
            .zip(&words)
            .map(|(gpu, word)| {
                let told = number(bytes, at + offset_of!(Slot, lazy) + gpu * size_of::<u64>());
                told.min(u64::from(used(*word)) * UNIT)
            })
            .collect();
        let pid = small(bytes, at + offset_of!(Slot, pid));
        if pid == 0 && words.iter().all(|word| *word == 0) {
            continue;
        }
        let alive = is_alive(slot, number(bytes, at + offset_of!(Slot, owner))).unwrap_or(false);
        if alive {
            for ((gpu, word), lazy) in gpus.iter_mut().zip(&words).zip(&lazy) {
                gpu.lazy = gpu.lazy.saturating_add(*lazy);
                gpu.used = gpu.used.saturating_add(u64::from(used(*word)) * UNIT);
                gpu.granted = gpu.granted.saturating_add(u64::from(held(*word).max(granted(*word))) * UNIT);
            }
        }
        processes.push(ProcessState {
            pid,
            pid_namespace: number(bytes, at + offset_of!(Slot, pid_namespace)),
            start: number(bytes, at + offset_of!(Slot, start)),
            uid: small(bytes, at + offset_of!(Slot, uid)),
            comm: text(bytes, at + offset_of!(Slot, comm), COMM),
            alive,
            used: words.iter().map(|word| u64::from(used(*word)) * UNIT).collect(),
            lazy,
        });
    }
    let objects = bytes.get(OBJECT_TABLE..).unwrap_or_default();
    let owner = |slot: usize| number(bytes, slot_offset(slot) + offset_of!(Slot, owner));
    for size in table::counted(objects, |slot| is_alive(slot, owner(slot)).unwrap_or(false)) {
        let place = columns.iter().position(|column| *column == size.column);
        let Some(gpu) = place.and_then(|at| gpus.get_mut(at)) else { continue };
        let bytes = u64::from(size.units) * UNIT;
        gpu.shared = gpu.shared.saturating_add(bytes);
        gpu.used = gpu.used.saturating_add(bytes);
        gpu.granted = gpu.granted.saturating_add(bytes);
    }
    Snapshot { label: text(bytes, offset_of!(Header, label), LABEL), gpus, processes }
}

fn gpu_state(bytes: &[u8], at: usize) -> GpuState {
    let uuid = at + offset_of!(Gpu, uuid);
    let limit_known = small(bytes, at + offset_of!(Gpu, flags)) & LIMIT_KNOWN != 0;
    GpuState {
        uuid: join([number(bytes, uuid), number(bytes, uuid + 8)]),
        limit: limit_known.then(|| number(bytes, at + offset_of!(Gpu, limit))),
        reserve: number(bytes, at + offset_of!(Gpu, reserve)),
        used: 0,
        shared: 0,
        lazy: 0,
        granted: 0,
        peak: number(bytes, at + offset_of!(Gpu, peak)).saturating_mul(UNIT),
        refusals: number(bytes, at + offset_of!(Gpu, refusals)),
        context_cost: Some(number(bytes, at + offset_of!(Gpu, context_cost))).filter(|cost| *cost != 0),
    }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64_at(bytes, at).unwrap_or(0)
}

fn small(bytes: &[u8], at: usize) -> u32 {
    u32_at(bytes, at).unwrap_or(0)
}

/// NUL padded text; what could drive a terminal is replaced.
fn text(bytes: &[u8], at: usize, len: usize) -> String {
    let field = bytes.get(at..at + len).unwrap_or_default();
    let text = field.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).chars().map(|c| if c.is_control() { '\u{FFFD}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_read_without_harm() {
        let mut state = 1u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as u8
        })
        .take(FILE_SIZE)
        .collect();
        let snapshot = parse(&noise, |slot, _| Ok(slot % 2 == 0));
        assert_eq!(snapshot.gpus.len(), GPUS);
        assert_eq!(snapshot.processes.len(), SLOTS);
        let ones = parse(&vec![0xFF; FILE_SIZE], |_, _| Ok(true));
        let words = SLOTS as u64 * u64::from(u32::MAX) * UNIT;
        assert!(ones.gpus.iter().all(|gpu| gpu.used - gpu.shared == words));
        assert!(ones.processes.iter().all(|process| !process.comm.chars().any(char::is_control)));
    }

    #[test]
    fn too_few_bytes_are_read_as_nothing() {
        let snapshot = parse(&[1; 100], |_, _| Ok(true));
        assert!(snapshot.processes.is_empty());
    }
}
