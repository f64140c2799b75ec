//! The command line: one file per subcommand. Each answers with what the process exits with, or with a
//! [`Failure`] that says what went wrong and what to do.

mod budget;
mod cards;
mod cdi;
mod check;
mod client;
mod completions;
mod demo;
mod demo_client;
mod doctor;
mod explain;
mod failure;
mod hook;
mod library;
mod node;
mod out;
mod play;
mod resident;
mod run;
mod session;
mod sim;
mod sim_version;
mod status;
mod trim;
mod units;

use std::process::ExitCode;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};

use failure::Failure;

/// Holds a program to a budget of GPU memory, on unmodified images and frameworks
#[derive(Parser)]
#[command(name = "cuquota", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_long_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(Box<run::Run>),
    Check(check::Check),
    Explain(explain::Explain),
    Status(status::Status),
    Doctor(doctor::Doctor),
    Trim(trim::Trim),
    Demo(demo::Demo),
    Cdi(cdi::Cdi),
    Hook(hook::Hook),
    Completions(completions::Completions),
    /// Opens the driver and answers questions on standard input; for `check` and `demo`
    #[command(name = demo_client::NAME, hide = true)]
    DemoClient,
    /// Goes one route to the driver and asks for memory; for `doctor`
    #[command(name = doctor::probe::NAME, hide = true)]
    DoctorProbe(doctor::probe::Arguments),
}

const EXAMPLES: &str = "\
Examples:
  cuquota demo
      Two containers on one simulated card: what each sees, what is granted and refused
  cuquota run --sim 16GiB --limit 4GiB -- python train.py
      Run a program on a simulated card of 16 GiB with a budget of 4 GiB
  cuquota run --limit 4GiB -- python train.py
      The same on this machine's GPUs
  cuquota check quota.toml
      What a quota file means, or where it is wrong
  cuquota explain
      What is done about frameworks that take the whole GPU at start
  cuquota status
      Who holds what, the peak, and the refusals

Exit codes:
  0    it worked
  1    it worked, and the answer is no: an invalid quota file, a demo that did not go as promised
  2    wrong usage
  125  cuquota itself failed
  run: the exit code of the command; 126 if it cannot be executed, 127 if it is not found,
  128+N if signal N killed it";

/// Parses the command line and does what it says.
pub fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| with_hint(error).exit());
    let done: Result<ExitCode, Failure> = match cli.command {
        Command::Run(run) => run.execute(),
        Command::Check(check) => check.execute(),
        Command::Explain(explain) => explain.execute(),
        Command::Status(status) => status.execute(),
        Command::Doctor(doctor) => doctor.execute(),
        Command::DoctorProbe(arguments) => doctor::probe::execute(&arguments),
        Command::Trim(trim) => trim.execute(),
        Command::Demo(demo) => demo.execute(),
        Command::Cdi(cdi) => cdi.execute(),
        Command::Hook(hook) => hook.execute(),
        Command::Completions(completions) => completions.execute(),
        Command::DemoClient => demo_client::execute(),
    };
    match done {
        Ok(code) => code,
        Err(failure) => {
            eprint!("{failure}");
            failure.code()
        }
    }
}

/// Names the `--` that was left out before a command of the user's.
fn with_hint(mut error: clap::Error) -> clap::Error {
    let takes_command =
        error.get(ContextKind::Usage).is_some_and(|usage| usage.to_string().contains("-- <CMD>"));
    let stray = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(word))) if !word.starts_with('-') => {
            word.as_str()
        }
        (ErrorKind::MissingRequiredArgument, _) => "python train.py",
        _ => return error,
    };
    if takes_command {
        let hint = StyledStr::from(format!("write -- before the command, like -- {stray}"));
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint]));
    }
    error
}

/// The command line's own definition, for completions and for the test that compares it with the manual.
fn definition() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_defined_without_contradiction() {
        super::definition().debug_assert();
    }
}
