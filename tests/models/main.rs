//! The ledger's protocols under every interleaving: the source that the library uses, compiled against loom's atomics.
//!
//! Loom runs each model once for every order in which the threads' steps can take place (with a bound on
//! preemptions), and lets loads return every value that the memory model allows.

mod card;
mod column;
mod requests;
mod slots;

/// What the protocols are written with, here loom's.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}
#[path = "../../src/ledger/beside.rs"]
mod beside;
#[allow(dead_code, reason = "the models give their own numbers")]
#[path = "../../src/ledger/owner.rs"]
mod owner;
#[allow(dead_code, reason = "the models use a part of it")]
#[path = "../../src/ledger/protocol.rs"]
mod protocol;

use loom::sync::Arc;
use loom::thread::JoinHandle;

/// Runs `check` under every interleaving with no more preemptions than these.
fn model(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(check);
}

/// Starts a thread on what it shares with others.
fn spawn<S: 'static, T: 'static>(shared: &Arc<S>, run: impl FnOnce(&S) -> T + 'static) -> JoinHandle<T> {
    let shared = Arc::clone(shared);
    loom::thread::spawn(move || run(&shared))
}

/// Makes the requests at once, the first in this thread; their answers, in order.
fn race<S: 'static, R: Copy + 'static, T: 'static>(
    shared: &Arc<S>,
    requests: &[R],
    ask: impl Fn(&S, R) -> T + Copy + 'static,
) -> Vec<T> {
    let start = |&request: &R| spawn(shared, move |shared| ask(shared, request));
    let others: Vec<_> = requests[1..].iter().map(start).collect();
    let mut answers = vec![ask(shared, requests[0])];
    answers.extend(others.into_iter().map(|thread| thread.join().expect("no panic")));
    answers
}
