//! Captures that were begun and are open still, while which some questions to the driver are not allowed. One also ends with
//! its stream, and with the context of that.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::contexts::ContextId;
use super::locks::lock;

/// See the module. Thread-safe.
#[derive(Default)]
pub struct Captures {
    /// The streams they were begun on, and the contexts of those as far as they are known.
    streams: Mutex<Vec<(usize, Option<ContextId>)>>,
    open: AtomicUsize,
}

impl Captures {
    /// Whether one is open anywhere in this process.
    #[inline]
    pub fn are_open(&self) -> bool {
        self.open.load(Ordering::SeqCst) > 0
    }

    /// One is about to be begun on `stream`.
    pub fn begun(&self, stream: usize, context: Option<ContextId>) {
        let mut streams = self.lock();
        streams.push((stream, context));
        self.open.store(streams.len(), Ordering::SeqCst);
    }

    /// The one on `stream` has ended, if that is where one was begun: threads' own streams go by the same name.
    #[inline(never)]
    pub fn ended(&self, stream: usize) {
        let mut streams = self.lock();
        if let Some(place) = streams.iter().position(|(begun, _)| *begun == stream) {
            streams.swap_remove(place);
        }
        self.open.store(streams.len(), Ordering::SeqCst);
    }

    /// A context is gone, and its streams.
    pub fn context_gone(&self, context: ContextId) {
        let mut streams = self.lock();
        streams.retain(|(_, of)| *of != Some(context));
        self.open.store(streams.len(), Ordering::SeqCst);
    }

    #[inline(never)]
    fn lock(&self) -> MutexGuard<'_, Vec<(usize, Option<ContextId>)>> {
        lock(&self.streams)
    }
}
