//! Python environments of exactly the packages that a test names, made once and kept below `target`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::programs::lock;
use super::target_dir;

/// The Python of the environment `name` that holds exactly what `requirements` lists. The error says what is missing.
pub fn environment(name: &str, requirements: &Path) -> Result<PathBuf, String> {
    let wanted = fs::read_to_string(requirements).expect("the list of requirements");
    let dir = target_dir().join(format!("{name}-venv"));
    let (python, made) = (dir.join("bin/python"), dir.join("made-from.txt"));
    let _lock = lock(&dir.with_extension("lock"));
    if fs::read_to_string(&made).is_ok_and(|from| from == wanted) {
        return Ok(python);
    }
    if dir.exists() {
        fs::remove_dir_all(&dir).expect("an outdated environment to remove");
    }
    let base = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    outside(Command::new(&base).args(["-m", "venv"]).arg(&dir)).map_err(|e| {
        format!("{name} needs Python 3.11 or newer with its venv module (Debian: python3-venv): {e}")
    })?;
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]);
    outside(pip.arg(requirements)).map_err(|e| {
        format!("{name} needs a Python package index that pip can reach (see `pip config`): {e}")
    })?;
    fs::write(&made, wanted).expect("a note of what the environment holds");
    Ok(python)
}

/// Runs a tool that may not be there, or not get what it wants; the error is the end of what it said.
fn outside(command: &mut Command) -> Result<(), String> {
    let tool = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| format!("{tool}: {e}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let last: Vec<&str> = said.lines().rev().filter(|line| !line.trim().is_empty()).take(2).collect();
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{tool}: {}: {}", output.status, last.join("; ")))
    }
}
