//! A machine with one simulated card and containers on it, each of which sees its neighbours.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::common::client::Client;
use crate::common::{Machine, Run, preload, temp_dir};

/// What the entries of `peers` lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// A directory with the neighbour's quota file and its state, all neighbours and oneself, as hooks mount it.
    Mounted,
    /// The neighbour's state, and only neighbours, as one would link it by hand.
    Linked,
}

pub struct Node {
    dir: TempDir,
    pub machine: Machine,
    layout: Layout,
}

/// A container: `etc/quota.toml`, `state/`, and in that `peers/`.
pub struct Container {
    dir: PathBuf,
    machine: Vec<(std::ffi::OsString, std::ffi::OsString)>,
}

impl Node {
    pub fn new(spec: &str, layout: Layout) -> Node {
        Node { dir: temp_dir("node"), machine: Machine::new(spec), layout }
    }

    pub fn container(&self, name: &str, quota: &str) -> Container {
        let dir = self.dir.path().join(name);
        fs::create_dir_all(dir.join("etc")).expect("a directory");
        fs::create_dir_all(dir.join("state/peers")).expect("a directory");
        let container = Container { dir: dir.clone(), machine: self.machine.env() };
        container.write_quota(quota);
        for other in self.names() {
            if other != name {
                self.link(name, &other);
                self.link(&other, name);
            }
        }
        if self.layout == Layout::Mounted {
            self.link(name, name);
        }
        container
    }

    /// A program with a context that is in no container, and that nobody knows of.
    #[track_caller]
    pub fn outsider(&self) -> Program {
        let run =
            self.machine.env().into_iter().fold(Client::run(), |run, (name, value)| run.env(name, value));
        Program::start(run).expect("room for a context")
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path()).expect("a directory").flatten();
        entries.map(|entry| entry.file_name().into_string().expect("a name")).collect()
    }

    /// Lets `one` see `other`.
    fn link(&self, one: &str, other: &str) {
        let seen = self.dir.path().join(other);
        let seen = if self.layout == Layout::Mounted { seen } else { seen.join("state") };
        symlink(seen, self.dir.path().join(one).join("state/peers").join(other)).expect("a link");
    }

    /// Takes a container away, as a hook does when it has stopped.
    pub fn remove(&self, name: &str) {
        for other in self.names() {
            let _ = fs::remove_file(self.dir.path().join(other).join("state/peers").join(name));
        }
        fs::remove_dir_all(self.dir.path().join(name)).expect("a container to remove");
    }
}

impl Container {
    pub fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    /// The ledger, once a program has run.
    pub fn ledger(&self) -> PathBuf {
        self.state().join("ledger")
    }

    pub fn write_quota(&self, quota: &str) {
        let fresh = self.dir.join("etc/quota.toml.new");
        fs::write(&fresh, quota).expect("a quota file");
        fs::rename(&fresh, self.dir.join("etc/quota.toml")).expect("the quota file in place");
    }

    pub fn within(&self, mut run: Run) -> Run {
        for (name, value) in &self.machine {
            run = run.env(name, value);
        }
        // A soak may keep one for as long as it lasts.
        run.limit(Duration::from_secs(24 * 60 * 60))
            .env("LD_PRELOAD", preload())
            .env("CUQUOTA_CONFIG", self.dir.join("etc/quota.toml"))
            .env("CUQUOTA_STATE", self.state())
    }

    /// A program that has a context.
    #[track_caller]
    pub fn start(&self) -> Program {
        self.try_start().expect("room for a context")
    }

    /// A program that has a context, unless that is refused.
    #[track_caller]
    pub fn try_start(&self) -> Option<Program> {
        Program::start(self.within(Client::run()))
    }
}

/// A program that takes and gives back what the test says. Killed when dropped.
pub struct Program(Client);

impl Program {
    /// Starts it with a context, unless that is refused.
    #[track_caller]
    pub fn start(run: Run) -> Option<Program> {
        Program::begin(&run).begun()
    }

    /// The same in two steps: begins to start it,
    pub fn begin(run: &Run) -> Program {
        let mut client = Client::start(run);
        client.say("start");
        Program(client)
    }

    /// and waits for that.
    #[track_caller]
    pub fn begun(mut self) -> Option<Program> {
        let answer = self.0.answer();
        let granted = answer == serde_json::json!({});
        assert!(granted || answer["error"] == "CUDA_ERROR_OUT_OF_MEMORY", "{answer}");
        granted.then_some(self)
    }

    /// Does something while the program stands still.
    pub fn stopped<T>(&self, what: impl FnOnce() -> T) -> T {
        let program = Pid::from_raw(self.0.id().cast_signed()).expect("a process");
        let send = |signal| kill_process(program, signal).expect("a program");
        send(Signal::STOP);
        let done = what();
        send(Signal::CONT);
        done
    }

    /// What the program is told is free.
    #[track_caller]
    pub fn free(&mut self) -> u64 {
        self.0.ask("info")["free"].as_u64().expect("a number")
    }

    /// Whether so many bytes were granted; a refusal is the driver's own.
    #[track_caller]
    pub fn take(&mut self, bytes: u64) -> bool {
        self.begin_take(bytes);
        self.was_granted()
    }

    pub fn begin_take(&mut self, bytes: u64) {
        self.0.say(&format!("allocate {bytes}"));
    }

    #[track_caller]
    pub fn was_granted(&mut self) -> bool {
        let answer = self.0.answer();
        let granted = answer["granted"].is_u64();
        assert!(granted || answer["error"] == "CUDA_ERROR_OUT_OF_MEMORY", "{answer}");
        granted
    }

    /// How many pieces of that size are granted before one is refused.
    #[track_caller]
    pub fn take_chunks(&mut self, bytes: u64) -> u64 {
        (0..).find(|_| !self.take(bytes)).expect("an end")
    }

    /// Gives the last piece back; how large it was.
    pub fn give_back(&mut self) -> u64 {
        self.0.ask("free")["freed"].as_u64().expect("a number")
    }

    #[track_caller]
    pub fn until_free(&mut self, wanted: u64) {
        let since = Instant::now();
        loop {
            let free = self.free();
            if free == wanted {
                return;
            }
            assert!(since.elapsed() < Duration::from_secs(1), "{free} free instead of {wanted}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether the answer to the last question is there.
    pub fn is_answered(&self) -> bool {
        self.0.is_answered()
    }

    pub fn kill(&mut self) {
        self.0.kill();
    }
}

/// Writes a file that is there already, whoever has it open.
pub fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let file = fs::File::options().write(true).open(path).expect("a file to write");
    file.write_all_at(bytes, at).expect("a write");
}
