//! Captures that were begun and are open still, while which some questions to the driver are not allowed: any thread's would
//! break them, unless that thread is in a mode of its own. One also ends with its stream, and with the context of that.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::abi::{Code, cuda};
use crate::driver::Driver;

use super::contexts::ContextId;
use super::drain;
use super::locks::lock;

/// See the module. Thread-safe.
#[derive(Default)]
pub struct Captures {
    /// The streams they were begun on, and the contexts of those as far as they are known.
    streams: Mutex<Vec<(usize, Option<ContextId>)>>,
    open: AtomicUsize,
    /// How many threads ask a question just now that a capture would not bear.
    asking: AtomicU32,
}

impl Captures {
    /// Whether one is open anywhere in this process.
    #[inline]
    pub fn are_open(&self) -> bool {
        self.open.load(Ordering::SeqCst) > 0
    }

    /// Asks the driver what a capture would not bear; `None` where one is open.
    pub fn outside<T>(&self, ask: impl FnOnce() -> T) -> Option<T> {
        // Said before it is looked: who begins one looks afterwards.
        self.asking.fetch_add(1, Ordering::SeqCst);
        let answer = if self.are_open() { None } else { Some(ask()) };
        self.asking.fetch_sub(1, Ordering::SeqCst);
        answer
    }

    /// Asks the driver what a capture would not bear of a thread in its usual mode.
    ///
    /// # Errors
    /// The driver's code, and `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` where it must not be asked.
    pub fn beside<T>(&self, api: &Driver, ask: impl Fn() -> Result<T, Code>) -> Result<T, Code> {
        let answer = self.outside(&ask).or_else(|| api.relaxed(ask));
        answer.unwrap_or(Err(cuda::STREAM_CAPTURE_UNSUPPORTED))
    }

    /// One is about to be begun on `stream`. Returns when no question is on its way any more.
    pub fn begun(&self, stream: usize, context: Option<ContextId>) {
        let mut streams = self.lock();
        streams.push((stream, context));
        self.open.store(streams.len(), Ordering::SeqCst);
        drop(streams);
        drain::wait(&self.asking);
    }

    /// The one on `stream` has ended, if that is where one was begun: threads' own streams go by the same name. Answers whether
    /// it was, and in which context.
    #[inline(never)]
    pub fn ended(&self, stream: usize) -> Option<Option<ContextId>> {
        let mut streams = self.lock();
        let place = streams.iter().position(|(begun, _)| *begun == stream)?;
        let (_, context) = streams.swap_remove(place);
        self.open.store(streams.len(), Ordering::SeqCst);
        Some(context)
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
