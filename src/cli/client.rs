//! Talking to a [`super::demo_client`] in its own process.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use serde_json::Value;

use super::demo_client::{NAME, question};
use super::failure::{Context, Failure};
use super::session::Variables;

const BUG: &str = "this should not happen: please report it";

/// A running client. Killed when dropped.
pub struct Client {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// What a client was answered by the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The call was done; the values that came back.
    Done(Value),
    /// The driver refused it: the name of its code.
    Refused(String),
    /// There is no driver: the loader's words.
    NoDriver(String),
}

impl Client {
    /// Starts a client with these variables set. Whatever is preloaded here is not preloaded there, unless
    /// `variables` say so.
    pub fn start(variables: &Variables) -> Result<Self, Failure> {
        Self::spawn(variables, &["LD_PRELOAD"])
    }

    /// As [`Client::start`], and every GPU is visible there.
    pub fn start_seeing_all(variables: &Variables) -> Result<Self, Failure> {
        Self::spawn(variables, &["LD_PRELOAD", "CUDA_VISIBLE_DEVICES"])
    }

    fn spawn(variables: &Variables, without: &[&str]) -> Result<Self, Failure> {
        let executable = std::env::current_exe().context("find this executable", "is /proc mounted?")?;
        let mut command = Command::new(executable);
        command.arg(NAME);
        for name in without {
            command.env_remove(name);
        }
        command.envs(variables.iter().cloned());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("start this executable anew", BUG)?;
        let (Some(questions), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::new("a client without its pipes", BUG));
        };
        Ok(Client { child, questions: Some(questions), answers: BufReader::new(answers) })
    }

    /// Asks one [`question`] and waits for the answer.
    pub fn ask(&mut self, question: &str) -> Result<Answer, Failure> {
        let mut line = String::new();
        if let Some(questions) = &mut self.questions {
            let asked = writeln!(questions, "{question}").and_then(|()| self.answers.read_line(&mut line));
            asked.context("talk to a client", BUG)?;
        }
        let answer: Value = serde_json::from_str(&line).unwrap_or_default();
        let words = |key| answer.get(key).and_then(Value::as_str).map(str::to_owned);
        match (words("error"), words("absent")) {
            (Some(name), _) => Ok(Answer::Refused(name)),
            (_, Some(words)) => Ok(Answer::NoDriver(words)),
            _ if answer.is_object() => Ok(Answer::Done(answer)),
            _ => {
                let status = self.child.wait().map(|status| status.to_string()).unwrap_or_default();
                Err(Failure::new(format_args!("a client ended at {question:?}: {status}"), BUG))
            }
        }
    }

    /// Asks for so many bytes.
    pub fn allocate(&mut self, bytes: u64) -> Result<Answer, Failure> {
        self.ask(&format!("{} {bytes}", question::ALLOCATE))
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it with SIGKILL and waits until it is gone.
    pub fn kill(&mut self) -> Result<ExitStatus, Failure> {
        self.child.kill().and_then(|()| self.child.wait()).context("kill a client", BUG)
    }

    /// Ends its input, and waits until it has ended by itself.
    pub fn finish(&mut self) -> Result<ExitStatus, Failure> {
        self.questions = None;
        self.child.wait().context("wait for a client", BUG)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Ended already, or ended now: either way nobody is left to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
