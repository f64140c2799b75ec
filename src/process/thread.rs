//! What a thread remembers between its calls: all in one place, because finding a thread's own memory costs a call
//! into the loader, and a hook does so once.

use core::cell::Cell;

use super::contexts::Last;

/// See the module.
pub struct Thread {
    /// Where on the stack the hooked call began that the thread is inside of; 0 for none.
    pub inside: Cell<usize>,
    /// The context that its last request found current.
    pub last: Cell<Option<Last>>,
    /// Bytes charged already for a context that it is making and has not met yet.
    pub coming: Cell<u64>,
}

thread_local! {
    // Nothing in it is dropped at the thread's end, so that it can be used to the very last.
    static THREAD: Thread =
        const { Thread { inside: Cell::new(0), last: Cell::new(None), coming: Cell::new(0) } };
}

/// Runs `body` with what this thread remembers.
#[inline]
pub fn with<R>(body: impl FnOnce(&Thread) -> R) -> R {
    THREAD.with(body)
}
