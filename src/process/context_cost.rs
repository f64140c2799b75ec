//! What a context costs, which nobody says: learned from what the card has lost.

use crate::driver::Driver;
use crate::ledger::{Census, GpuIndex};
use crate::policy::{self, Share};

use super::Process;
use super::gpus::Gpu;

/// A card at one moment, and what of it is known. Bytes.
#[derive(Clone, Copy)]
pub(super) struct Sight {
    /// What anybody holds, the driver says.
    used: u64,
    /// What the neighbours say they hold.
    others: u64,
    /// What this container tells.
    census: Census,
}

impl Sight {
    /// The card of the current context; `None` where something changed meanwhile, so that the numbers do not belong
    /// together.
    pub(super) fn of(process: &Process, api: &Driver, card: &Gpu, gpu: GpuIndex) -> Option<Sight> {
        let census = process.ledger().census(gpu);
        let others = process.used_beside(card);
        let (mut free, mut total) = (0, 0);
        // SAFETY: the outputs are live locals of the types that the driver fills.
        unsafe { api.mem_info(&mut free, &mut total) }.ok()?;
        let used = total.saturating_sub(free) as u64;
        (process.ledger().census(gpu) == census).then_some(Sight { used, others, census })
    }

    /// What is held and known from nobody, contexts at their true cost among it.
    pub(super) fn unknown(&self) -> i64 {
        (self.used as i64).saturating_sub_unsigned(self.census.exact).saturating_sub_unsigned(self.others)
    }

    /// The container's contexts.
    pub(super) fn contexts(&self) -> u64 {
        self.census.contexts
    }
}

/// What a context seems to cost on the card of the current one, of which `uncounted` are not in the census yet; `None`
/// where it cannot be told.
pub(super) fn look(
    process: &Process,
    driver: usize,
    api: &Driver,
    card: &Gpu,
    gpu: GpuIndex,
    uncounted: u64,
) -> Option<Share> {
    let sample = || {
        let seen = Sight::of(process, api, card, gpu)?;
        // What other processes of the container say may be on its way, as with neighbours. What code takes was seen on the
        // card, too, and is no better known.
        let own = seen.census.own - process.code.on(card).min(seen.census.own);
        let others = seen.others.saturating_add(seen.census.exact.saturating_sub(own));
        policy::context_share(seen.used, own, others, seen.census.contexts + uncounted)
    };
    process.catch_up(driver);
    // Requests on their way are charged and not yet on the card: they only make a share look smaller.
    (0..SAMPLES).filter_map(|_| sample()).max()
}

/// Looks at the card for one opinion.
const SAMPLES: usize = 4;

/// What a context costs as far as anybody here has learned, with what was just seen.
pub(super) fn learn(process: &Process, gpu: &Gpu, index: GpuIndex, seen: Option<Share>) -> Option<u64> {
    let learned = process.ledger().context_cost(index);
    if let Some(seen) = seen
        && policy::is_learned(learned, seen, gpu.note_share(seen.bytes))
    {
        process.ledger().learn_context_cost(index, seen.bytes);
    }
    process.ledger().context_cost(index)
}
