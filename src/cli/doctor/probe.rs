//! The probe: this executable, started anew inside the container, which goes one route to the driver and asks for memory
//! as it is told, a line of JSON for each line. And the doctor's end of that conversation.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};

use cuquota::sys::probe::{self, ENTRIES, Held, NoWay, ROUTES, Reach};
use serde_json::{Value, json};

use super::super::failure::{Context, Failure};

/// The hidden subcommand that starts it.
pub const NAME: &str = "__doctor-probe";

const INTERNAL: &str = "this subcommand is for cuquota's own use";
const BUG: &str = "this should not happen: please report it";

/// What the probe is told.
#[derive(clap::Args)]
pub struct Arguments {
    /// The word of a route
    route: String,
    /// The driver, by name or path
    driver: OsString,
    /// The plug-in to open
    plugin: OsString,
}

/// Runs the probe.
pub fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let known = ROUTES.iter().find(|(_, word, _)| *word == arguments.route);
    let (route, ..) = known.ok_or_else(|| Failure::new("no such route", INTERNAL))?;
    let library = probe::library_is_loaded();
    let reach = match Reach::open(*route, Path::new(&arguments.driver), Path::new(&arguments.plugin)) {
        Ok(reach) => reach,
        Err(NoWay::Absent(words)) => return say(&json!({ "library": library, "absent": words })),
        Err(NoWay::Loader(words)) => return say(&json!({ "library": library, "loader": words })),
    };
    say(&json!({ "library": library, "driver": probe::driver_path().ok() }))?;
    let mut held: Option<Held> = None;
    for line in std::io::stdin().lock().lines() {
        let line = line.context("read standard input", INTERNAL)?;
        let mut words = line.split(' ');
        let answer = match (words.next(), words.next(), words.next()) {
            (Some("start"), ..) => match reach.start() {
                Ok(uuid) => json!({ "uuid": uuid, "total": reach.total().ok() }),
                Err(code) => json!({ "code": code }),
            },
            (Some("nvml"), ..) => match reach.nvml_total() {
                Ok(total) => json!({ "total": total }),
                Err(words) => json!({ "words": words }),
            },
            (Some("take"), Some(symbol), Some(bytes)) => take(&reach, symbol, bytes, &mut held),
            _ => {
                if let Some(held) = held.take() {
                    held.give_back(&reach);
                }
                json!({})
            }
        };
        say(&answer)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn take(reach: &Reach, symbol: &str, bytes: &str, held: &mut Option<Held>) -> Value {
    let entry = ENTRIES.iter().find(|entry| entry.symbol == symbol);
    match entry.zip(bytes.parse().ok()).and_then(|(entry, bytes)| entry.take(reach, bytes)) {
        None => json!({ "missing": true }),
        Some(Err(code)) => json!({ "code": code }),
        Some(Ok(memory)) => {
            *held = Some(memory);
            json!({ "code": 0 })
        }
    }
}

fn say(answer: &Value) -> Result<ExitCode, Failure> {
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "{answer}").and_then(|()| out.flush());
    written.context("write to standard output", INTERNAL)?;
    Ok(ExitCode::SUCCESS)
}

/// A running probe. Killed when dropped.
pub struct Probe {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// What a probe found at the end of its route.
pub enum Found {
    /// The driver, at that path.
    Driver(Option<String>),
    /// A driver that cannot be reached so.
    Absent(String),
    /// The loader's refusal.
    Loader(String),
}

impl Probe {
    /// Sends a probe down that route. Also answers whether the library is mapped there.
    pub fn send(route: &str, driver: &Path, plugin: &Path) -> Result<(Probe, bool, Found), Failure> {
        let executable = std::env::current_exe().context("find this executable", BUG)?;
        let mut command = Command::new(executable);
        command.arg(NAME).arg(route).arg(driver).arg(plugin);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("start this executable anew", BUG)?;
        let (Some(questions), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::new("a probe without its pipes", BUG));
        };
        let mut probe = Probe { child, questions: Some(questions), answers: BufReader::new(answers) };
        let hello = probe.answer()?;
        let text = |key: &str| hello.get(key).and_then(Value::as_str).map(str::to_owned);
        let found = match (text("absent"), text("loader")) {
            (Some(words), _) => Found::Absent(words),
            (_, Some(words)) => Found::Loader(words),
            _ => Found::Driver(text("driver")),
        };
        Ok((probe, hello.get("library") == Some(&Value::Bool(true)), found))
    }

    /// Asks one question.
    pub fn ask(&mut self, question: &str) -> Result<Value, Failure> {
        if let Some(questions) = &mut self.questions {
            writeln!(questions, "{question}").context("talk to a probe", BUG)?;
        }
        self.answer()
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Lets it end, and answers what it said on stderr.
    pub fn finish(mut self) -> Result<String, Failure> {
        let mut said = String::new();
        self.questions = None;
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut said).context("read what a probe says", BUG)?;
        }
        self.child.wait().context("wait for a probe", BUG)?;
        Ok(said)
    }

    fn answer(&mut self) -> Result<Value, Failure> {
        let mut line = String::new();
        self.answers.read_line(&mut line).context("listen to a probe", BUG)?;
        serde_json::from_str(&line).map_err(|_| {
            let status = self.child.wait().map(|status| status.to_string()).unwrap_or_default();
            let mut said = String::new();
            if let Some(stderr) = &mut self.child.stderr {
                let _ = stderr.read_to_string(&mut said);
            }
            Failure::new(format_args!("a probe ended early: {status}: {}", said.trim()), BUG)
        })
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // Ended already, or ended now: either way nobody is left to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
