//! What a context costs, which nobody says: learned from what the card has lost.

use std::sync::atomic::Ordering;

use crate::driver::Driver;
use crate::ledger::GpuIndex;
use crate::policy;

use super::Process;
use super::gpus::Gpu;

/// What a context seems to cost on the card of the current one, of which `uncounted` are not in the census yet; `None`
/// where it cannot be told.
pub(super) fn look(
    process: &Process,
    api: &Driver,
    card: &Gpu,
    gpu: GpuIndex,
    uncounted: u64,
) -> Option<u64> {
    let sample = || {
        let before = process.ledger().census(gpu);
        let others = process.used_beside(card);
        let (mut free, mut total) = (0, 0);
        // SAFETY: the outputs are live locals of the types that the driver fills.
        unsafe { api.mem_info(&mut free, &mut total) }.ok()?;
        // Where something changed meanwhile, the numbers do not belong together.
        (process.ledger().census(gpu) == before).then_some(())?;
        let card_used = total.saturating_sub(free) as u64;
        policy::context_share(card_used, before.exact, others, before.contexts + uncounted)
    };
    // Requests on their way are charged and not yet on the card: they only make a share look smaller.
    (0..SAMPLES).filter_map(|_| sample()).max()
}

/// Looks at the card for one opinion.
const SAMPLES: usize = 4;

/// What a context costs as far as anybody here has learned, with what was just seen.
pub(super) fn learn(process: &Process, gpu: &Gpu, index: GpuIndex, seen: Option<u64>) -> Option<u64> {
    let learned = process.ledger().context_cost(index);
    if let Some(seen) = seen
        && policy::is_learned(learned, seen, gpu.context_share_seen.swap(seen, Ordering::Relaxed))
    {
        process.ledger().learn_context_cost(index, seen);
    }
    process.ledger().context_cost(index)
}
