//! Running a program in an environment of the test's choice.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::{Container, Machine};

/// Variables with one of these beginnings decide how the parts under test behave: none reaches a program unless its
/// test sets it.
const OURS: &[&str] = &["CUQUOTA_", "SIMGPU_", "CUDA_", "NVIDIA_", "LD_PRELOAD", "LD_LIBRARY_PATH", "NUMBA_"];

/// A program to be run.
pub struct Run {
    program: PathBuf,
    args: Vec<OsString>,
    env: BTreeMap<OsString, OsString>,
    dir: Option<PathBuf>,
    input: Vec<u8>,
    limit: Duration,
}

/// How a program ended, and what it said.
#[derive(Debug)]
pub struct Finished {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Run {
    pub fn new(program: impl AsRef<Path>) -> Run {
        let ours = |name: &OsStr| OURS.iter().any(|start| name.to_string_lossy().starts_with(start));
        Run {
            program: program.as_ref().to_path_buf(),
            args: Vec::new(),
            env: std::env::vars_os().filter(|(name, _)| !ours(name)).collect(),
            dir: None,
            input: Vec::new(),
            limit: Duration::from_secs(60),
        }
    }

    pub fn arg(mut self, arg: impl Into<OsString>) -> Run {
        self.args.push(arg.into());
        self
    }

    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Run {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Run {
        self.env.insert(name.into(), value.into());
        self
    }

    pub fn without_env(mut self, name: &str) -> Run {
        self.env.remove(OsStr::new(name));
        self
    }

    pub fn in_dir(mut self, dir: impl Into<PathBuf>) -> Run {
        self.dir = Some(dir.into());
        self
    }

    /// What `finish` writes to the program's standard input.
    pub fn input(mut self, input: impl Into<Vec<u8>>) -> Run {
        self.input = input.into();
        self
    }

    /// On this simulated machine.
    pub fn on(mut self, machine: &Machine) -> Run {
        self.env.extend(machine.env());
        self
    }

    /// In this container, under the preload library.
    pub fn within(mut self, container: &Container) -> Run {
        self.env.extend(container.env());
        self
    }

    /// How long the program may take; the default is a minute.
    pub fn limit(mut self, limit: Duration) -> Run {
        self.limit = limit;
        self
    }

    /// The command itself, for a test that wants to do more than to wait for its end.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).env_clear().envs(&self.env);
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        command
    }

    /// Starts the program with its three streams piped.
    pub fn spawn(&self) -> Child {
        let mut command = self.command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap_or_else(|e| panic!("cannot run {}: {e}", self.program.display()))
    }

    /// Runs the program to its end. One that takes longer than its limit is killed, and the test fails.
    pub fn finish(self) -> Finished {
        let mut child = self.spawn();
        feed(child.stdin.take().expect("piped"), self.input);
        let stdout = drain(child.stdout.take().expect("piped"));
        let stderr = drain(child.stderr.take().expect("piped"));
        let started = Instant::now();
        let mut pause = Duration::from_millis(1);
        let status = loop {
            if let Some(status) = child.try_wait().expect("a child to wait for") {
                break status;
            }
            if started.elapsed() > self.limit {
                child.kill().expect("a child to kill");
                child.wait().expect("a killed child to wait for");
                let (out, err) = (stdout.join().unwrap_or_default(), stderr.join().unwrap_or_default());
                let program = self.program.display();
                panic!("{program} did not end within {:?}\nstdout:\n{out}\nstderr:\n{err}", self.limit);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        };
        let text = |handle: std::thread::JoinHandle<String>| handle.join().expect("the reader of a stream");
        Finished { status, stdout: text(stdout), stderr: text(stderr) }
    }
}

/// A program may end, or close its input, without having read it all.
fn feed(mut stdin: impl Write + Send + 'static, input: Vec<u8>) {
    std::thread::spawn(move || {
        let _ = stdin.write_all(&input);
    });
}

fn drain(mut stream: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("a stream to read");
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

impl Finished {
    /// The exit code; a program that died of a signal fails the test.
    #[track_caller]
    pub fn code(&self) -> i32 {
        let died = || panic!("died of signal {:?}\n{self}", self.status.signal());
        self.status.code().unwrap_or_else(died)
    }

    /// Fails the test, with all that the program said, unless it ended with 0.
    #[track_caller]
    pub fn success(self) -> Finished {
        assert!(self.status.success(), "{self}");
        self
    }
}

impl std::fmt::Display for Finished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\nstdout:\n{}\nstderr:\n{}", self.status, self.stdout, self.stderr)
    }
}
