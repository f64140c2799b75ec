//! A program that uses the GPU as the test tells it, line by line: the command's own client of the driver.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, ChildStdout};

use serde_json::Value;

use super::{Run, cuquota};

/// A running client. Killed when dropped.
pub struct Client {
    child: Child,
    answers: BufReader<ChildStdout>,
    /// What was asked last.
    question: String,
}

impl Client {
    /// How it is run, for the test to put it on a machine and into a container.
    pub fn run() -> Run {
        Run::new(cuquota()).arg("__gpu-client")
    }

    pub fn start(run: &Run) -> Client {
        let mut child = run.spawn();
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        Client { child, answers, question: String::new() }
    }

    /// Asks one question (`devices`, `start`, `info`, `allocate BYTES`, `free`) and waits for the answer.
    #[track_caller]
    pub fn ask(&mut self, question: &str) -> Value {
        self.say(question);
        self.answer()
    }

    /// The same in two steps: asks,
    #[track_caller]
    pub fn say(&mut self, question: &str) {
        writeln!(self.child.stdin.as_mut().expect("piped"), "{question}").expect("a client that listens");
        self.question = question.into();
    }

    /// and waits for the answer.
    #[track_caller]
    pub fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("a client that answers");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{}: {error}: {line:?}", self.question))
    }

    /// Whether the answer to the last question is there.
    pub fn is_answered(&self) -> bool {
        let mut ask =
            libc::pollfd { fd: self.answers.get_ref().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry that outlives the call, which does not wait.
        !self.answers.buffer().is_empty() || unsafe { libc::poll(&mut ask, 1, 0) } == 1
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it, and waits for its end.
    pub fn kill(&mut self) {
        self.child.kill().expect("a client to kill");
        self.child.wait().expect("a client to wait for");
    }

    /// Waits for its end, whoever brings it about and however it ends.
    pub fn ended(mut self) {
        self.child.wait().expect("a child to wait for");
    }

    /// Ends its input, waits for its end, which must be a good one, and answers what it said on stderr.
    #[track_caller]
    pub fn finish(mut self) -> String {
        drop(self.child.stdin.take());
        let mut said = String::new();
        self.child.stderr.take().expect("piped").read_to_string(&mut said).expect("a stream to read");
        assert!(self.child.wait().expect("a child to wait for").success(), "{said}");
        said
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Ended already, or ended now.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
