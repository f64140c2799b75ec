//! What is charged by a handle and goes with a context: arrays and mipmaps, whose layout only the driver knows, limits of
//! contexts, memory of other interfaces.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::contexts::{ContextId, Place};
use super::gpus::Gpu;
use super::locks::lock;

/// One of them, with what it is charged itself: nothing where it is an array that the program maps memory into.
#[derive(Clone, Copy)]
pub struct Belonging {
    /// What that is, in bytes.
    pub bytes: u64,
    /// The card it lies on.
    pub gpu: &'static Gpu,
    /// A name of its own, under which memory is bound to it: its handle may be another's as soon as it is gone.
    pub name: u64,
    /// The context it goes with.
    pub context: ContextId,
}

/// See the module. Thread-safe.
#[derive(Default)]
pub struct Belongings {
    held: Mutex<HashMap<usize, Belonging>>,
    made: AtomicU64,
}

/// Names of arrays, so that none is that of a multicast object.
const NAMES: u64 = 1 << 63;

impl Belongings {
    /// One was made at `place` and is charged `bytes`. Answers the one that had the same handle and is gone with its
    /// context.
    #[must_use]
    pub fn insert(&self, handle: usize, bytes: u64, place: Place) -> Option<Belonging> {
        let name = self.name();
        self.lock().insert(handle, Belonging { bytes, gpu: place.gpu, name, context: place.context })
    }

    /// An array into which memory was mapped at `place`, though nobody saw it being made.
    pub fn meet(&self, handle: usize, place: Place) -> Belonging {
        let name = self.name();
        let new = Belonging { bytes: 0, gpu: place.gpu, name, context: place.context };
        *self.lock().entry(handle).or_insert(new)
    }

    /// One that is held.
    pub fn find(&self, handle: usize) -> Option<Belonging> {
        self.lock().get(&handle).copied()
    }

    /// Takes one out, before the driver is asked to destroy it.
    pub fn take(&self, handle: usize) -> Option<Belonging> {
        self.lock().remove(&handle)
    }

    /// Takes one out if it is of `context`.
    pub fn take_of(&self, handle: usize, context: ContextId) -> Option<Belonging> {
        let mut held = self.lock();
        held.get(&handle).filter(|held| held.context == context)?;
        held.remove(&handle)
    }

    /// As [`Belongings::insert`], but the larger of the two stays where they are of one context. Answers the other.
    #[must_use]
    pub fn insert_larger(&self, handle: usize, bytes: u64, place: Place) -> Option<Belonging> {
        let new = Belonging { bytes, gpu: place.gpu, name: self.name(), context: place.context };
        let mut held = self.lock();
        let other = held.insert(handle, new)?;
        let stays = other.context == new.context && other.bytes > bytes;
        Some(if stays { held.insert(handle, other)? } else { other })
    }

    /// The driver refused to destroy it.
    pub fn put_back(&self, handle: usize, belonging: Belonging) {
        self.lock().insert(handle, belonging);
    }

    /// A context is gone and all that was its, which is answered.
    pub fn drop_context(&self, context: ContextId) -> Vec<Belonging> {
        self.lock().extract_if(|_, held| held.context == context).map(|(_, held)| held).collect()
    }

    fn name(&self) -> u64 {
        NAMES | self.made.fetch_add(1, Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<usize, Belonging>> {
        lock(&self.held)
    }
}
