//! Allocations that are backed on touch: managed memory in the place of plain memory, for `growth = "lazy"`.
//!
//! To the program each is plain device memory. Here is what tells the two apart, for the few calls to which the
//! driver answers differently.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::abi::*;
use crate::driver::Driver;
use crate::log::{self, Level};
use crate::policy;

use super::Process;
use super::contexts::ContextId;
use super::gpus::Gpu;
use super::locks::{read, write};

/// One allocation.
#[derive(Clone, Copy)]
pub struct Piece {
    /// Its size in bytes, as asked for.
    pub bytes: u64,
    /// The card that it is charged to and meant for.
    pub gpu: &'static Gpu,
    /// That card, as the driver calls it.
    pub device: CUdevice,
    /// The context it was made in.
    pub context: ContextId,
    handle: usize,
    driver: usize,
}

impl Piece {
    /// An allocation of `bytes` made in context `handle` of `driver`.
    pub fn new(
        bytes: u64,
        gpu: &'static Gpu,
        device: CUdevice,
        context: ContextId,
        handle: CUcontext,
        driver: usize,
    ) -> Piece {
        Piece { bytes, gpu, device, context, handle: handle as usize, driver }
    }
}

/// See the module. Thread-safe.
#[derive(Default)]
pub struct Lazy {
    /// By address. Each is large, so there are few.
    pieces: RwLock<Vec<(u64, Piece)>>,
    /// How many there are, for those who need not look.
    count: AtomicUsize,
    stopped: AtomicBool,
}

impl Lazy {
    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Whether this process does better without: it shares memory in a way that lazy memory does not allow.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// From now on allocations of this process are left as they are; true where that is news.
    pub fn stop(&self) -> bool {
        !self.stopped.swap(true, Ordering::Relaxed)
    }

    /// `piece` lies at `address`, which the driver has just given.
    pub fn insert(&self, process: &Process, address: u64, piece: Piece) {
        let mut pieces = self.write();
        match place_of(&pieces, address) {
            Ok(at) => pieces[at].1 = piece,
            Err(at) => pieces.insert(at, (address, piece)),
        }
        self.count.store(pieces.len(), Ordering::Release);
        drop(pieces);
        self.tell(process, piece, true);
    }

    /// Takes the piece at `address` out, before the driver is asked to free it.
    pub fn take(&self, process: &Process, address: u64) -> Option<Piece> {
        if self.is_empty() {
            return None;
        }
        let mut pieces = self.write();
        let at = place_of(&pieces, address).ok()?;
        let (_, piece) = pieces.remove(at);
        self.count.store(pieces.len(), Ordering::Release);
        drop(pieces);
        self.tell(process, piece, false);
        Some(piece)
    }

    /// The piece that `address` lies in.
    #[inline]
    pub fn at(&self, address: u64) -> Option<Piece> {
        if self.is_empty() { None } else { self.find(address) }
    }

    #[cold]
    fn find(&self, address: u64) -> Option<Piece> {
        let pieces = self.read();
        let before = pieces.partition_point(|(start, _)| *start <= address).checked_sub(1)?;
        let (start, piece) = pieces[before];
        (address - start < piece.bytes).then_some(piece)
    }

    /// Whether a piece starts at `address`.
    #[inline]
    pub fn starts_at(&self, address: u64) -> bool {
        !self.is_empty() && place_of(&self.read(), address).is_ok()
    }

    /// A context is gone and everything in it.
    pub fn drop_context(&self, process: &Process, context: ContextId) {
        if self.is_empty() {
            return;
        }
        let mut pieces = self.write();
        let gone: Vec<(u64, Piece)> = pieces.extract_if(.., |(_, piece)| piece.context == context).collect();
        self.count.store(pieces.len(), Ordering::Release);
        drop(pieces);
        gone.into_iter().for_each(|(_, piece)| self.tell(process, piece, false));
    }

    /// Moves all pieces to host memory, as the operator asked; they come back as they are touched. Not during a
    /// capture, which would take the copying for part of its graph.
    pub fn move_to_host(&self, process: &Process) {
        if process.captures.are_open() {
            return;
        }
        // The driver is asked outside the lock. A piece that is freed meanwhile is refused there.
        let pieces = self.read().clone();
        let mut bytes = 0;
        for (start, piece) in &pieces {
            let Some(api) = Driver::get(piece.driver) else { continue };
            let size = piece.bytes as usize;
            // SAFETY: a range that is ours as a whole; the stream is the thread's own, which waits for no other.
            let to_host = || unsafe { api.mem_prefetch(*start, size, DEVICE_CPU, PER_THREAD_STREAM) };
            // SAFETY: a context of this process; a dead one is refused.
            let moved = unsafe { api.within(piece.handle as CUcontext, to_host) };
            bytes += if moved == Some(Ok(())) { piece.bytes } else { 0 };
        }
        log::say(Level::Info, format_args!("asked to trim: {bytes} bytes of lazy memory go to the host"));
    }

    /// Tells the container's other processes how much of the charge gives way.
    fn tell(&self, process: &Process, piece: Piece, more: bool) {
        if let Some(index) = piece.gpu.ledger {
            process.ledger().change_lazy(index, policy::blocks(piece.bytes), more);
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<(u64, Piece)>> {
        read(&self.pieces)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<(u64, Piece)>> {
        write(&self.pieces)
    }
}

/// Where the piece at `address` is, or would be put.
fn place_of(pieces: &[(u64, Piece)], address: u64) -> Result<usize, usize> {
    pieces.binary_search_by_key(&address, |(start, _)| *start)
}
