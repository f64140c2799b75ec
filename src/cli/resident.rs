//! What lies on the GPU of what processes have been granted. With lazy memory that is less; only the driver knows.

use std::fs;

use cuquota::ledger::{ProcessState, Snapshot};
use cuquota::sys::nvml_client::{self, Holding};

use super::status::uuid;

/// What NVML says, with who its processes are.
pub struct Residents(Vec<(Who, Holding)>);

/// What tells a process in any namespace of process ids: its id in its own, and when it started.
#[derive(PartialEq, Eq)]
struct Who {
    pid: u32,
    start: u64,
}

impl Residents {
    /// Asks NVML, if any of the containers has lazy memory: what is not lazy is all on the GPU.
    pub fn look<'a>(containers: impl Iterator<Item = &'a Snapshot>) -> Residents {
        let asked = containers.flat_map(|snapshot| &snapshot.gpus).any(|gpu| gpu.lazy > 0);
        let holdings = if asked { nvml_client::holdings() } else { None };
        let known = |holding: Holding| Some((Who::is(holding.pid)?, holding));
        Residents(holdings.into_iter().flatten().filter_map(known).collect())
    }

    /// The bytes of `process` that lie on GPU number `gpu` of `snapshot`; `None` where that cannot be told.
    pub fn of_process(&self, snapshot: &Snapshot, process: &ProcessState, gpu: usize) -> Option<u64> {
        let (used, lazy) = (*process.used.get(gpu)?, *process.lazy.get(gpu)?);
        if lazy == 0 {
            return Some(used);
        }
        let who = Who { pid: process.pid, start: process.start };
        let uuid = uuid(snapshot.gpus.get(gpu)?);
        let mut held =
            self.0.iter().filter(|(other, holding)| *other == who && holding.uuid == uuid).peekable();
        held.peek()?;
        Some(held.map(|(_, holding)| holding.bytes).sum())
    }

    /// The same for all processes of the container.
    pub fn of_container(&self, snapshot: &Snapshot, gpu: usize) -> Option<u64> {
        let living = snapshot.processes.iter().filter(|process| process.alive);
        let processes: Option<u64> = living.map(|process| self.of_process(snapshot, process, gpu)).sum();
        // What several hold is never lazy.
        Some(processes?.saturating_add(snapshot.gpus.get(gpu)?.shared))
    }
}

impl Who {
    /// The process that is called `pid` here.
    fn is(pid: u32) -> Option<Who> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let inner = ids.and_then(|ids| ids.split_whitespace().last()?.parse().ok()).unwrap_or(pid);
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may hold anything, parentheses included; the fields after it are numbers.
        let start = stat.rsplit(')').next()?.split_whitespace().nth(19)?.parse().ok()?;
        Some(Who { pid: inner, start })
    }
}
