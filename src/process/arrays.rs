//! Arrays and mipmaps, whose layout only the driver knows.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use super::contexts::ContextId;
use super::contexts::Place;
use super::gpus::Gpu;

/// An array that is charged.
#[derive(Clone, Copy)]
pub struct Array {
    /// What it is charged, in bytes.
    pub bytes: u64,
    /// The card it lies on.
    pub gpu: &'static Gpu,
    context: ContextId,
}

/// See the module. Thread-safe.
#[derive(Default)]
pub struct Arrays {
    held: Mutex<HashMap<usize, Array>>,
}

impl Arrays {
    /// An array was made at `place` and is charged `bytes`. Answers the one that had the same handle and is gone with its
    /// context.
    #[must_use]
    pub fn insert(&self, handle: usize, bytes: u64, place: Place) -> Option<Array> {
        self.lock().insert(handle, Array { bytes, gpu: place.gpu, context: place.context })
    }

    /// Takes an array out, before the driver is asked to destroy it.
    pub fn take(&self, handle: usize) -> Option<Array> {
        self.lock().remove(&handle)
    }

    /// The driver refused to destroy it.
    pub fn put_back(&self, handle: usize, array: Array) {
        self.lock().insert(handle, array);
    }

    /// A context is gone and its arrays; answers what that gives back, in bytes.
    pub fn drop_context(&self, context: ContextId) -> u64 {
        self.lock().extract_if(|_, array| array.context == context).map(|(_, array)| array.bytes).sum()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<usize, Array>> {
        self.held.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
