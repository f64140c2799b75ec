//! `cuquota run`: one command in a container of its own.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Args;
use cuquota::config::{Quota, Source};
use cuquota::sys;

use super::budget::Budget;
use super::failure::{Context, Failure};
use super::session::{Container, Session, Variables, exit_code};
use super::sim::{DEFAULT_CARDS, Sim};
use super::{cards, library};

/// Run a command within a budget of GPU memory
///
/// The command and everything it starts share one budget, on this machine's GPUs or, with --sim, on simulated ones.
/// Signals are passed on to it. The budget is not a sandbox: see "What it cannot do" in the README.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Run {
    #[command(flatten)]
    budget: Budget,

    /// Run on a simulated machine with cards of these sizes [default without SPEC: 16GiB]
    ///
    /// Sizes with commas between, like 16GiB,24GiB. The simulated driver keeps memory for real, but runs no kernels.
    #[arg(long, value_name = "SPEC", num_args = 0..=1, default_missing_value = DEFAULT_CARDS)]
    sim: Option<String>,

    /// Where the simulated cards live: runs that name the same directory share them [default: cards of its own]
    #[arg(long, value_name = "DIR", requires = "sim")]
    sim_dir: Option<PathBuf>,

    /// Where the shared state lives: runs that name the same directory share one budget [default: a budget of its own]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,

    /// The preload library [default: beside this executable, then ../lib/cuquota/libcuquota.so from there]
    #[arg(long, value_name = "PATH")]
    preload: Option<PathBuf>,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  cuquota run --limit 4GiB -- python train.py
  cuquota run --sim 16GiB --limit 4GiB -- python train.py
  cuquota run --sim 16GiB,24GiB --limit 25% --gpu 1=8GiB -- python train.py
  cuquota run --quota quota.toml -- bash

Exit code:
  the command's own, or 128+N if signal N killed it
  125  cuquota itself failed
  126  the command cannot be executed
  127  the command is not found";

impl Run {
    pub fn execute(self) -> Result<ExitCode, Failure> {
        let session = Session::new()?;
        let mut variables = self.container(&session)?;
        let library = library::find(self.preload.as_deref())?;
        variables.push(session.preload(&library)?);
        match &self.sim {
            Some(spec) => {
                let cards = self.sim_dir.clone().unwrap_or_else(|| session.dir().join("cards"));
                let cards =
                    std::path::absolute(cards).context("find the current directory", "change into one")?;
                variables.extend(Sim::unpack(session.dir(), cards, spec)?.variables()?);
            }
            None => {
                if let Some(reason) = cards::missing_driver()? {
                    eprintln!(
                        "cuquota: this machine has no NVIDIA driver ({reason}), so the command will see no GPU; \
                         add --sim to run it on a simulated one"
                    );
                }
            }
        }
        spawn(&self.command, variables)
    }

    /// The variables that name quota and state.
    fn container(&self, session: &Session) -> Result<Variables, Failure> {
        if Source::is_governed() {
            if self.budget.is_empty() && self.state.is_none() {
                return Ok(Vec::new());
            }
            return Err(Failure::new(
                format_args!("{} exists and governs: no flag can change limit or state", Source::GOVERNING),
                "leave --limit, --gpu, --growth, --reserve, --name, --quota and --state out, or edit that file",
            ));
        }
        let mut container = match (&self.budget.quota, Source::locate()) {
            (Some(file), _) => existing(file, session)?,
            (None, Ok(source)) if self.budget.is_empty() => existing(&source.quota, session)?,
            (None, _) => session.container("run", &self.budget.to_toml()?)?,
        };
        if let Some(state) = &self.state {
            let created = std::fs::create_dir_all(state).and_then(|()| std::path::absolute(state));
            container.state = created
                .context(format_args!("use {}", state.display()), "name a directory of yours in --state")?;
        }
        Ok(container.variables())
    }
}

/// A container with a quota file that is there already and must be valid.
fn existing(file: &Path, session: &Session) -> Result<Container, Failure> {
    Quota::load(file)?;
    let quota = std::path::absolute(file).context("find the current directory", "change into one")?;
    let state = session.dir().join("state");
    std::fs::create_dir(&state).context(format_args!("create {}", state.display()), "is /tmp full?")?;
    Ok(Container { quota, state })
}

fn spawn(command: &[OsString], variables: Variables) -> Result<ExitCode, Failure> {
    let (program, arguments) = command.split_first().expect("clap requires a command");
    sys::forward_to_child().context("pass signals on", "this should not happen: please report it")?;
    let started = Command::new(program).args(arguments).envs(variables).spawn();
    let mut child = started.map_err(|error| {
        let name = Path::new(program).display();
        let (code, remedy) = match error.kind() {
            ErrorKind::NotFound => (127, "is it installed, and in PATH? is its interpreter there?"),
            _ => (126, "is it executable, and built for this machine?"),
        };
        Failure::new(format_args!("cannot run {name}: {error}"), remedy).with_code(code)
    })?;
    let status = sys::wait_for_child(&mut child)
        .context("wait for the command", "this should not happen: please report it")?;
    Ok(ExitCode::from(exit_code(status)))
}
