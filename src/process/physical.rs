//! Physical memory of the virtual memory interface: it exists until its last mapping is unmapped, the last place in a sparse
//! array or multicast object that it is bound to is gone, *and* its last handle reference is released, in whichever order.
//!
//! Multicast objects are pieces too: they take nothing, and what is bound to them is kept until they are gone.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};

use super::bound::{Binding, Bindings, Region};
use super::gpus::Gpu;
use super::locks::lock;
use crate::ledger::Shared;

/// What a piece of physical memory takes once it is gone.
#[derive(Clone, Copy)]
pub struct Gone {
    /// The card it lay on; `None` for a multicast object.
    pub gpu: Option<&'static Gpu>,
    /// What it was charged, in bytes.
    pub bytes: u64,
    /// By what other processes may hold it.
    pub shared: Option<Shared>,
}

/// What a piece is between processes.
#[derive(Clone, Copy)]
pub struct Common {
    /// By what they hold it together.
    pub shared: Shared,
    /// The place of the mark on descriptors that lead to it; 0 for none.
    pub place: u64,
}

struct Piece {
    /// `None` for a multicast object.
    gpu: Option<&'static Gpu>,
    /// What this process is charged for it.
    bytes: u64,
    shared: Option<Common>,
    /// What it was last called by.
    handle: u64,
    /// Handle references: one for its creation, one for each time it was retained.
    references: u32,
    /// To addresses, and bindings, and calls on their way that make such.
    mappings: u32,
}

struct Mapping {
    bytes: u64,
    piece: u64,
    /// Tells it from one that another thread makes at the same address.
    number: u64,
}

/// See the module. Thread-safe.
#[derive(Default)]
pub struct Physical {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pieces: HashMap<u64, Piece>,
    /// The piece a handle stands for, as long as there is one: it may be mapped by one thread while another releases it. The driver
    /// may give a handle's number to a new piece while the old one is still mapped, so pieces have names of their own.
    handles: HashMap<u64, u64>,
    mappings: BTreeMap<u64, Mapping>,
    bindings: Bindings,
    next: u64,
}

/// A piece that a call on its way is about to map or bind: another thread may release its handle meanwhile.
#[must_use]
#[derive(Clone, Copy)]
pub struct Pin {
    /// The piece, by name.
    pub piece: u64,
    /// The card it lies on; `None` for a multicast object.
    pub gpu: Option<&'static Gpu>,
}

/// Bindings that a call on its way is about to undo.
#[must_use]
pub struct Detached(Vec<Binding>);

impl Detached {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Mappings that a call on its way is about to undo.
#[must_use]
pub struct Unmapping(Vec<(u64, u64)>);

impl Physical {
    /// `handle` was created on `gpu` and is charged `bytes`.
    pub fn created(&self, handle: u64, gpu: &'static Gpu, bytes: u64) {
        self.lock().enter(handle, Some(gpu), bytes);
    }

    /// A multicast object was made. Answers its name, as a holder of bindings.
    pub fn multicast_created(&self, handle: u64) -> u64 {
        self.lock().enter(handle, None, 0)
    }

    /// What `handle` stands for: its card, what it is charged, and what it is between processes, if anything.
    pub fn look(&self, handle: u64) -> Option<(Option<&'static Gpu>, u64, Option<Common>)> {
        let state = self.lock();
        let piece = state.pieces.get(state.handles.get(&handle)?)?;
        Some((piece.gpu, piece.bytes, piece.shared))
    }

    /// Other processes may hold `handle` as `common` from now on; false where they already may as something else.
    pub fn shared(&self, handle: u64, common: Common) -> bool {
        let state = &mut *self.lock();
        let piece = state.handles.get(&handle).and_then(|piece| state.pieces.get_mut(piece));
        let piece = piece.filter(|piece| piece.shared.is_none());
        piece.is_some_and(|piece| {
            piece.shared = Some(common);
            true
        })
    }

    /// `handle` was imported, and is held as `common`, if that is known. True where it stands for a piece that this process had.
    #[inline(never)]
    pub fn imported(&self, handle: u64, common: Option<Common>) -> bool {
        let mut state = self.lock();
        let name = |common: Option<Common>| common.map(|common| common.shared);
        let same = |piece: &Piece| name(piece.shared) == name(common);
        // Where each import has a handle of its own, its number may be one that stood for something else.
        let by_handle = state.referenced(handle);
        let had = by_handle
            .filter(|name| common.is_none() || state.pieces.get(name).is_some_and(same))
            .or_else(|| {
                let held = state.pieces.iter().find(|(_, piece)| common.is_some() && same(piece));
                held.map(|(name, _)| *name)
            });
        let Some(name) = had else { return false };
        state.refer(handle, name);
        true
    }

    /// `handle` was imported and is new here: on `gpu`, or a multicast object. This process is charged `bytes`, or holds it as
    /// `common`.
    pub fn entered(&self, handle: u64, gpu: Option<&'static Gpu>, bytes: u64, common: Option<Common>) {
        let mut state = self.lock();
        let name = state.enter(handle, gpu, bytes);
        if let Some(piece) = state.pieces.get_mut(&name) {
            piece.shared = common;
        }
    }

    /// One more reference to `handle`, as a retain by address gives.
    pub fn retained(&self, handle: u64, address: u64) {
        let mut state = self.lock();
        let at = state.at(address);
        let Some(piece) = at.or_else(|| state.handles.get(&handle).copied()) else { return };
        state.refer(handle, piece);
    }

    /// Takes one reference of `handle` out before the driver is asked to release it, so that the handle's number can at once be
    /// another's; `put_back` undoes it.
    #[inline(never)]
    pub fn release(&self, handle: u64) -> Release {
        let mut state = self.lock();
        let name = state.referenced(handle);
        if let Some(piece) = name.and_then(|name| state.pieces.get_mut(&name)) {
            piece.references -= 1;
            // Kept until the driver has answered: another thread may unmap the rest of it meanwhile.
            piece.mappings += 1;
        }
        Release(name)
    }

    /// The driver refused the release.
    pub fn put_back(&self, Release(name): Release) {
        let mut state = self.lock();
        if let Some(piece) = name.and_then(|name| state.pieces.get_mut(&name)) {
            piece.references += 1;
            piece.mappings = piece.mappings.saturating_sub(1);
        }
    }

    /// The driver released it; answers what is gone by that.
    pub fn released(&self, Release(name): Release) -> Vec<Gone> {
        let mut gone = Vec::new();
        if let Some(name) = name {
            self.lock().let_go(name, &mut gone);
        }
        gone
    }

    /// Keeps what `handle` stands for until [`Self::mapped`], [`Self::bind`] or [`Self::unpin`].
    #[inline(never)]
    pub fn pin(&self, handle: u64) -> Option<Pin> {
        let mut state = self.lock();
        let piece = *state.handles.get(&handle)?;
        state.pin(piece)
    }

    /// Keeps what is mapped in a range of addresses, each with how far into the range it reaches and begins.
    pub fn pin_range(&self, address: u64, bytes: u64) -> Vec<(Pin, u64, u64)> {
        let mut state = self.lock();
        let end = address.saturating_add(bytes);
        let before = state.mappings.range(..=address).next_back().map_or(address, |(start, _)| *start);
        let touched: Vec<_> = state
            .mappings
            .range(before..end)
            .map(|(start, mapping)| (mapping.piece, (*start).max(address), (start + mapping.bytes).min(end)))
            .filter(|(_, from, to)| from < to)
            .collect();
        let pinned = touched.into_iter().filter_map(|(piece, from, to)| Some((state.pin(piece)?, from, to)));
        pinned.map(|(pin, from, to)| (pin, from - address, to - address)).collect()
    }

    /// The driver refused; answers what is gone, if nothing else has kept it meanwhile.
    #[inline(never)]
    pub fn unpin(&self, pin: Pin) -> Vec<Gone> {
        let mut gone = Vec::new();
        self.lock().let_go(pin.piece, &mut gone);
        gone
    }

    /// What was pinned is mapped at `address`. Answers what is gone by that: another thread's call may just have unmapped
    /// what was there.
    #[inline(never)]
    pub fn mapped(&self, address: u64, bytes: u64, pin: Pin) -> Vec<Gone> {
        let mut state = self.lock();
        let number = state.number();
        let before = state.mappings.insert(address, Mapping { bytes, piece: pin.piece, number });
        let mut gone = Vec::new();
        if let Some(before) = before {
            state.let_go(before.piece, &mut gone);
        }
        gone
    }

    /// What was pinned is bound in `region` by `call`, beside what is bound there. Nothing can be bound in an empty one.
    pub fn bind(&self, pin: Pin, region: Region, call: u64) -> Vec<Gone> {
        if region.is_empty() {
            return self.unpin(pin);
        }
        self.lock().bindings.insert(Binding { region, piece: pin.piece, call });
        Vec::new()
    }

    /// Takes what is bound in `region` out (of one call alone where `call` says so) before the driver is asked to unbind it.
    /// It stays charged until [`Self::unbound`]; [`Self::attach`] undoes it.
    #[inline(never)]
    pub fn detach(&self, region: &Region, call: Option<u64>) -> Detached {
        let mut state = self.lock();
        let State { bindings, pieces, .. } = &mut *state;
        Detached(bindings.take(region, call, |piece| {
            if let Some(piece) = pieces.get_mut(&piece) {
                piece.mappings += 1;
            }
        }))
    }

    /// The driver refused to unbind it.
    pub fn attach(&self, Detached(bindings): Detached) {
        let mut state = self.lock();
        bindings.into_iter().for_each(|binding| state.bindings.insert(binding));
    }

    /// The driver unbound it; answers what is gone by that.
    #[inline(never)]
    pub fn unbound(&self, Detached(bindings): Detached) -> Vec<Gone> {
        let mut state = self.lock();
        let mut gone = Vec::new();
        bindings.iter().for_each(|binding| state.let_go(binding.piece, &mut gone));
        gone
    }

    /// An array is gone, and what was bound in it unbound; answers what is gone by that.
    #[inline(never)]
    pub fn holder_gone(&self, holder: u64) -> Vec<Gone> {
        let all = self.lock().bindings.take_all(holder);
        self.unbound(Detached(all))
    }

    /// What is mapped in a range, before the driver is asked to unmap it.
    pub fn unmapping(&self, address: u64, bytes: u64) -> Unmapping {
        let end = address.saturating_add(bytes);
        let state = self.lock();
        Unmapping(
            state.mappings.range(address..end).map(|(start, mapping)| (*start, mapping.number)).collect(),
        )
    }

    /// It was unmapped; answers what is gone by that. What another thread has mapped there since stays.
    #[inline(never)]
    pub fn unmapped(&self, Unmapping(mappings): Unmapping) -> Vec<Gone> {
        let mut state = self.lock();
        let mut gone = Vec::new();
        for (start, number) in mappings {
            if state.mappings.get(&start).is_some_and(|mapping| mapping.number == number)
                && let Some(mapping) = state.mappings.remove(&start)
            {
                state.let_go(mapping.piece, &mut gone);
            }
        }
        gone
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// A reference on its way out.
#[must_use]
pub struct Release(Option<u64>);

impl State {
    /// The piece mapped at `address`.
    fn at(&self, address: u64) -> Option<u64> {
        let (start, mapping) = self.mappings.range(..=address).next_back()?;
        (address - start < mapping.bytes).then_some(mapping.piece)
    }

    /// The piece that `handle` stands for, unless the last reference to it is on its way out.
    fn referenced(&self, handle: u64) -> Option<u64> {
        let name = self.handles.get(&handle).copied();
        name.filter(|name| self.pieces.get(name).is_some_and(|piece| piece.references > 0))
    }

    /// One more reference to a piece, as `handle`.
    fn refer(&mut self, handle: u64, name: u64) {
        self.handles.insert(handle, name);
        if let Some(piece) = self.pieces.get_mut(&name) {
            piece.handle = handle;
            piece.references += 1;
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn enter(&mut self, handle: u64, gpu: Option<&'static Gpu>, bytes: u64) -> u64 {
        let piece = self.number();
        self.pieces.insert(piece, Piece { gpu, bytes, shared: None, handle, references: 1, mappings: 0 });
        self.handles.insert(handle, piece);
        piece
    }

    fn pin(&mut self, piece: u64) -> Option<Pin> {
        let held = self.pieces.get_mut(&piece)?;
        held.mappings += 1;
        Some(Pin { piece, gpu: held.gpu })
    }

    /// One mapping or binding of the piece less.
    #[inline(never)]
    fn let_go(&mut self, name: u64, gone: &mut Vec<Gone>) {
        if let Some(piece) = self.pieces.get_mut(&name) {
            piece.mappings = piece.mappings.saturating_sub(1);
        }
        self.bury(name, gone);
    }

    /// Removes the piece if nothing holds it any more, and with a multicast object what is bound to it.
    fn bury(&mut self, name: u64, gone: &mut Vec<Gone>) {
        let Some(piece) = self.pieces.get(&name) else { return };
        if piece.references > 0 || piece.mappings > 0 {
            return;
        }
        let shared = piece.shared.map(|common| common.shared);
        gone.push(Gone { gpu: piece.gpu, bytes: piece.bytes, shared });
        if self.handles.get(&piece.handle) == Some(&name) {
            self.handles.remove(&piece.handle);
        }
        self.pieces.remove(&name);
        for binding in self.bindings.take_all(name) {
            self.let_go(binding.piece, gone);
        }
    }
}
