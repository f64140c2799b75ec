//! `cuquota demo`: two containers on one card, played by running programs.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;

use super::budget;
use super::cards::{self, Card};
use super::client::{Answer, Client};
use super::demo_client::question;
use super::failure::Failure;
use super::session::{Session, Variables};
use super::sim::{DEFAULT_CARDS, Sim};
use super::units::human;
use super::{library, out};

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

/// The answer that every framework knows how to handle.
const OUT_OF_MEMORY: &str = "CUDA_ERROR_OUT_OF_MEMORY";

impl Demo {
    pub fn execute(self) -> Result<ExitCode, Failure> {
        let session = Session::new()?;
        let library = library::find(self.preload.as_deref())?;
        let machine = if self.real {
            Vec::new()
        } else {
            Sim::unpack(session.dir(), session.dir().join("cards"), DEFAULT_CARDS)?.variables()?
        };
        let preload = session.preload(&library)?;
        let inside = |name: &str, limit: u64| -> Result<Variables, Failure> {
            let quota = budget::simple(name, &cuquota::config::exact(limit))?;
            let mut variables = session.container(name, &quota)?.variables();
            variables.extend(machine.iter().cloned().chain([preload.clone()]));
            Ok(variables)
        };
        let (a, b) = (inside("a", SMALL)?, inside("b", LARGE)?);
        let card = first_card(&machine)?;
        if card.total < SMALL + LARGE {
            return Err(Failure::new(
                format_args!("the first GPU, {}, has only {}", card.name, human(card.total)),
                "leave --real out to play on a simulated card",
            ));
        }
        let mut play = Play::default();
        play.acts(&card, !self.real, &machine, &a, &b)?;
        play.verdict()
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

/// The session as it goes: every promise is checked against what the programs were answered.
#[derive(Default)]
struct Play {
    promises: u32,
    broken: u32,
}

/// A program and what to call it.
struct Actor {
    name: &'static str,
    client: Client,
}

impl Play {
    fn acts(
        &mut self,
        card: &Card,
        simulated: bool,
        machine: &Variables,
        a: &Variables,
        b: &Variables,
    ) -> Result<(), Failure> {
        let kind = if simulated { "a simulated card" } else { "this machine's card" };
        say(&format!(
            "One card, two containers ({kind}). Every line is what a running program was answered.\n"
        ))?;

        act("The card, as a program outside any container sees it")?;
        let mut outside = self.enter("outside", machine)?;
        let whole = self.look(&mut outside)?.total;
        self.promise("the whole card", whole == card.total)?;
        drop(outside);

        act("Container a is given 4 GiB, container b 8 GiB; a program starts in each")?;
        let mut first = self.enter("a/1", a)?;
        let seen = self.look(&mut first)?;
        self.promise("a sees a GPU of 4 GiB", seen.total == SMALL && seen.free <= SMALL)?;
        let mut neighbour = self.enter("b/1", b)?;
        let neighbour_at_start = self.look(&mut neighbour)?;
        self.promise("b sees a GPU of 8 GiB", neighbour_at_start.total == LARGE)?;

        act("Container a is held to its budget, though the card has room")?;
        let granted = self.take(&mut first, 3 * GI)?;
        self.promise("3 GiB of 4 GiB are granted", granted == Taken::Granted)?;
        let refused = self.take(&mut first, GI)?;
        self.promise("what does not fit is refused as the driver would", refused == Taken::out_of_memory())?;
        self.look(&mut first)?;

        act("A second program in container a shares the same budget")?;
        let mut second = self.enter("a/2", a)?;
        let seen = self.look(&mut second)?;
        self.promise("it finds only what the first left", seen.total == SMALL && seen.free < GI)?;
        let refused = self.take(&mut second, GI)?;
        self.promise("and cannot take more", refused == Taken::out_of_memory())?;

        act("Container b has its own budget and notices nothing")?;
        let now = self.look(&mut neighbour)?;
        self.promise("b's free memory has not changed", now == neighbour_at_start)?;
        let granted = self.take(&mut neighbour, 6 * GI)?;
        self.promise("6 GiB of 8 GiB are granted", granted == Taken::Granted)?;

        act("kill -9 on the first program of container a: its memory comes back")?;
        self.kill(&mut first)?;
        let back = self.wait_for_free(&mut second, 3 * GI)?;
        self.promise("within a second", back)?;
        let granted = self.take(&mut second, 3 * GI)?;
        self.promise("the second program takes it", granted == Taken::Granted)?;

        act("The programs end")?;
        for actor in [&mut second, &mut neighbour] {
            let status = actor.client.finish()?;
            line(actor.name, &format!("ended: {status}"))?;
            self.promise("as it would without cuquota", status.success())?;
        }
        Ok(())
    }

    fn enter(&mut self, name: &'static str, variables: &Variables) -> Result<Actor, Failure> {
        let mut variables = variables.clone();
        variables.push(("CUDA_DEVICE_ORDER", "PCI_BUS_ID".into()));
        let mut client = Client::start_seeing_all(&variables)?;
        match client.ask(question::START)? {
            Answer::Done(_) => Ok(Actor { name, client }),
            other => Err(Failure::new(
                format_args!("the program {name} cannot use the GPU: {}", words(&other)),
                "its own message above may say why; `cuquota check` looks at this machine's GPUs",
            )),
        }
    }

    fn look(&mut self, actor: &mut Actor) -> Result<Memory, Failure> {
        let answer = actor.client.ask(question::INFO)?;
        let memory = Memory::read(&answer).ok_or_else(|| unexpected(actor, &answer))?;
        line(actor.name, &format!("sees {} in all, {} free", human(memory.total), human(memory.free)))?;
        Ok(memory)
    }

    fn take(&mut self, actor: &mut Actor, bytes: u64) -> Result<Taken, Failure> {
        let answer = actor.client.allocate(bytes)?;
        let taken = match &answer {
            Answer::Done(answer) if answer.get("intact") == Some(&Value::Bool(true)) => Taken::Granted,
            Answer::Done(_) => Taken::Other("granted, but what was written did not come back".to_owned()),
            Answer::Refused(name) => Taken::Refused(name.clone()),
            Answer::NoDriver(words) => Taken::Other(words.clone()),
        };
        line(actor.name, &format!("asks for {}: {}", human(bytes), taken.words()))?;
        Ok(taken)
    }

    fn kill(&mut self, actor: &mut Actor) -> Result<(), Failure> {
        let id = actor.client.id();
        let status = actor.client.kill()?;
        line(actor.name, &format!("process {id}: {status}"))
    }

    /// Looks until `bytes` are free, or time is up.
    fn wait_for_free(&mut self, actor: &mut Actor, bytes: u64) -> Result<bool, Failure> {
        let start = Instant::now();
        loop {
            let answer = actor.client.ask(question::INFO)?;
            let memory = Memory::read(&answer).ok_or_else(|| unexpected(actor, &answer))?;
            let waited = start.elapsed();
            if memory.free >= bytes || waited >= BACK_WITHIN {
                let free = human(memory.free);
                let words = format!("sees {free} free {} ms after the kill", waited.as_millis());
                line(actor.name, &words)?;
                return Ok(memory.free >= bytes);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn promise(&mut self, what: &str, kept: bool) -> Result<(), Failure> {
        self.promises += 1;
        self.broken += u32::from(!kept);
        let mark = if kept { "ok" } else { "NOT AS PROMISED" };
        say(&format!("  {:7}  {mark}: {what}\n", ""))
    }

    fn verdict(&self) -> Result<ExitCode, Failure> {
        let kept = self.promises - self.broken;
        say(&format!("\n{kept} of {} promises kept\n", self.promises))?;
        Ok(if self.broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// How a request ended.
#[derive(PartialEq, Eq)]
enum Taken {
    Granted,
    Refused(String),
    Other(String),
}

impl Taken {
    fn out_of_memory() -> Self {
        Taken::Refused(OUT_OF_MEMORY.to_owned())
    }

    fn words(&self) -> String {
        match self {
            Taken::Granted => "granted, written at both ends and read back".to_owned(),
            Taken::Refused(name) => format!("refused, {name}"),
            Taken::Other(words) => words.clone(),
        }
    }
}

/// What `cuMemGetInfo` answered.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Memory {
    free: u64,
    total: u64,
}

impl Memory {
    fn read(answer: &Answer) -> Option<Self> {
        let Answer::Done(answer) = answer else { return None };
        let number = |key| answer.get(key).and_then(Value::as_u64);
        Some(Memory { free: number("free")?, total: number("total")? })
    }
}

fn unexpected(actor: &Actor, answer: &Answer) -> Failure {
    Failure::new(
        format_args!("the program {} asked how much memory there is: {}", actor.name, words(answer)),
        "its own message above may say why",
    )
}

fn words(answer: &Answer) -> String {
    match answer {
        Answer::Done(value) => value.to_string(),
        Answer::Refused(name) => name.clone(),
        Answer::NoDriver(words) => words.clone(),
    }
}

fn act(title: &str) -> Result<(), Failure> {
    say(&format!("\n{title}\n"))
}

fn line(who: &str, what: &str) -> Result<(), Failure> {
    say(&format!("  {who:7}  {what}\n"))
}

fn say(text: &str) -> Result<(), Failure> {
    out::print(text)
}
