//! Programs that nobody here wrote, unmodified from their registries: each runs on the bare simulated driver, and in
//! a container whose quota is the total it must then see and be held to.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use common::programs::lock;
use common::python::environment;
use common::skip::skip;
use common::{Container, GIB, Machine, Run, target_dir};

const CARD: u64 = 16 * GIB;
const QUOTA: u64 = 4 * GIB;

fn clients_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}

/// The Python of an environment that holds exactly `requirements.txt`, made once and kept below `target`.
fn python() -> Result<PathBuf, String> {
    static MADE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let make = || environment("clients", &clients_dir().join("requirements.txt"));
    MADE.get_or_init(make).clone()
}

/// The client that uses cudarc, a package of its own with its own lock file.
fn cudarc_client() -> Result<PathBuf, String> {
    let dir = target_dir().join("clients-cudarc");
    fs::create_dir_all(&dir).expect("a directory for the client");
    let _lock = lock(&dir.join("lock"));
    let manifest = clients_dir().join("cudarc/Cargo.toml");
    let cargo = |verb: &str| {
        let mut command = Command::new(env!("CARGO"));
        command.args([verb, "--quiet", "--locked", "--manifest-path"]).arg(&manifest);
        command
    };
    outside(&mut cargo("fetch"))
        .map_err(|e| format!("cudarc comes from a crate registry that cargo can reach: {e}"))?;
    let built = outside(cargo("build").arg("--offline").arg("--target-dir").arg(&dir));
    built.unwrap_or_else(|e| panic!("the client does not build: {e}"));
    Ok(dir.join("debug/with-cudarc"))
}

/// Runs a tool that may not be there, or not get what it wants; the error is the end of what it said.
fn outside(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|e| format!("{}: {e}", command.get_program().display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let last: Vec<&str> = said.lines().rev().filter(|line| !line.trim().is_empty()).take(2).collect();
    let tool = command.get_program().display();
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{tool}: {}: {}", output.status, last.join("; ")))
    }
}

/// A client, told the total that it must see.
fn python_client(script: &str, total: u64) -> Option<Run> {
    match python() {
        Ok(python) => {
            let script = clients_dir().join(script);
            let run = Run::new(python).arg(script).arg(total.to_string());
            Some(run.env("PYTHONDONTWRITEBYTECODE", "1").env("TERM", "xterm").limit(Duration::from_secs(120)))
        }
        Err(missing) => {
            skip(&missing);
            None
        }
    }
}

fn rust_client(total: u64) -> Option<Run> {
    match cudarc_client() {
        Ok(program) => Some(Run::new(program).arg(total.to_string())),
        Err(missing) => {
            skip(&missing);
            None
        }
    }
}

fn on_the_bare_driver(client: Option<Run>) {
    if let Some(client) = client {
        client.on(&Machine::new("16GiB")).finish().success();
    }
}

fn within_a_quota(client: Option<Run>) {
    if let Some(client) = client {
        let container = Container::new("limit = \"4GiB\"\n");
        client.on(&Machine::new("16GiB")).within(&container).finish().success();
    }
}

macro_rules! clients {
    ($($name:ident: $client:expr;)*) => { $(
        mod $name {
            use super::*;

            #[test]
            fn sees_the_card_on_the_bare_driver() {
                on_the_bare_driver($client(CARD));
            }

            #[test]
            fn sees_the_quota_and_is_held_to_it() {
                within_a_quota($client(QUOTA));
            }
        }
    )* };
}

clients! {
    numba_cuda: |total| python_client("with_numba_cuda.py", total);
    cuda_bindings: |total| python_client("with_cuda_bindings.py", total);
    cuda_core: |total| python_client("with_cuda_core.py", total);
    nvidia_ml_py: |total| python_client("with_nvidia_ml_py.py", total);
    gpustat: |total| python_client("with_gpustat.py", total);
    nvitop: |total| python_client("with_nvitop.py", total);
    cudarc: rust_client;
}

/// To programs lazy memory is plain memory, here from the first byte on.
#[test]
fn programs_notice_nothing_of_lazy_memory() {
    let scripts = ["with_numba_cuda.py", "with_cuda_bindings.py", "with_cuda_core.py"];
    let clients = scripts.map(|script| python_client(script, QUOTA));
    for client in clients.into_iter().chain([rust_client(QUOTA)]).flatten() {
        let container = Container::new("limit = \"4GiB\"\ngrowth = \"lazy\"\nlazy_from = 1\n");
        client.on(&Machine::new("16GiB")).within(&container).finish().success();
    }
}

/// A driver may hand out addresses that no exported name has, to programs that ask for everything by look-up.
#[test]
fn programs_that_look_everything_up_are_held_whatever_address_the_driver_gives() {
    for script in ["with_numba_cuda.py", "with_cuda_bindings.py", "with_cuda_core.py"] {
        let Some(client) = python_client(script, QUOTA) else { return };
        let container = Container::new("limit = \"4GiB\"\n");
        client.on(&Machine::new("16GiB,procaddr=inner")).within(&container).finish().success();
    }
}
