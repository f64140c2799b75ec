//! Standard output, without a panic where nobody reads it.

use std::io::{ErrorKind, Write};

use super::failure::{Context, Failure};

/// Writes `text` as it is. A reader that has gone away (`| head`) is no failure.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => {
            written.context("write to standard output", "see where it leads: a full disk, a closed pipe?")
        }
    }
}

/// Writes `value` as indented JSON and a newline.
pub fn print_json(value: &serde_json::Value) -> Result<(), Failure> {
    print(&format!("{value:#}\n"))
}
