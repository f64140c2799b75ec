//! Bindings that the driver undoes in stream order: they keep what is bound until the stream has come that far.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::abi::*;
use crate::driver::Driver;
use crate::gate;

use super::Process;
use super::contexts::{ContextId, Place};
use super::locks::lock;
use super::physical::Detached;

/// What is unbound when a stream has come to `event`.
struct Departure {
    /// `None` while it could not be recorded.
    event: Option<usize>,
    stream: usize,
    /// The stream's context as the driver names it, which may stand for a green one.
    handle: Option<usize>,
    /// The one that is charged: all goes with it at the latest.
    context: ContextId,
    driver: usize,
    bindings: Vec<Detached>,
}

impl Departure {
    /// Records the event, if that may be done now. In the legacy stream it would break captures, and may be done later as well
    /// as at once; other streams may be gone by then, or mean another one to another thread.
    fn mark(&mut self, process: &Process, at_once: bool) {
        let legacy = self.stream < PER_THREAD_STREAM as usize;
        let contexts = &process.contexts;
        // With a green context its name goes, and nothing else.
        let named = |handle: &usize| contexts.is_named(self.driver, *handle);
        let handle = || [self.handle, contexts.name_of(self.context)].into_iter().flatten().find(named);
        if self.event.is_none()
            && (legacy || at_once)
            && let (Some(api), Some(handle)) = (Driver::get(self.driver), handle())
        {
            let record = || record(api, self.stream as CUstream, handle as CUcontext);
            self.event = if legacy { process.captures.outside(record).flatten() } else { record() };
        }
    }

    fn is_over(&self, process: &Process) -> bool {
        !process.contexts.is_there(self.context)
    }

    /// Whether the stream has come to the event, which is given back then.
    fn has_left(&self, process: &Process) -> bool {
        let (Some(event), Some(api)) = (self.event, Driver::get(self.driver)) else { return false };
        let event = event as CUevent;
        // SAFETY: an event of ours, whose context is there: it would have taken the departure with it.
        let left = process.captures.beside(api, || unsafe { api.event_query(event) }).is_ok();
        if left {
            // SAFETY: nobody else knows the event.
            let _ = unsafe { api.event_destroy(event) };
        }
        left
    }

    fn leave(self, process: &Process) {
        for bindings in self.bindings {
            gate::gone(process, process.physical.unbound(bindings));
        }
    }
}

/// See the module. Thread-safe; no lock is held while the driver is asked.
#[derive(Default)]
pub struct Leaving {
    pending: Mutex<Vec<Departure>>,
    /// How many there are, for those who need not look.
    count: AtomicUsize,
}

impl Leaving {
    /// `bindings` are undone once `stream` has done what it was given; `place` is the current one. A stream that has nothing to
    /// do has done that already.
    pub fn add(
        &self,
        process: &Process,
        driver: usize,
        place: Place,
        stream: CUstream,
        bindings: Vec<Detached>,
    ) {
        if bindings.is_empty() {
            return;
        }
        let context = Driver::get(driver).and_then(|api| context_of(api, stream));
        let elsewhere = context.and_then(|context| process.contexts.of(process, driver, context));
        let mut departure = Departure {
            event: None,
            stream: stream as usize,
            handle: context.map(|context| context as usize),
            context: elsewhere.unwrap_or(place).context,
            driver,
            bindings,
        };
        departure.mark(process, true);
        let mut pending = self.lock();
        pending.push(departure);
        self.count.store(pending.len(), Ordering::Release);
        drop(pending);
        self.settle(process);
    }

    /// Gives back what streams have let go of since; false where that is nothing.
    #[inline]
    pub fn settle(&self, process: &Process) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.look(process, true)
    }

    #[cold]
    #[inline(never)]
    fn look(&self, process: &Process, ask: bool) -> bool {
        let looked_at = core::mem::take(&mut *self.lock());
        let (mut left, mut kept) = (Vec::new(), Vec::new());
        for mut departure in looked_at {
            let over = departure.is_over(process);
            if ask && !over {
                departure.mark(process, false);
            }
            if over || ask && departure.has_left(process) {
                left.push(departure)
            } else {
                kept.push(departure)
            }
        }
        let mut pending = self.lock();
        pending.extend(kept);
        // A context that went meanwhile did not find them here.
        left.extend(pending.extract_if(.., |departure| departure.is_over(process)));
        self.count.store(pending.len(), Ordering::Release);
        drop(pending);
        let any = !left.is_empty();
        left.into_iter().for_each(|departure| departure.leave(process));
        any
    }

    /// Contexts are being forgotten that are not there any more, and all that their streams had to do with them.
    pub fn drop_contexts(&self, process: &Process) {
        if self.count.load(Ordering::Acquire) > 0 {
            self.look(process, false);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Departure>> {
        lock(&self.pending)
    }
}

/// The context of a stream that the driver has just taken work for.
fn context_of(api: &Driver, stream: CUstream) -> Option<CUcontext> {
    let mut context = core::ptr::null_mut();
    // SAFETY: the caller's stream; the output is a live local of the type that the driver fills.
    unsafe {
        if stream as usize > PER_THREAD_STREAM as usize {
            api.stream_context(stream, &mut context)
        } else {
            api.ctx_get_current(&mut context)
        }
    }
    .ok()?;
    Some(context)
}

/// Records an event in `stream`, which is of `context`.
fn record(api: &Driver, stream: CUstream, context: CUcontext) -> Option<usize> {
    let event = || {
        let mut event: CUevent = core::ptr::null_mut();
        // SAFETY: the output is a live local of the type that the driver fills; the event is of the stream's context.
        unsafe {
            api.event_create(&mut event, EVENT_DISABLE_TIMING).ok()?;
            if api.event_record(event, stream).is_err() {
                let _ = api.event_destroy(event);
                return None;
            }
        }
        Some(event as usize)
    };
    // SAFETY: a context that the driver has named; a dead one is refused.
    unsafe { api.within(context, event) }?
}
