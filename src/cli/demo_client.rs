//! The program that `demo`, `check` and `run` send into a container to use the GPU: this executable, started
//! anew, which opens the driver as any program does. It answers each line of standard input with a line of JSON
//! on standard output, and ends with its input.

use std::io::{BufRead, Write};
use std::process::ExitCode;

use cuquota::sys::driver_client::{Device, Driver, DriverError, Memory};
use serde_json::{Value, json};

use super::failure::{Context, Failure};

/// The subcommand that starts it.
pub const NAME: &str = "__gpu-client";

/// What a client is asked: one line each.
pub mod question {
    /// Open the driver: answers `{}`.
    pub const OPEN: &str = "open";
    /// Open the driver and list the GPUs: answers `{"devices": [...]}`.
    pub const DEVICES: &str = "devices";
    /// Make a context on the first GPU: answers `{}`.
    pub const START: &str = "start";
    /// Ask for free and total memory: answers `{"free": _, "total": _}`.
    pub const INFO: &str = "info";
    /// Take so many bytes, write to both ends and read back: answers `{"granted": _, "intact": _}`.
    pub const ALLOCATE: &str = "allocate";
    /// Give the last allocation back: answers `{"freed": _}`.
    pub const FREE: &str = "free";
}

/// What is written into memory that was granted, to show that it is there.
const PATTERN: u8 = 0xa5;

#[derive(Default)]
struct State {
    driver: Option<Driver>,
    held: Vec<(Memory, u64)>,
}

pub fn execute() -> Result<ExitCode, Failure> {
    let mut state = State::default();
    for line in std::io::stdin().lock().lines() {
        let line = line.context("read standard input", "this subcommand is for cuquota's own use")?;
        let answer = state.answer(line.trim()).unwrap_or_else(|error| refusal(&error));
        let mut out = std::io::stdout().lock();
        let written = writeln!(out, "{answer}").and_then(|()| out.flush());
        written.context("write to standard output", "this subcommand is for cuquota's own use")?;
    }
    Ok(ExitCode::SUCCESS)
}

impl State {
    fn answer(&mut self, question: &str) -> Result<Value, DriverError> {
        let (verb, bytes) = question.split_once(' ').unwrap_or((question, ""));
        match verb {
            question::DEVICES => {
                let devices: Vec<Value> = self.driver()?.devices()?.iter().map(device).collect();
                Ok(json!({ "devices": devices }))
            }
            question::OPEN => self.driver().map(|_| json!({})),
            question::START => self.driver()?.start(0).map(|()| json!({})),
            question::INFO => {
                let (free, total) = self.driver()?.memory_info()?;
                Ok(json!({ "free": free, "total": total }))
            }
            question::ALLOCATE => {
                let bytes = bytes.parse().unwrap_or(0);
                let memory = self.driver()?.allocate(bytes)?;
                let found = self.driver()?.write_ends(&memory, PATTERN)?;
                self.held.push((memory, bytes));
                Ok(json!({ "granted": bytes, "intact": found == [PATTERN; 2] }))
            }
            question::FREE => match self.held.pop() {
                None => Ok(json!({ "freed": 0 })),
                Some((memory, bytes)) => self.driver()?.free(memory).map(|()| json!({ "freed": bytes })),
            },
            _ => Ok(json!({ "error": format!("unknown question {verb:?}") })),
        }
    }

    fn driver(&mut self) -> Result<&Driver, DriverError> {
        if self.driver.is_none() {
            self.driver = Some(Driver::open()?);
        }
        self.driver.as_ref().ok_or_else(|| DriverError::Absent("no driver".to_owned()))
    }
}

fn device(device: &Device) -> Value {
    json!({
        "ordinal": device.ordinal,
        "name": device.name,
        "uuid": device.uuid,
        "pci": device.pci_bus_id,
        "total": device.total,
    })
}

fn refusal(error: &DriverError) -> Value {
    match error {
        DriverError::Absent(words) => json!({ "absent": words }),
        DriverError::Refused { call, code, name } => json!({ "error": name, "code": code, "call": call }),
    }
}
