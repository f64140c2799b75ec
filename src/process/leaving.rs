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
    /// `None` where it could not be recorded: then all goes with the context.
    event: Option<usize>,
    driver: usize,
    context: ContextId,
    bindings: Vec<Detached>,
}

impl Departure {
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
        let marked = Driver::get(driver).and_then(|api| mark(api, stream));
        let (event, context) =
            marked.map_or((None, None), |(event, context)| (Some(event as usize), context));
        let elsewhere = context.and_then(|context| process.contexts.of(process, driver, context));
        let context = elsewhere.unwrap_or(place).context;
        let mut pending = self.lock();
        pending.push(Departure { event, driver, context, bindings });
        self.count.store(pending.len(), Ordering::Release);
        drop(pending);
        self.settle(process);
    }

    /// Gives back what streams have let go of since; false where that is nothing.
    #[inline]
    pub fn settle(&self, process: &Process) -> bool {
        // While a capture is open, the question may break it.
        self.count.load(Ordering::Acquire) > 0 && !process.captures.are_open() && self.look(process, true)
    }

    #[cold]
    #[inline(never)]
    fn look(&self, process: &Process, ask: bool) -> bool {
        let looked_at = core::mem::take(&mut *self.lock());
        let is_over = |departure: &Departure| !process.contexts.is_there(departure.context);
        let (mut left, kept): (Vec<_>, Vec<_>) =
            looked_at.into_iter().partition(|departure| is_over(departure) || ask && has_left(departure));
        let mut pending = self.lock();
        pending.extend(kept);
        // A context that went meanwhile did not find them here.
        left.extend(pending.extract_if(.., |departure| is_over(departure)));
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

/// Whether the stream has come to the event, which is given back then.
fn has_left(departure: &Departure) -> bool {
    let (Some(event), Some(api)) = (departure.event, Driver::get(departure.driver)) else { return false };
    let event = event as CUevent;
    // SAFETY: an event of ours, whose context is there: it would have taken the departure with it.
    let left = unsafe { api.event_query(event) }.is_ok();
    if left {
        // SAFETY: nobody else knows the event.
        let _ = unsafe { api.event_destroy(event) };
    }
    left
}

/// Records an event in `stream`, and answers it with the stream's context where that is not the current one.
fn mark(api: &Driver, stream: CUstream) -> Option<(CUevent, Option<CUcontext>)> {
    let (mut current, mut context) = (core::ptr::null_mut(), core::ptr::null_mut());
    // SAFETY: the caller's stream, which the driver has just taken work for; the outputs are live locals.
    let other = unsafe {
        api.ctx_get_current(&mut current).ok()?;
        let own = stream as usize > PER_THREAD_STREAM as usize;
        own && api.stream_context(stream, &mut context).is_ok() && context != current
    };
    let record = || {
        let mut event: CUevent = core::ptr::null_mut();
        // SAFETY: the output is a live local of the type that the driver fills; the event is of the stream's context.
        unsafe {
            api.event_create(&mut event, EVENT_DISABLE_TIMING).ok()?;
            if api.event_record(event, stream).is_err() {
                let _ = api.event_destroy(event);
                return None;
            }
        }
        Some(event)
    };
    // SAFETY: a context that the driver has just named.
    let event = if other { unsafe { api.within(context, record) }? } else { record() };
    Some((event?, other.then_some(context)))
}
