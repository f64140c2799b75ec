//! What code takes that was loaded: modules and libraries, and their variables. Nobody says how much that is, so the card
//! is looked at before and after ([`weighing`](super::weighing)); what was seen is kept here, by what it was loaded for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::contexts::{ContextId, Place};
use super::gpus::Gpu;
use super::locks::lock;

/// A module or library by its handle, or by a name of its own while it is unloaded; 0 for what belongs to none that is known, or
/// to one that is gone.
pub type Owner = usize;

/// What the code of one owner takes in one context.
struct Piece {
    owner: Owner,
    place: Place,
    bytes: u64,
    /// Whether nothing else was on its way when it was weighed.
    sure: bool,
}

/// What an owner's code may take in a context.
struct Bound {
    owner: Owner,
    /// The only context that it is in; `None`: a library, which may be in any.
    within: Option<ContextId>,
    bytes: u64,
}

/// What any image may take, in bytes, and one that was never seen: blocks of the driver's for a little code, the heap of
/// 8 MiB that comes with the first kernel that allocates, the buffer of those that print.
const ANY: u64 = 16 << 20;

/// A card as it was before the calls that load or unload code there now.
struct Scale {
    gpu: &'static Gpu,
    /// How many of those there are.
    calls: usize,
    /// What was unknown then, less what it was lowered by since.
    base: i64,
    /// How many contexts there were.
    contexts: u64,
    /// Whether nothing else was on its way then.
    sure: bool,
    /// How often what is charged was put right.
    settled: u64,
}

#[derive(Default)]
struct Held {
    pieces: Vec<Piece>,
    bounds: Vec<Bound>,
    scales: Vec<Scale>,
    /// The libraries of modules that belong to one.
    libraries: HashMap<Owner, Owner>,
    /// How many were unloaded.
    unloads: usize,
}

impl Held {
    fn rename(&mut self, from: Owner, to: Owner) {
        let pieces = self.pieces.iter_mut().map(|piece| &mut piece.owner);
        let bounds = self.bounds.iter_mut().map(|bound| &mut bound.owner);
        let libraries = self.libraries.values_mut();
        pieces.chain(bounds).chain(libraries).filter(|owner| **owner == from).for_each(|owner| *owner = to);
    }
}

/// See the module. Thread-safe.
#[derive(Default)]
pub struct Code {
    held: Mutex<Held>,
    any: AtomicBool,
}

/// What a card is compared with.
#[derive(Clone, Copy)]
pub(super) struct Before {
    /// What was unknown. Bytes.
    pub base: i64,
    /// How many contexts there were.
    pub contexts: u64,
    /// Whether nothing else was on its way then.
    pub sure: bool,
    /// How often what is charged had been put right.
    pub settled: u64,
}

/// What a card holds more than before, or less.
#[derive(Clone, Copy)]
pub(super) struct Moved {
    /// Bytes.
    pub bytes: i64,
    /// Whether nothing else was on its way.
    pub sure: bool,
    /// Whether it can be more: after all but unloading.
    pub grows: bool,
}

impl Code {
    /// Bytes that are charged on a card.
    pub fn on(&self, gpu: &Gpu) -> u64 {
        self.sum(|piece| core::ptr::eq(piece.place.gpu, gpu))
    }

    /// Bytes that are charged to a context.
    pub fn of(&self, context: ContextId) -> u64 {
        self.sum(|piece| piece.place.context == context)
    }

    fn sum(&self, wanted: impl Fn(&Piece) -> bool) -> u64 {
        if !self.any.load(Ordering::Relaxed) {
            return 0;
        }
        self.lock().pieces.iter().filter(|piece| wanted(piece)).map(|piece| piece.bytes).sum()
    }

    /// `owner` was loaded, to one context or as a library, from an image of a weight; see [`image`](crate::sys::image).
    pub fn bound(&self, owner: Owner, within: Option<ContextId>, weight: u64) {
        let mut held = self.lock();
        held.bounds.retain(|other| other.owner != owner);
        held.bounds.push(Bound { owner, within, bytes: weight.saturating_add(ANY) });
    }

    /// `owner` is about to be unloaded, and its handle may at once be another's: what it is called from then on.
    pub fn leaving(&self, owner: Owner) -> Owner {
        let mut held = self.lock();
        held.unloads += 1;
        // Odd, as no handle is.
        let name = held.unloads << 1 | 1;
        held.rename(owner, name);
        name
    }

    /// The driver refused to unload what is called `name`, and which stays `owner`.
    pub fn stays(&self, name: Owner, owner: Owner) {
        self.lock().rename(name, owner);
    }

    /// `module` is `library`'s.
    pub fn belongs(&self, module: Owner, library: Owner) {
        self.lock().libraries.insert(module, library);
    }

    /// Whose code `module` is: its library's, if it is part of one.
    pub fn owner_of(&self, module: Owner) -> Owner {
        self.lock().libraries.get(&module).copied().unwrap_or(module)
    }

    /// A context is gone and the code in it; answers what that gives back, in bytes.
    pub fn drop_context(&self, context: ContextId) -> u64 {
        let mut held = self.lock();
        held.bounds.retain(|bound| bound.within != Some(context));
        held.pieces.extract_if(.., |piece| piece.place.context == context).map(|piece| piece.bytes).sum()
    }

    /// A module or library was unloaded. What the driver did not give back with it is nobody's from now on, as far as that is
    /// sure; the answer is what else is to be given back, and where.
    pub(super) fn unloaded(&self, owner: Owner) -> Vec<(&'static Gpu, u64)> {
        let mut held = self.lock();
        held.libraries.retain(|module, library| *module != owner && *library != owner);
        held.bounds.retain(|bound| bound.owner != owner);
        let doubtful = held.pieces.extract_if(.., |piece| piece.owner == owner && !piece.sure);
        let back = doubtful.map(|piece| (piece.place.gpu, piece.bytes)).collect();
        for piece in held.pieces.iter_mut().filter(|piece| piece.owner == owner) {
            piece.owner = 0;
        }
        back
    }

    /// A call begins that may load or unload code on a card, of which so much is unknown now.
    pub(super) fn begin(&self, gpu: &'static Gpu, base: i64, contexts: u64, sure: bool) {
        let mut held = self.lock();
        match held.scales.iter_mut().find(|scale| core::ptr::eq(scale.gpu, gpu)) {
            // What others on their way have taken meanwhile will be told from what was before them.
            Some(scale) if scale.calls > 0 => scale.calls += 1,
            Some(scale) => *scale = Scale { gpu, calls: 1, base, contexts, sure, settled: scale.settled },
            None => held.scales.push(Scale { gpu, calls: 1, base, contexts, sure, settled: 0 }),
        }
    }

    /// It ends.
    pub(super) fn end(&self, gpu: &Gpu) {
        if let Some(scale) = self.lock().scales.iter_mut().find(|scale| core::ptr::eq(scale.gpu, gpu)) {
            scale.calls = scale.calls.saturating_sub(1);
        }
    }

    /// What the card was like before the calls that are on their way.
    pub(super) fn before(&self, gpu: &Gpu) -> Option<Before> {
        let held = self.lock();
        let scale = held.scales.iter().find(|scale| core::ptr::eq(scale.gpu, gpu))?;
        let Scale { base, contexts, sure, settled, .. } = *scale;
        Some(Before { base, contexts, sure, settled })
    }

    /// Notes that the card holds `moved` bytes more, or less, than `before`: `charge` is told how many bytes more are to be
    /// charged, or how many less. More than the owner's image can take is somebody else's. Answers false, and does nothing, if
    /// that was put right since.
    pub(super) fn settle(
        &self,
        place: Place,
        owner: Owner,
        before: Before,
        moved: Moved,
        charge: impl FnOnce(i64),
    ) -> bool {
        let mut held = self.lock();
        let Held { pieces, bounds, scales, .. } = &mut *held;
        let Some(scale) = scales.iter_mut().find(|scale| core::ptr::eq(scale.gpu, place.gpu)) else {
            return true;
        };
        if scale.settled != before.settled {
            return false;
        }
        scale.settled += 1;
        let Moved { bytes: moved, sure, grows } = moved;
        if moved > 0 {
            let same =
                pieces.iter_mut().find(|piece| piece.owner == owner && piece.place.context == place.context);
            let most = match bounds.iter().find(|bound| bound.owner == owner) {
                _ if !grows => 0,
                Some(bound) => bound.bytes,
                None if owner == 0 => u64::MAX,
                None => ANY,
            };
            let room = most.saturating_sub(same.as_ref().map_or(0, |piece| piece.bytes));
            let more = moved.unsigned_abs().min(room);
            if scale.calls <= 1 {
                // Otherwise the rest may be code of another call on its way, which has yet to see it.
                scale.base += moved - more as i64;
            }
            self.any.store(true, Ordering::Relaxed);
            match same {
                Some(piece) => (piece.bytes, piece.sure) = (piece.bytes + more, piece.sure && sure),
                None if more > 0 => pieces.push(Piece { owner, place, bytes: more, sure }),
                None => {}
            }
            charge(more as i64);
        } else if !sure {
            // How much less is not to be told: what was charged for it goes with it.
            for piece in pieces.iter_mut().filter(|piece| piece.owner == owner) {
                piece.sure &= !core::ptr::eq(piece.place.gpu, place.gpu);
            }
        } else {
            // Less than was ever charged it cannot be: the rest was somebody else's.
            let less = take(pieces, place.gpu, owner, moved.unsigned_abs());
            scale.base += moved + less as i64;
            charge(-(less as i64));
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        lock(&self.held)
    }
}

/// Takes so many bytes off what is charged on a card, for `owner` first and then for nobody; how many it were.
fn take(pieces: &mut Vec<Piece>, gpu: &Gpu, owner: Owner, bytes: u64) -> u64 {
    let mut left = bytes;
    for whose in [owner, 0] {
        for piece in pieces.iter_mut() {
            if piece.owner == whose && core::ptr::eq(piece.place.gpu, gpu) {
                let less = piece.bytes.min(left);
                piece.bytes -= less;
                left -= less;
            }
        }
    }
    pieces.retain(|piece| piece.bytes > 0);
    bytes - left
}
