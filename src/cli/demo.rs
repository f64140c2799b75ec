//! `cuquota demo`: two containers on one card, played by running programs.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use cuquota::config::{Source, StatePlace};

use super::budget;
use super::cards::{self, Card};
use super::failure::Failure;
use super::play::{Actor, Score, Taken, act};
use super::session::{Session, Variables};
use super::sim::{DEFAULT_CARDS, Sim};
use super::units::human;
use super::{library, out, play};

/// Play a short session: two containers share one card
///
/// Starts real programs in two containers, with 4 GiB and 8 GiB of one 16 GiB card, and prints what they are
/// answered: what each sees, what is granted, what is refused, and what happens when one is killed. The card is
/// simulated unless --real is given. Exits with 1 if anything goes other than cuquota promises.
#[derive(Args)]
pub struct Demo {
    /// Use this machine's first GPU, which must have 12 GiB free, instead of a simulated one
    #[arg(long)]
    real: bool,

    /// The preload library [default: beside this executable, then ../lib/cuquota/libcuquota.so from there]
    #[arg(long, value_name = "PATH")]
    preload: Option<PathBuf>,
}

const GI: u64 = 1 << 30;
const SMALL: u64 = 4 * GI;
const LARGE: u64 = 8 * GI;

/// Memory of a killed program must be back within this time.
const BACK_WITHIN: Duration = Duration::from_secs(1);

impl Demo {
    pub fn execute(self) -> Result<ExitCode, Failure> {
        if Source::is_governed() {
            return Err(Failure::new(
                format_args!("{} exists and governs: no other budget can be shown", Source::GOVERNING),
                "play the demo where that file is not there",
            ));
        }
        let session = Session::new()?;
        let library = library::find(self.preload.as_deref())?;
        let machine = if self.real {
            Vec::new()
        } else {
            Sim::unpack(session.dir(), session.dir().join("cards"), DEFAULT_CARDS)?.variables()?
        };
        let preload = session.preload(&library)?;
        let inside = |name: &str, limit: u64| -> Result<(Variables, StatePlace), Failure> {
            let quota = budget::simple(name, &cuquota::config::exact(limit))?;
            let container = session.container(name, &quota)?;
            let mut variables = container.variables();
            variables.extend(machine.iter().cloned().chain([preload.clone()]));
            Ok((variables, StatePlace::Explicit(container.state)))
        };
        let (a, b) = (inside("a", SMALL)?, inside("b", LARGE)?);
        let card = first_card(&machine)?;
        if card.total < SMALL + LARGE {
            return Err(Failure::new(
                format_args!("the first GPU, {}, has only {}", card.name, human(card.total)),
                "leave --real out to play on a simulated card",
            ));
        }
        let mut score = Score::default();
        acts(&mut score, &card, !self.real, &machine, (&a.0, &a.1), (&b.0, &b.1))?;
        score.verdict()
    }
}

fn first_card(machine: &Variables) -> Result<Card, Failure> {
    let cards = cards::list(machine)?.map_err(|reason| {
        Failure::new(reason, "leave --real out to play on a simulated card, or install the NVIDIA driver")
    })?;
    cards.into_iter().next().ok_or_else(|| {
        Failure::new("the driver lists no GPU", "leave --real out to play on a simulated card")
    })
}

/// The variables that put a program into a container, and where that container's state is.
type Inside<'a> = (&'a Variables, &'a StatePlace);

/// The session, act by act.
fn acts(
    score: &mut Score,
    card: &Card,
    simulated: bool,
    machine: &Variables,
    (a, a_state): Inside<'_>,
    (b, b_state): Inside<'_>,
) -> Result<(), Failure> {
    let kind = if simulated { "a simulated card" } else { "this machine's card" };
    out::print(&format!(
        "One card, two containers ({kind}). Every line is what a running program was answered.\n"
    ))?;

    act("The card, as a program outside any container sees it")?;
    let mut outside = Actor::enter("outside", machine)?;
    let whole = outside.look()?.total;
    score.promise("the whole card", whole == card.total)?;
    drop(outside);

    act("Container a is given 4 GiB, container b 8 GiB; a program starts in each")?;
    let mut first = Actor::enter("a/1", a)?;
    let seen = first.look()?;
    score.promise("a sees a GPU of 4 GiB", seen.total == SMALL && seen.free <= SMALL)?;
    let mut neighbour = Actor::enter("b/1", b)?;
    let neighbour_at_start = neighbour.look()?;
    score.promise("b sees a GPU of 8 GiB", neighbour_at_start.total == LARGE)?;

    act("Container a is held to its budget, though the card has room")?;
    let granted = first.take(3 * GI)?;
    score.promise("3 GiB of 4 GiB are granted", granted == Taken::Granted)?;
    let refused = first.take(GI)?;
    score.promise("what does not fit is refused as the driver would", refused == Taken::out_of_memory())?;
    first.look()?;

    act("A second program in container a shares the same budget")?;
    let mut second = Actor::enter("a/2", a)?;
    let seen = second.look()?;
    score.promise("it finds only what the first left", seen.total == SMALL && seen.free < GI)?;
    let refused = second.take(GI)?;
    score.promise("and cannot take more", refused == Taken::out_of_memory())?;

    act("Container b has its own budget and notices nothing")?;
    let now = neighbour.look()?;
    score.promise("b's free memory has not changed", now == neighbour_at_start)?;
    let granted = neighbour.take(6 * GI)?;
    score.promise("6 GiB of 8 GiB are granted", granted == Taken::Granted)?;

    act("kill -9 on the first program of container a: its memory comes back")?;
    first.kill()?;
    let back = second.wait_for_free(3 * GI, BACK_WITHIN)?;
    score.promise("within a second", back)?;
    let granted = second.take(3 * GI)?;
    score.promise("the second program takes it", granted == Taken::Granted)?;

    act("`cuquota status` of the two containers, read from the state that their programs share")?;
    let state = play::status("a", a_state)?;
    let within = state.used <= SMALL && state.peak <= SMALL && state.used >= 3 * GI;
    score.promise(
        "a never held more than 4 GiB, and its 2 refusals are counted",
        within && state.refusals == 2,
    )?;
    let state = play::status("b", b_state)?;
    let within = state.peak <= LARGE && state.used >= 6 * GI;
    score.promise("b never held more than 8 GiB, and was refused nothing", within && state.refusals == 0)?;

    act("The programs end")?;
    for actor in [&mut second, &mut neighbour] {
        let status = actor.leave()?;
        score.promise("as it would without cuquota", status.success())?;
    }
    let (a, b) = (play::status("a", a_state)?, play::status("b", b_state)?);
    score.promise("nothing is left behind", a.used == 0 && b.used == 0)
}
