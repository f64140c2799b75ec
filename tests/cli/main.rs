//! The command line, as somebody at a terminal or in a script meets it.

#[path = "../common/mod.rs"]
mod common;

mod check;
mod demo;
mod manual;
mod run;
mod run_flags;
mod status;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Finished, Run, cuquota};
use serde_json::Value;

fn cli<A: Into<std::ffi::OsString>>(args: impl IntoIterator<Item = A>) -> Run {
    Run::new(cuquota()).args(args)
}

/// `cuquota run --sim FLAGS -- sh -c SCRIPT`
fn run_script(flags: &[&str], script: &str) -> Run {
    cli(["run", "--sim"]).args(flags.iter().copied()).args(["--", "sh", "-c", script])
}

fn json(finished: &Finished) -> Value {
    serde_json::from_str(&finished.stdout).unwrap_or_else(|error| panic!("{error}\n{finished}"))
}

fn write(dir: &Path, text: &str) -> PathBuf {
    let file = dir.join("quota.toml");
    fs::write(&file, text).unwrap();
    file
}
