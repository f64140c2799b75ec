//! What one route is worth: every function that takes memory is asked for more than there is, and for a little.

use cuquota::config::Source;
use cuquota::ledger::{self, Snapshot};
use cuquota::sys::probe::{ENTRIES, Entry, Size};
use serde_json::{Value, json};

use super::super::failure::Failure;
use super::super::units::human;
use super::findings::Finding;
use super::probe::{Found, Probe};

/// What is to be said of one function by one route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is held to the budget.
    Capped,
    /// It is not.
    Escapes,
    /// This driver has no such route or function.
    Absent,
    /// It could not be tried.
    Untried,
}

impl Verdict {
    /// The word for it, on a terminal and in JSON.
    pub fn mark(self) -> &'static str {
        match self {
            Verdict::Capped => "capped",
            Verdict::Escapes => "ESCAPES",
            Verdict::Absent => "absent",
            Verdict::Untried => "untried",
        }
    }
}

/// One function by one route.
pub struct Row {
    /// The route's word.
    pub route: &'static str,
    /// The function.
    pub entry: &'static str,
    /// What it came to.
    pub verdict: Verdict,
    /// Why, in words.
    pub words: String,
}

impl Row {
    /// As JSON.
    pub fn json(&self) -> Value {
        let verdict = self.verdict.mark().to_lowercase();
        json!({ "route": self.route, "function": self.entry, "verdict": verdict, "detail": self.words })
    }
}

const OUT_OF_MEMORY: i64 = 2;
const NOT_PERMITTED: i64 = 800;
const NOT_SUPPORTED: i64 = 801;

/// The route by which everything is asked that need be asked once.
pub const FIRST: &str = "dlsym";

/// A little: a few of the driver's blocks.
const LITTLE: u64 = 4 << 20;

/// How a probe went.
pub struct Way {
    /// The route's word.
    pub route: &'static str,
    /// Whether the library is mapped there.
    pub loaded: bool,
    /// What is at its end.
    pub found: Found,
}

/// Tries every function by the route that `probe` went.
pub fn of_route(
    Way { route, loaded, found }: Way,
    mut probe: Probe,
    findings: &mut Vec<Finding>,
    notices: &mut Vec<String>,
) -> Result<Vec<Row>, Failure> {
    let all = |verdict, words: &str| -> Vec<Row> {
        ENTRIES
            .iter()
            .map(|entry| Row { route, entry: entry.symbol, verdict, words: words.to_owned() })
            .collect()
    };
    match found {
        Found::Absent(words) => return Ok(all(Verdict::Absent, &words)),
        Found::Loader(words) => return Ok(all(Verdict::Untried, &words)),
        Found::Driver(_) => {}
    }
    let started = probe.ask("start")?;
    let rows = match (started.get("uuid").and_then(uuid), code(&started)) {
        (Some(uuid), _) => {
            if route == FIRST {
                findings.push(nvml(&mut probe, started.get("total").and_then(Value::as_u64))?);
            }
            let total = started.get("total").and_then(Value::as_u64).unwrap_or(u64::MAX - LITTLE);
            let mut trial = Trial { probe: &mut probe, loaded, uuid, over: total.saturating_add(LITTLE) };
            let tried: Result<Vec<Row>, Failure> = ENTRIES
                .iter()
                .map(|entry| {
                    let (verdict, words) = trial.of(entry)?;
                    Ok(Row { route, entry: entry.symbol, verdict, words })
                })
                .collect();
            tried?
        }
        (None, code) => {
            let (what, remedy) = match code {
                // What is wrong with the quota is said elsewhere.
                NOT_PERMITTED => ("the quota is refused: no program gets the GPU".to_owned(), "see above"),
                OUT_OF_MEMORY => (
                    "there is no room for a context within the budget".to_owned(),
                    "end programs of this container (`cuquota status` lists them), or raise the limit",
                ),
                code => (
                    format!("the driver answers {code} to a program that starts to use the GPU"),
                    "does the GPU work without cuquota?",
                ),
            };
            if !findings.iter().any(|finding| finding.what == what) {
                findings.push(Finding::problem(what.clone(), remedy));
            }
            all(Verdict::Untried, &what)
        }
    };
    notices.push(probe.finish()?);
    Ok(rows)
}

/// Whether NVML says the same of the GPU's memory as CUDA does.
fn nvml(probe: &mut Probe, cuda: Option<u64>) -> Result<Finding, Failure> {
    let answer = probe.ask("nvml")?;
    let nvml = answer.get("total").and_then(Value::as_u64);
    let words = answer.get("words").and_then(Value::as_str).unwrap_or("it gives no reason");
    let human = |bytes: Option<u64>| bytes.map_or("nothing".to_owned(), human);
    Ok(match nvml {
        _ if nvml == cuda => Finding::fine(format!("CUDA and NVML both report a GPU of {}", human(cuda))),
        None => Finding::note(
            format!("NVML does not report the GPU's memory: {words}"),
            "programs that ask it, such as nvidia-smi, need libnvidia-ml.so.1 in the container (capability `utility`)",
        ),
        Some(_) => Finding::problem(
            format!("NVML reports a GPU of {} where CUDA reports {}", human(nvml), human(cuda)),
            "programs that size themselves by NVML ask for more than there is: please report it",
        ),
    })
}

fn uuid(value: &Value) -> Option<[u8; 16]> {
    let bytes: Option<Vec<u8>> =
        value.as_array()?.iter().map(|byte| u8::try_from(byte.as_u64()?).ok()).collect();
    bytes?.try_into().ok()
}

fn code(answer: &Value) -> i64 {
    answer.get("code").and_then(Value::as_i64).unwrap_or(0)
}

/// What the container's ledger says of the probe and its GPU.
#[derive(Clone, Copy)]
struct Seen {
    used: u64,
    refusals: u64,
    unlimited: bool,
}

struct Trial<'a> {
    probe: &'a mut Probe,
    loaded: bool,
    uuid: [u8; 16],
    /// More than the GPU has, as far as programs are told.
    over: u64,
}

impl Trial<'_> {
    fn of(&mut self, entry: &Entry) -> Result<(Verdict, String), Failure> {
        let before = self.look();
        let mut refused = false;
        if entry.size == Size::Any {
            let answer = self.take(entry, self.over)?;
            if answer.get("missing").is_some() {
                return Ok((Verdict::Absent, "this driver has none".to_owned()));
            }
            self.probe.ask("give back")?;
            match code(&answer) {
                0 if !before.is_some_and(|seen| seen.unlimited) => {
                    return Ok((Verdict::Escapes, "was granted more than there is".to_owned()));
                }
                NOT_SUPPORTED => return Ok((Verdict::Absent, "not supported by this driver".to_owned())),
                OUT_OF_MEMORY => refused = self.refused_since(before),
                _ => {}
            }
        }
        let before = self.look();
        let answer = self.take(entry, LITTLE)?;
        if answer.get("missing").is_some() {
            return Ok((Verdict::Absent, "this driver has none".to_owned()));
        }
        let after = self.look();
        self.probe.ask("give back")?;
        Ok(match (code(&answer), before, after) {
            (OUT_OF_MEMORY, ..) if self.refused_since(before) => {
                (Verdict::Capped, "there is no room within the budget, and it is refused".to_owned())
            }
            (NOT_SUPPORTED, ..) => (Verdict::Absent, "not supported by this driver".to_owned()),
            (0, Some(before), Some(after)) => {
                let counted = after.used.saturating_sub(before.used);
                let enough = if entry.size == Size::Own { counted > 0 } else { counted >= LITTLE };
                match (enough, refused || after.unlimited || entry.size != Size::Any) {
                    (true, true) => (Verdict::Capped, "is counted, and refused beyond the budget".to_owned()),
                    (true, false) => (Verdict::Escapes, "is counted, but not refused".to_owned()),
                    (false, _) => (Verdict::Escapes, "was granted without being counted".to_owned()),
                }
            }
            (0, ..) if !self.loaded => (Verdict::Escapes, "was granted without being counted".to_owned()),
            // Without shared state only the refusal itself shows, and that the state is missing is said elsewhere.
            (0, ..) => (Verdict::Untried, "there is no shared state to see it in".to_owned()),
            (code, ..) => (Verdict::Untried, format!("the driver answers {code}")),
        })
    }

    fn take(&mut self, entry: &Entry, bytes: u64) -> Result<Value, Failure> {
        self.probe.ask(&format!("take {} {bytes}", entry.symbol))
    }

    fn refused_since(&self, before: Option<Seen>) -> bool {
        // Before the first request there is no record of the GPU.
        let earlier = before.map_or(0, |seen| seen.refusals);
        self.look().is_some_and(|now| now.refusals > earlier)
    }

    fn look(&self) -> Option<Seen> {
        let path = ledger::find(&Source::locate().ok()?.state)?;
        let snapshot = Snapshot::read(&path).ok()?;
        let gpu = snapshot.gpus.iter().position(|gpu| gpu.uuid == self.uuid)?;
        let process =
            snapshot.processes.iter().find(|process| process.alive && process.pid == self.probe.id());
        Some(Seen {
            used: process.and_then(|process| process.used.get(gpu).copied()).unwrap_or(0),
            refusals: snapshot.gpus[gpu].refusals,
            unlimited: snapshot.gpus[gpu].limit == Some(u64::MAX),
        })
    }
}
