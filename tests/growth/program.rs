//! A program that takes memory as a framework does, running.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout};

use crate::common::programs::c_program;
use crate::common::{Container, Machine, Run};

/// See `tests/c/grab.c`. Killed when dropped.
pub struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// Starts the pattern with so many tensors of 64 MiB; its first word is "ready", or "failed CODE".
    pub fn start(pattern: &str, tensors: u32, machine: &Machine, container: &Container) -> (Program, String) {
        Program::start_with(pattern, tensors, machine, container, &[])
    }

    /// The same with variables that the user has set.
    pub fn start_with(
        pattern: &str,
        tensors: u32,
        machine: &Machine,
        container: &Container,
        set: &[(&str, &str)],
    ) -> (Program, String) {
        let switches =
            ["TF_FORCE_GPU_ALLOW_GROWTH", "XLA_PYTHON_CLIENT_PREALLOCATE", "FLAGS_allocator_strategy"];
        let run = Run::new(c_program("grab")).args([pattern, &tensors.to_string()]);
        let run = switches.iter().fold(run, |run, name| run.without_env(name));
        let run = set.iter().fold(run, |run, (name, value)| run.env(*name, *value));
        let mut child = run.on(machine).within(container).spawn();
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let mut program = Program { child, input, output: BufReader::new(output) };
        let said = program.line();
        (program, said)
    }

    /// The same for a pattern that must get what it wants.
    #[track_caller]
    pub fn ready(pattern: &str, tensors: u32, machine: &Machine, container: &Container) -> Program {
        let (program, said) = Program::start(pattern, tensors, machine, container);
        assert_eq!(said, "ready", "{pattern}");
        program
    }

    /// What it answers to a line.
    pub fn ask(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").expect("a program that reads");
        self.line()
    }

    /// What the card holds for it, in MiB, its context included.
    pub fn held(&mut self) -> u64 {
        self.ask("held").parse().expect("a number")
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a program that answers");
        line.trim_end().to_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
