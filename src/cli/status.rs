//! `cuquota status`: who holds what.

use std::collections::BTreeSet;
use std::fs::ReadDir;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use cuquota::config::{GpuIdentity, Source, StatePlace};
use cuquota::ledger::{self, GpuState, ProcessState, SharingLost, Snapshot};
use serde_json::{Value, json};

use super::failure::{Context, Failure};
use super::hook::NODE;
use super::node::Node;
use super::resident::Residents;
use super::units::human;
use super::{out, session, units};

/// Show who holds what, the peak, and the refusals
///
/// Reads the state that the programs of a container share; needs no daemon and changes nothing. What you run by
/// `cuquota run` is shown as well, while it runs. On a machine whose containers keep their state in a mounted directory, --state DIR shows them from outside.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Status {
    /// The directory of the state [default: where the programs started here keep it]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,

    /// All containers that the hook looks after, summed by GPU: physical, reserved, limited, used [default DIR: /run/cuquota-node]
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = NODE, conflicts_with = "state")]
    node: Option<PathBuf>,

    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  cuquota status
  cuquota status --state /run/cuquota
  watch cuquota status
  cuquota status --json | jq '.containers[].gpus[] | {uuid, used_bytes, peak_bytes}'

Exit codes: 0, also where no program has used a GPU; 1 if there is state that cannot be read;\n125 if the directory of the state cannot be looked into.";

/// One file of state, and what is in it.
pub struct Found {
    /// The file.
    pub path: PathBuf,
    /// Whether programs started here share it.
    pub here: bool,
    /// What is in it.
    pub state: Result<Snapshot, SharingLost>,
}

impl Status {
    pub fn execute(self) -> Result<ExitCode, Failure> {
        if let Some(directory) = &self.node {
            let node = Node::look(directory)?;
            if self.json {
                out::print_json(&node.json())?
            } else {
                out::print(&node.text())?
            }
            return Ok(if node.is_whole() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        let place = place(self.state)?;
        let found = find(&place)?;
        let residents = Residents::look(found.iter().filter_map(|found| found.state.as_ref().ok()));
        if self.json {
            let containers: Vec<Value> =
                found.iter().map(|found| container_json(found, &residents)).collect();
            out::print_json(&json!({ "containers": containers }))?;
        } else if found.is_empty() {
            let places: Vec<String> = place.candidates().map(|dir| dir.display().to_string()).collect();
            out::print(&format!(
                "No program has used a GPU here: there is no state in {}.\n",
                places.join(", ")
            ))?;
        } else {
            let containers: Vec<String> =
                found.iter().map(|found| container_text(found, &residents)).collect();
            out::print(&containers.join("\n"))?;
        }
        let readable = found.iter().all(|found| found.state.is_ok());
        Ok(if readable { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Where to look: in `dir`, or where programs started here keep their state.
pub fn place(dir: Option<PathBuf>) -> Result<StatePlace, Failure> {
    match dir {
        Some(dir) => {
            // A name that is mistyped must not read as a container that uses nothing.
            list(&dir)?;
            Ok(StatePlace::Explicit(dir))
        }
        None => Ok(Source::locate().map_or(StatePlace::Default, |source| source.state)),
    }
}

/// The entries of a directory of state.
fn list(dir: &Path) -> Result<ReadDir, Failure> {
    let remedy = "name the directory of the state, as a user who may read it";
    dir.read_dir().context(format_args!("list {}", dir.display()), remedy)
}

/// Every ledger in the directories of `place`, by default also those of what this user runs by `cuquota run`; that of programs started here comes first. What this user may not look
/// into is no place where nothing is.
pub fn find(place: &StatePlace) -> Result<Vec<Found>, Failure> {
    let here = ledger::find(&Source::locate().map_or(StatePlace::Default, |source| source.state));
    let paths: BTreeSet<PathBuf> = place.candidates().flat_map(ledgers_in).collect();
    let mut found: Vec<Found> = paths
        .into_iter()
        // Also where the directory cannot be listed.
        .chain(ledger::find(place))
        .map(|path| Found { here: here.as_ref() == Some(&path), state: Snapshot::read(&path), path })
        .collect();
    if *place == StatePlace::Default {
        let sessions = session::states().into_iter().flat_map(|dir| ledgers_in(&dir));
        let sessions = sessions.map(|path| Found { here: false, state: Snapshot::read(&path), path });
        // One that was killed leaves its directory.
        found.extend(sessions.filter(|found| found.state.as_ref().is_ok_and(is_alive)));
    }
    found.sort_by(|a, b| (!a.here, &a.path).cmp(&(!b.here, &b.path)));
    found.dedup_by(|a, b| a.path == b.path);
    let closed = |dir: &&Path| dir.read_dir().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
    if found.is_empty()
        && let Some(dir) = place.candidates().find(closed)
    {
        list(dir)?;
    }
    Ok(found)
}

fn is_alive(container: &Snapshot) -> bool {
    container.processes.iter().any(|process| process.alive)
}

/// The files of state in one directory.
pub fn ledgers_in(dir: &Path) -> Vec<PathBuf> {
    let named = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name == "ledger" || name.starts_with("ledger-")
    };
    let entries = std::path::absolute(dir).and_then(std::fs::read_dir);
    entries.into_iter().flatten().flatten().map(|entry| entry.path()).filter(named).collect()
}

fn container_text(found: &Found, residents: &Residents) -> String {
    let path = found.path.display();
    let snapshot = match &found.state {
        Ok(snapshot) => snapshot,
        Err(reason) => return format!("{path} cannot be read: {reason}\n"),
    };
    let title = if snapshot.label.is_empty() { "container" } else { snapshot.label.as_str() };
    let here = if found.here { ", this container" } else { "" };
    let mut text = format!("{title} ({path}{here})\n");
    if snapshot.gpus.is_empty() {
        return text + "no GPU has been used\n";
    }
    let columns = ["LIMIT", "RESERVED", "USED", "RESIDENT", "PEAK", "REFUSALS", "GPU"];
    let mut rows = vec![columns.map(str::to_owned).to_vec()];
    let resident = (0..).map(|gpu| residents.of_container(snapshot, gpu));
    rows.extend(snapshot.gpus.iter().zip(resident).map(|(gpu, resident)| gpu_row(gpu, resident)));
    text += &units::table(&rows, &[0, 1, 2, 3, 4, 5]);
    text.push('\n');
    let living: Vec<&ProcessState> = snapshot.processes.iter().filter(|process| process.alive).collect();
    let shared: Vec<&GpuState> = snapshot.gpus.iter().filter(|gpu| gpu.shared > 0).collect();
    if living.is_empty() && shared.is_empty() {
        return text + "no process is running\n";
    }
    let mut rows = vec![["PID", "NAME", "USED", "RESIDENT", "GPU"].map(str::to_owned).to_vec()];
    rows.extend(living.iter().flat_map(|process| process_rows(process, snapshot, residents)));
    // In no process's own use: the ones that made it are gone, and others hold it.
    rows.extend(shared.iter().map(|gpu| {
        let bytes = human(gpu.shared);
        vec!["-".to_owned(), "(shared)".to_owned(), bytes.clone(), bytes, uuid(gpu)]
    }));
    text + &units::table(&rows, &[0, 2, 3])
}

fn gpu_row(gpu: &GpuState, resident: Option<u64>) -> Vec<String> {
    let limit = match gpu.limit {
        None => "-".to_owned(),
        Some(u64::MAX) => "unlimited".to_owned(),
        Some(limit) => human(limit),
    };
    let resident = resident.map_or("-".to_owned(), human);
    let (reserve, used, peak) = (human(gpu.reserve), human(gpu.used), human(gpu.peak));
    vec![limit, reserve, used, resident, peak, gpu.refusals.to_string(), uuid(gpu)]
}

/// A row for every GPU that the process uses, or one that says it uses none.
fn process_rows(process: &ProcessState, snapshot: &Snapshot, residents: &Residents) -> Vec<Vec<String>> {
    let row = |used, resident: Option<u64>, gpu| {
        let resident = resident.map_or("-".to_owned(), human);
        vec![process.pid.to_string(), process.comm.clone(), human(used), resident, gpu]
    };
    let used = snapshot.gpus.iter().zip(&process.used).enumerate().filter(|(_, (_, used))| **used != 0);
    let rows: Vec<Vec<String>> = used
        .map(|(at, (gpu, used))| row(*used, residents.of_process(snapshot, process, at), uuid(gpu)))
        .collect();
    if rows.is_empty() { vec![row(0, Some(0), "-".to_owned())] } else { rows }
}

/// The UUID as drivers print it.
pub fn uuid(gpu: &GpuState) -> String {
    GpuIdentity { uuid: gpu.uuid, mig: false, pci: None, pci_index: None }.uuid_text()
}

fn container_json(found: &Found, residents: &Residents) -> Value {
    let path = found.path.display().to_string();
    match &found.state {
        Err(reason) => json!({ "path": path, "here": found.here, "error": reason.to_string() }),
        Ok(snapshot) => json!({
            "path": path,
            "here": found.here,
            "name": Some(&snapshot.label).filter(|label| !label.is_empty()),
            "gpus": (0..snapshot.gpus.len()).map(|at| gpu_json(snapshot, at, residents)).collect::<Vec<_>>(),
            "processes": snapshot
                .processes
                .iter()
                .filter(|process| process.alive)
                .map(|process| process_json(process, snapshot, residents))
                .collect::<Vec<_>>(),
        }),
    }
}

fn gpu_json(snapshot: &Snapshot, at: usize, residents: &Residents) -> Value {
    let gpu = &snapshot.gpus[at];
    json!({
        "uuid": uuid(gpu),
        "limit_bytes": gpu.limit.filter(|limit| *limit != u64::MAX),
        "unlimited": gpu.limit == Some(u64::MAX),
        "reserved_bytes": gpu.reserve,
        "used_bytes": gpu.used,
        "shared_bytes": gpu.shared,
        "lazy_bytes": gpu.lazy,
        "resident_bytes": residents.of_container(snapshot, at),
        "peak_bytes": gpu.peak,
        "refusals": gpu.refusals,
        "context_bytes": gpu.context_cost,
    })
}

fn process_json(process: &ProcessState, snapshot: &Snapshot, residents: &Residents) -> Value {
    let used = snapshot.gpus.iter().zip(&process.used).enumerate().filter(|(_, (_, used))| **used != 0);
    let used = used.map(|(at, (gpu, used))| {
        json!({
            "uuid": uuid(gpu),
            "bytes": used,
            "lazy_bytes": process.lazy[at],
            "resident_bytes": residents.of_process(snapshot, process, at),
        })
    });
    json!({
        "pid": process.pid,
        "pid_namespace": process.pid_namespace,
        "uid": process.uid,
        "name": process.comm,
        "used": used.collect::<Vec<_>>(),
    })
}
