//! Physical memory of the virtual memory interface: it exists until its last mapping is unmapped *and* its last
//! handle reference is released, in whichever order.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};

use super::gpus::Gpu;

/// What a piece of physical memory takes once it is gone.
#[derive(Clone, Copy)]
pub struct Gone {
    /// The card it lay on.
    pub gpu: &'static Gpu,
    /// What it was charged, in bytes.
    pub bytes: u64,
}

struct Piece {
    gpu: &'static Gpu,
    bytes: u64,
    /// Handle references: one for its creation, one for each time it was retained.
    references: u32,
    mappings: u32,
}

struct Mapping {
    bytes: u64,
    piece: u64,
}

/// See the module. Thread-safe.
#[derive(Default)]
pub struct Physical {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pieces: HashMap<u64, Piece>,
    /// The piece a handle stands for. The driver may give a handle's number to a new piece while the old one is
    /// still mapped, so pieces have names of their own.
    handles: HashMap<u64, u64>,
    mappings: BTreeMap<u64, Mapping>,
    next: u64,
}

impl Physical {
    /// `handle` was created on `gpu` and is charged `bytes`.
    pub fn created(&self, handle: u64, gpu: &'static Gpu, bytes: u64) {
        let mut state = self.lock();
        let piece = state.next;
        state.next += 1;
        state.pieces.insert(piece, Piece { gpu, bytes, references: 1, mappings: 0 });
        state.handles.insert(handle, piece);
    }

    /// One more reference to `handle`, as an import of one's own memory or a retain by address gives.
    pub fn retained(&self, handle: u64, address: Option<u64>) {
        let mut state = self.lock();
        let at = address.and_then(|address| state.at(address));
        let Some(piece) = at.or_else(|| state.handles.get(&handle).copied()) else { return };
        state.handles.insert(handle, piece);
        if let Some(piece) = state.pieces.get_mut(&piece) {
            piece.references += 1;
        }
    }

    /// Takes one reference of `handle` out before the driver is asked to release it, so that the handle's number
    /// can at once be another's; `put_back` undoes it.
    pub fn release(&self, handle: u64) -> Release {
        let mut state = self.lock();
        let Some(&piece) = state.handles.get(&handle) else {
            return Release { piece: None, handle, last: false };
        };
        let last = match state.pieces.get_mut(&piece) {
            Some(piece) => {
                piece.references = piece.references.saturating_sub(1);
                piece.references == 0
            }
            None => true,
        };
        if last {
            state.handles.remove(&handle);
        }
        Release { piece: Some(piece), handle, last }
    }

    /// The driver refused the release.
    pub fn put_back(&self, release: Release) {
        let mut state = self.lock();
        let Some(name) = release.piece else { return };
        if let Some(piece) = state.pieces.get_mut(&name) {
            piece.references += 1;
        }
        if release.last {
            state.handles.insert(release.handle, name);
        }
    }

    /// The driver released it; answers what is gone by that.
    pub fn released(&self, release: Release) -> Option<Gone> {
        let piece = release.piece.filter(|_| release.last)?;
        self.lock().bury(piece)
    }

    /// `handle` was mapped at `address`.
    pub fn mapped(&self, address: u64, bytes: u64, handle: u64) {
        let mut state = self.lock();
        let Some(&name) = state.handles.get(&handle) else { return };
        if let Some(piece) = state.pieces.get_mut(&name) {
            piece.mappings += 1;
            state.mappings.insert(address, Mapping { bytes, piece: name });
        }
    }

    /// Everything mapped in a range was unmapped; answers what is gone by that.
    pub fn unmapped(&self, address: u64, bytes: u64) -> Vec<Gone> {
        let mut state = self.lock();
        let end = address.saturating_add(bytes);
        let starts: Vec<u64> = state.mappings.range(address..end).map(|(start, _)| *start).collect();
        let mut gone = Vec::new();
        for start in starts {
            let Some(mapping) = state.mappings.remove(&start) else { continue };
            if let Some(piece) = state.pieces.get_mut(&mapping.piece) {
                piece.mappings = piece.mappings.saturating_sub(1);
            }
            gone.extend(state.bury(mapping.piece));
        }
        gone
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A reference on its way out.
#[must_use]
pub struct Release {
    piece: Option<u64>,
    handle: u64,
    last: bool,
}

impl State {
    /// The piece mapped at `address`.
    fn at(&self, address: u64) -> Option<u64> {
        let (start, mapping) = self.mappings.range(..=address).next_back()?;
        (address - start < mapping.bytes).then_some(mapping.piece)
    }

    /// Removes the piece if nothing holds it any more.
    fn bury(&mut self, name: u64) -> Option<Gone> {
        let piece = self.pieces.get(&name)?;
        if piece.references > 0 || piece.mappings > 0 {
            return None;
        }
        let gone = Gone { gpu: piece.gpu, bytes: piece.bytes };
        self.pieces.remove(&name);
        Some(gone)
    }
}
