//! Programs on the stage of `demo`: what they do is printed as they are answered, and every promise is judged by that.

use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use cuquota::config::StatePlace;
use cuquota::ledger::{self, GpuState, Snapshot};
use serde_json::Value;

use super::client::{Answer, Client};
use super::demo_client::question;
use super::failure::Failure;
use super::out;
use super::session::Variables;
use super::units::human;

/// The answer that every framework knows how to handle.
const OUT_OF_MEMORY: &str = "CUDA_ERROR_OUT_OF_MEMORY";

/// The promises so far.
#[derive(Default)]
pub struct Score {
    made: u32,
    broken: u32,
}

impl Score {
    /// Prints whether a promise was kept.
    pub fn promise(&mut self, what: &str, kept: bool) -> Result<(), Failure> {
        self.made += 1;
        self.broken += u32::from(!kept);
        let mark = if kept { "ok" } else { "NOT AS PROMISED" };
        line("", &format!("{mark}: {what}"))
    }

    /// Prints how many were kept; success is all of them.
    pub fn verdict(&self) -> Result<ExitCode, Failure> {
        let kept = self.made - self.broken;
        out::print(&format!("\n{kept} of {} promises kept\n", self.made))?;
        Ok(if self.broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// A running program that uses the first GPU, and what to call it.
pub struct Actor {
    name: &'static str,
    client: Client,
}

impl Actor {
    /// Starts it with these variables, and makes its context.
    pub fn enter(name: &'static str, variables: &Variables) -> Result<Self, Failure> {
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

    /// Asks how much memory there is.
    pub fn look(&mut self) -> Result<Memory, Failure> {
        let answer = self.client.ask(question::INFO)?;
        let memory = Memory::read(&answer).ok_or_else(|| self.unexpected(&answer))?;
        line(self.name, &format!("sees {} in all, {} free", human(memory.total), human(memory.free)))?;
        Ok(memory)
    }

    /// Asks for memory, and writes to it.
    pub fn take(&mut self, bytes: u64) -> Result<Taken, Failure> {
        let answer = self.client.allocate(bytes)?;
        let taken = match &answer {
            Answer::Done(answer) if answer.get("intact") == Some(&Value::Bool(true)) => Taken::Granted,
            Answer::Done(_) => Taken::Other("granted, but what was written did not come back".to_owned()),
            Answer::Refused(name) => Taken::Refused(name.clone()),
            Answer::NoDriver(words) => Taken::Other(words.clone()),
        };
        line(self.name, &format!("asks for {}: {}", human(bytes), taken.words()))?;
        Ok(taken)
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) -> Result<(), Failure> {
        let id = self.client.id();
        let status = self.client.kill()?;
        line(self.name, &format!("process {id}: {status}"))
    }

    /// Looks until `bytes` are free or the time is up; whether they are.
    pub fn wait_for_free(&mut self, bytes: u64, within: Duration) -> Result<bool, Failure> {
        let start = Instant::now();
        loop {
            let answer = self.client.ask(question::INFO)?;
            let memory = Memory::read(&answer).ok_or_else(|| self.unexpected(&answer))?;
            let waited = start.elapsed();
            if memory.free >= bytes || waited >= within {
                let free = human(memory.free);
                let words = format!("sees {free} free {} ms after the kill", waited.as_millis());
                line(self.name, &words)?;
                return Ok(memory.free >= bytes);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Lets it come to its end.
    pub fn leave(&mut self) -> Result<ExitStatus, Failure> {
        let status = self.client.finish()?;
        line(self.name, &format!("ended: {status}"))?;
        Ok(status)
    }

    fn unexpected(&self, answer: &Answer) -> Failure {
        Failure::new(
            format_args!("the program {} asked how much memory there is: {}", self.name, words(answer)),
            "its own message above may say why",
        )
    }
}

/// What the ledger of a container says of its first GPU; printed as `status` would.
pub fn status(name: &str, place: &StatePlace) -> Result<GpuState, Failure> {
    // No ledger is what a library leaves that does not hold its programs: nothing is counted.
    let nothing = || GpuState {
        uuid: [0; 16],
        limit: None,
        reserve: 0,
        used: 0,
        shared: 0,
        lazy: 0,
        granted: 0,
        peak: 0,
        refusals: 0,
        context_cost: None,
    };
    let state = match ledger::find(place).map(|path| Snapshot::read(&path)) {
        None => nothing(),
        Some(Ok(snapshot)) => snapshot.gpus.into_iter().next().unwrap_or_else(nothing),
        Some(Err(reason)) => {
            return Err(Failure::new(reason, "this should not happen: please report it"));
        }
    };
    let words = format!(
        "{} in use, {} at the peak, {} refusals",
        human(state.used),
        human(state.peak),
        state.refusals
    );
    line(name, &words)?;
    Ok(state)
}

/// How a request ended.
#[derive(PartialEq, Eq)]
pub enum Taken {
    /// The memory is there.
    Granted,
    /// The driver refused, with the code of that name.
    Refused(String),
    /// Neither.
    Other(String),
}

impl Taken {
    /// The refusal that is promised.
    pub fn out_of_memory() -> Self {
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
pub struct Memory {
    /// Bytes that can still be had.
    pub free: u64,
    /// Bytes in all.
    pub total: u64,
}

impl Memory {
    fn read(answer: &Answer) -> Option<Self> {
        let Answer::Done(answer) = answer else { return None };
        let number = |key| answer.get(key).and_then(Value::as_u64);
        Some(Memory { free: number("free")?, total: number("total")? })
    }
}

fn words(answer: &Answer) -> String {
    match answer {
        Answer::Done(value) => value.to_string(),
        Answer::Refused(name) => name.clone(),
        Answer::NoDriver(words) => words.clone(),
    }
}

/// Prints what comes next.
pub fn act(title: &str) -> Result<(), Failure> {
    out::print(&format!("\n{title}\n"))
}

/// Prints what somebody was answered.
fn line(who: &str, what: &str) -> Result<(), Failure> {
    out::print(&format!("  {who:7}  {what}\n"))
}
