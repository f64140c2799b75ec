//! How a subcommand fails: what went wrong, and what to do about it.

use std::fmt;
use std::process::ExitCode;

use cuquota::config::QuotaError;

/// cuquota itself failed, as opposed to the command it ran (the convention of `env`, `timeout` and `docker run`).
const OURS: u8 = 125;

/// Why a subcommand could not do what it was asked. `Display` is what a terminal shows, with its final newline.
#[derive(Debug)]
pub struct Failure {
    text: String,
    code: u8,
}

impl Failure {
    /// What went wrong, in a few words that name the thing it happened to, and what to do.
    pub fn new(message: impl fmt::Display, remedy: impl fmt::Display) -> Self {
        let (message, remedy) = (printable(&message.to_string()), printable(&remedy.to_string()));
        Failure { text: format!("error: {message}\nhelp: {remedy}\n"), code: OURS }
    }

    /// The same with another exit code.
    pub fn with_code(self, code: u8) -> Self {
        Failure { code, ..self }
    }

    /// What the process exits with.
    pub fn code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

/// `text` without anything that would end the line or steer a terminal: annotations, names and paths are others' words.
fn printable(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<QuotaError> for Failure {
    fn from(error: QuotaError) -> Self {
        Failure { text: error.report(), code: OURS }
    }
}

/// Names the thing that an input or output error happened to.
pub trait Context<T> {
    /// `doing` reads as in "cannot create /x".
    fn context(self, doing: impl fmt::Display, remedy: impl fmt::Display) -> Result<T, Failure>;
}

impl<T> Context<T> for std::io::Result<T> {
    fn context(self, doing: impl fmt::Display, remedy: impl fmt::Display) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(format_args!("cannot {doing}: {error}"), remedy))
    }
}
