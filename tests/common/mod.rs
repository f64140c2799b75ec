//! What the tests share: the built artefacts, the simulated machine, a container's files, and running programs.
#![allow(dead_code, unused_imports)] // each test uses a part of it

mod artefacts;
pub mod client;
pub mod programs;
pub mod python;
pub mod random;
pub mod run;
pub mod skip;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

pub use artefacts::{compiler, cuquota, preload, sim_dir, target_dir};
pub use run::{Finished, Run};

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;

/// Whether `CUQUOTA_TEST_DRIVER=real` asks for the machine's own driver instead of the simulated one.
pub fn driver_is_real() -> bool {
    match std::env::var("CUQUOTA_TEST_DRIVER").as_deref() {
        Ok("real") => true,
        Ok("sim") | Err(_) => false,
        Ok(other) => panic!("CUQUOTA_TEST_DRIVER is {other:?}; want \"real\" or \"sim\""),
    }
}

/// A simulated machine of its own: nobody else uses its cards, and they are gone when it is dropped.
pub struct Machine {
    cards: TempDir,
    spec: String,
}

impl Machine {
    /// A machine as `SIMGPU_SPEC` describes it, such as `"16GiB,context=100MiB"`.
    pub fn new(spec: &str) -> Machine {
        Machine { cards: temp_dir("cards"), spec: spec.to_string() }
    }

    /// The same cards under other options, such as another driver version.
    pub fn with_spec(mut self, spec: &str) -> Machine {
        self.spec = spec.to_string();
        self
    }

    pub fn cards_dir(&self) -> &Path {
        self.cards.path()
    }

    /// What a program on this machine finds in its environment.
    pub fn env(&self) -> Vec<(OsString, OsString)> {
        if driver_is_real() {
            return vec![];
        }
        vec![
            ("SIMGPU_SPEC".into(), self.spec.clone().into()),
            ("SIMGPU_DIR".into(), self.cards.path().into()),
            ("LD_LIBRARY_PATH".into(), sim_dir().into()),
        ]
    }
}

/// A container's quota file and state directory, gone when it is dropped.
pub struct Container {
    dir: TempDir,
}

impl Container {
    /// A container whose quota file holds `quota`.
    pub fn new(quota: &str) -> Container {
        let container = Container { dir: temp_dir("container") };
        fs::create_dir(container.state_dir()).expect("a state directory");
        container.write_quota(quota);
        container
    }

    pub fn quota_file(&self) -> PathBuf {
        self.dir.path().join("quota.toml")
    }

    pub fn state_dir(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// Replaces the quota file in one step, so that no reader sees half of it.
    pub fn write_quota(&self, quota: &str) {
        let fresh = self.dir.path().join("quota.toml.new");
        fs::write(&fresh, quota).expect("a quota file");
        fs::rename(&fresh, self.quota_file()).expect("the quota file in place");
    }

    /// What a program in this container finds in its environment.
    pub fn env(&self) -> Vec<(OsString, OsString)> {
        vec![
            ("LD_PRELOAD".into(), preload().into()),
            ("CUQUOTA_CONFIG".into(), self.quota_file().into()),
            ("CUQUOTA_STATE".into(), self.state_dir().into()),
        ]
    }
}

/// An empty directory that is gone when it is dropped.
pub fn temp_dir(what: &str) -> TempDir {
    let dir = tempfile::Builder::new().prefix(&format!("cuquota-{what}-")).tempdir();
    dir.expect("a temporary directory")
}

/// Reads a program's output up to the line that says `wanted`.
pub fn wait_for_line(child: &mut std::process::Child, wanted: &str) {
    use std::io::BufRead;
    let stdout = child.stdout.as_mut().expect("its output is piped");
    let mut line = String::new();
    // One byte at a time would do, but the rest of the output is of no interest to those who wait.
    let mut reader = std::io::BufReader::with_capacity(1, stdout);
    while line.trim_end() != wanted {
        line.clear();
        assert_ne!(
            reader.read_line(&mut line).expect("a line"),
            0,
            "the program ended before it said {wanted}"
        );
    }
}
