//! `cuquota trim`: lets a container's lazy memory go to the host.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use cuquota::ledger::{self, Snapshot};
use serde_json::json;

use super::failure::Failure;
use super::units::human;
use super::{out, status};

/// Ask a container to move its lazy memory to the host
///
/// For growth = "lazy": every process of the container moves the memory of its large allocations to the host at its next
/// call in which memory is asked for or shown, or in which it waits for the GPU. Nothing is lost and nothing has to be done
/// afterwards: memory comes back as it is touched, at the cost of the way there and back. The budget does not change.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Trim {
    /// The container, by the name in its quota file or by the path of its state
    name: String,

    /// The directory of the state [default: where the programs started here keep it]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,

    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  cuquota trim team-a/notebook
  cuquota trim /run/cuquota/ledger-5c1f0d3a9e7b2648

Exit codes: 0 if the request was left; 125 if there is no such container, or its state cannot be written.";

impl Trim {
    pub fn execute(self) -> Result<ExitCode, Failure> {
        let place = status::place(self.state)?;
        let found: Vec<(PathBuf, Snapshot)> = status::find(&place)?
            .into_iter()
            .filter_map(|found| Some((found.path, found.state.ok()?)))
            .filter(|(path, snapshot)| snapshot.label == self.name || path.as_os_str() == self.name.as_str())
            .collect();
        if found.is_empty() {
            return Err(Failure::new(
                format_args!("there is no container {:?}", self.name),
                "`cuquota status` lists them; --state DIR names the directory of the state",
            ));
        }
        let mut answers = Vec::new();
        for (path, snapshot) in found {
            ledger::request_trim(&path).map_err(|reason| {
                Failure::new(
                    reason,
                    "run it as the user of the container, or as root, where the state is not read-only",
                )
            })?;
            let holders =
                snapshot.processes.iter().filter(|p| p.alive && p.lazy.iter().any(|lazy| *lazy > 0));
            let (processes, lazy) = (holders.count(), snapshot.gpus.iter().map(|gpu| gpu.lazy).sum::<u64>());
            if self.json {
                answers.push(json!({
                    "path": path.display().to_string(),
                    "processes": processes,
                    "lazy_bytes": lazy,
                }));
            } else {
                out::print(&format!(
                    "{}: asked, {} of lazy memory in {processes} {}\n",
                    self.name,
                    human(lazy),
                    if processes == 1 { "process" } else { "processes" },
                ))?;
            }
        }
        if self.json {
            out::print_json(&json!({ "asked": answers }))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
