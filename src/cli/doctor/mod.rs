//! `cuquota doctor`: is what runs here held to the budget, whichever way it reaches the driver?

mod findings;
pub mod probe;
mod program;
mod trial;

use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use cuquota::config::Source;
use cuquota::ledger;
use cuquota::sys::probe::{ENTRIES, ROUTES};
use serde_json::json;

use super::failure::{Context, Failure};
use super::session::Session;
use super::{out, units};
use findings::Finding;
use probe::{Found, Probe};
use trial::{Row, Verdict};

/// Find out whether programs started here are held to the budget
///
/// Goes every route that programs take to the driver, asks every function that takes device memory, for more than there
/// is and for a little, and prints row by row whether it is capped or escapes. Looks at the installation as well, and
/// says what to do about what is wrong with it. What it asks for in vain counts among the container's refusals.
///
/// With CMD it also says whether that program can be held: not a static one, nor one of musl's. CMD is not run.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Doctor {
    /// Answer in JSON
    #[arg(long)]
    json: bool,

    /// A program to look at, with its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  cuquota doctor
  cuquota doctor -- python train.py
  cuquota run --sim 16GiB,driver=11.4 --limit 4GiB -- cuquota doctor
  docker exec CONTAINER cuquota doctor --json

Exit codes: 0 if all is capped and nothing is wrong; 1 if something escapes or is wrong.";

/// The plug-in that the probe opens.
const PLUGIN: &[u8] = include_bytes!(env!("CUQUOTA_PROBE_PLUGIN"));
const DRIVER: &str = "libcuda.so.1";

impl Doctor {
    pub fn execute(self) -> Result<ExitCode, Failure> {
        let session = Session::new()?;
        let plugin = session.dir().join("plugin.so");
        let room = "is there room in the temporary directory? TMPDIR names another";
        std::fs::write(&plugin, PLUGIN).context(format_args!("write {}", plugin.display()), room)?;

        let mut findings = Vec::new();
        let mut rows = Vec::new();
        let (first, loaded, found) = Probe::send(trial::FIRST, Path::new(DRIVER), &plugin)?;
        findings.extend(findings::preload(loaded));
        findings.push(findings::quota());
        findings.extend(findings::log());
        let mut notices = vec![first.finish()?];
        match found {
            Found::Loader(words) => findings.push(Finding::problem(
                format!("there is no NVIDIA driver here: {words}"),
                "start the container with the GPU (`docker run --gpus all`, a CDI device), or look at a simulated \
                 one: `cuquota run --sim --limit 4GiB -- cuquota doctor`",
            )),
            Found::Absent(words) => findings.push(Finding::problem(
                format!("the driver cannot be used: {words}"),
                "is another library called libcuda.so.1?",
            )),
            Found::Driver(path) => {
                let path = path.map_or_else(|| PathBuf::from(DRIVER), PathBuf::from);
                findings.push(Finding::fine(format!("the driver is {}", path.display())));
                let other = session.dir().join("another-name.so");
                symlink(&path, &other).context(format_args!("link {}", other.display()), room)?;
                for (_, word, _) in ROUTES {
                    let driver = match *word {
                        "path" => path.as_path(),
                        "other-name" => other.as_path(),
                        _ => Path::new(DRIVER),
                    };
                    let (probe, loaded, found) = Probe::send(word, driver, &plugin)?;
                    let way = trial::Way { route: word, loaded, found };
                    rows.extend(trial::of_route(way, probe, &mut findings, &mut notices)?);
                }
                findings.extend(state());
            }
        }
        findings.extend(heard(&notices));
        if let Some(command) = self.command.first() {
            findings.extend(program::examine(Path::new(command), findings::preloaded_everywhere()));
        }
        let well = rows.iter().all(|row| row.verdict != Verdict::Escapes)
            && !findings.iter().any(|finding| finding.is_problem);
        if self.json {
            out::print_json(&json!({
                "well": well,
                "findings": findings.iter().map(Finding::json).collect::<Vec<_>>(),
                "rows": rows.iter().map(Row::json).collect::<Vec<_>>(),
            }))?;
        } else {
            out::print(&report(&findings, &rows, well))?;
        }
        Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Whether the programs here share their state.
fn state() -> Option<Finding> {
    let place = Source::locate().ok()?.state;
    let tried: Vec<String> = place.candidates().map(|dir| dir.display().to_string()).collect();
    let remedy = "mount a directory at /run/cuquota that all users of the container may write to";
    Some(match ledger::find(&place).map(|path| (ledger::Snapshot::read(&path), path)) {
        None => Finding::problem(
            format!("the state is not shared: no process could keep it in {}", tried.join(", ")),
            remedy,
        ),
        Some((Err(error), _)) => Finding::problem(format!("the state is not shared: {error}"), remedy),
        Some((Ok(_), path)) => Finding::fine(format!("processes share their state in {}", path.display())),
    })
}

/// What the library itself said in the probes: a quota refused, enforcement lost. Each line once.
fn heard(notices: &[String]) -> Vec<Finding> {
    let mut lines: Vec<&str> = notices.iter().flat_map(|text| text.lines()).collect();
    lines.sort_unstable();
    lines.dedup();
    let ours = lines.into_iter().filter(|line| line.starts_with("cuquota"));
    ours.map(|line| Finding::problem(format!("the library said: {line}"), "see there")).collect()
}

fn report(findings: &[Finding], rows: &[Row], well: bool) -> String {
    let mut text = String::from("Installation\n");
    for finding in findings {
        text += &format!("  {:<7}  {}\n", finding.mark(), finding.what);
        if let Some(remedy) = &finding.remedy {
            text += &format!("           -> {remedy}\n");
        }
    }
    if !rows.is_empty() {
        text += "\nRoutes to the driver, each tried with every function below\n";
        let of = |word: &'static str| rows.iter().filter(move |row| row.route == word);
        text +=
            &table(ROUTES.iter().map(|(_, word, name)| summary(name, of(word).collect(), |row| row.entry)));
        text += "\nFunctions that take device memory, each tried by every route above\n";
        let of = |symbol: &'static str| rows.iter().filter(move |row| row.entry == symbol);
        text += &table(
            ENTRIES.iter().map(|entry| summary(entry.symbol, of(entry.symbol).collect(), |row| row.route)),
        );
    }
    let untried = rows.iter().any(|row| row.verdict == Verdict::Untried);
    text += match (well, rows.is_empty()) {
        (true, false) if untried => "\nAll that could be tried is capped.\n",
        (true, false) => "\nAll is capped.\n",
        (_, true) => "\nNothing could be tried.\n",
        (false, false) => "\nNot all is well: see above.\n",
    };
    text
}

fn table(rows: impl Iterator<Item = [String; 3]>) -> String {
    let rows: Vec<Vec<String>> = rows.map(Vec::from).collect();
    units::table(&rows, &[]).lines().map(|line| format!("  {line}\n")).collect()
}

/// What all rows of one kind come to. Where some escape, those are named, unless all do.
fn summary(name: &str, rows: Vec<&Row>, other: impl Fn(&Row) -> &'static str) -> [String; 3] {
    let with = |verdict: Verdict| rows.iter().copied().filter(move |row| row.verdict == verdict);
    let worst = [Verdict::Escapes, Verdict::Untried, Verdict::Capped, Verdict::Absent]
        .into_iter()
        .find(|verdict| with(*verdict).next().is_some())
        .unwrap_or(Verdict::Absent);
    let there = rows.len() - with(Verdict::Absent).count();
    let first = with(worst).next().map_or("", |row| row.words.as_str());
    let words = match worst {
        Verdict::Capped | Verdict::Absent if there > 0 => format!("{there} tried"),
        Verdict::Capped | Verdict::Absent => first.to_owned(),
        Verdict::Untried if with(worst).count() == there => first.to_owned(),
        _ if with(worst).count() == there => format!("{there} tried: {first}"),
        _ => {
            let named: Vec<String> = with(worst).map(|row| format!("{} {}", other(row), row.words)).collect();
            named.join("; ")
        }
    };
    [worst.mark().to_owned(), name.to_owned(), words]
}
