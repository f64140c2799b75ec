//! Arrays and mipmaps, whose layout only the driver knows. What else is charged by a handle and goes with a context is kept
//! in the same way: limits of contexts, memory of other interfaces.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::contexts::ContextId;
use super::contexts::Place;
use super::gpus::Gpu;
use super::locks::lock;

/// An array, with what it is charged itself: nothing where the program maps memory into it.
#[derive(Clone, Copy)]
pub struct Array {
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
pub struct Arrays {
    held: Mutex<HashMap<usize, Array>>,
    made: AtomicU64,
}

/// Names of arrays, so that none is that of a multicast object.
const NAMES: u64 = 1 << 63;

impl Arrays {
    /// An array was made at `place` and is charged `bytes`. Answers the one that had the same handle and is gone with its
    /// context.
    #[must_use]
    pub fn insert(&self, handle: usize, bytes: u64, place: Place) -> Option<Array> {
        let name = self.name();
        self.lock().insert(handle, Array { bytes, gpu: place.gpu, name, context: place.context })
    }

    /// An array into which memory was mapped at `place`, though nobody saw it being made.
    pub fn meet(&self, handle: usize, place: Place) -> Array {
        let name = self.name();
        let new = Array { bytes: 0, gpu: place.gpu, name, context: place.context };
        *self.lock().entry(handle).or_insert(new)
    }

    /// An array that is held.
    pub fn find(&self, handle: usize) -> Option<Array> {
        self.lock().get(&handle).copied()
    }

    /// Takes an array out, before the driver is asked to destroy it.
    pub fn take(&self, handle: usize) -> Option<Array> {
        self.lock().remove(&handle)
    }

    /// Takes an array out if it is of `context`.
    pub fn take_of(&self, handle: usize, context: ContextId) -> Option<Array> {
        let mut held = self.lock();
        held.get(&handle).filter(|array| array.context == context)?;
        held.remove(&handle)
    }

    /// The driver refused to destroy it.
    pub fn put_back(&self, handle: usize, array: Array) {
        self.lock().insert(handle, array);
    }

    /// A context is gone and its arrays, which are answered.
    pub fn drop_context(&self, context: ContextId) -> Vec<Array> {
        self.lock().extract_if(|_, array| array.context == context).map(|(_, array)| array).collect()
    }

    fn name(&self) -> u64 {
        NAMES | self.made.fetch_add(1, Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<usize, Array>> {
        lock(&self.held)
    }
}
