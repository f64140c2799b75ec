//! Running a program in an environment of the test's choice.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

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
    limit: Option<Duration>,
}

/// How long a program may take that is run to its end.
const TO_ITS_END: Duration = Duration::from_secs(60);

/// How long one may live that a test talks to.
const ALIVE: Duration = Duration::from_secs(600);

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
            limit: None,
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

    /// How long the program may live; the default is a minute if it is run to its end, and ten otherwise.
    pub fn limit(mut self, limit: Duration) -> Run {
        self.limit = Some(limit);
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

    /// Starts the program with its three streams piped. One that lives longer than its limit is killed, so that a test
    /// that waits for it fails.
    pub fn spawn(&self) -> Child {
        self.start(self.limit.unwrap_or(ALIVE))
    }

    fn start(&self, limit: Duration) -> Child {
        let mut command = self.command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A program that this process has just written may still be open in a child that another test is about to start.
        let mut started = command.spawn();
        for _ in 0..200 {
            match started {
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {
                    std::thread::sleep(Duration::from_millis(10));
                    started = command.spawn();
                }
                _ => break,
            }
        }
        let child = started.unwrap_or_else(|e| panic!("cannot run {}: {e}", self.program.display()));
        kill_after(limit, &child, self.program.display().to_string());
        child
    }

    /// Runs the program to its end. One that takes longer than its limit is killed, and the test fails.
    pub fn finish(self) -> Finished {
        let mut child = self.start(self.limit.unwrap_or(TO_ITS_END));
        feed(child.stdin.take().expect("piped"), self.input);
        let stdout = drain(child.stdout.take().expect("piped"));
        let stderr = drain(child.stderr.take().expect("piped"));
        let status = child.wait().expect("a child to wait for");
        let text = |stream: Receiver<String>| {
            let text = stream.recv_timeout(TO_ITS_END);
            text.unwrap_or_else(|_| {
                panic!("{} left one behind that holds its output", self.program.display())
            })
        };
        Finished { status, stdout: text(stdout), stderr: text(stderr) }
    }
}

/// Kills the child, and says so, unless it has ended by then.
fn kill_after(limit: Duration, child: &Child, program: String) {
    let pid = Pid::from_child(child);
    let process = pidfd_open(pid, PidfdFlags::empty()).unwrap_or_else(|e| panic!("{program}: {e}"));
    std::thread::spawn(move || {
        let limit = Timespec::try_from(limit).expect("a span that a clock can tell");
        let ended = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit));
        if ended == Ok(0) && pidfd_send_signal(&process, Signal::KILL).is_ok() {
            eprintln!("{program} was killed: it had not ended within {} s", limit.tv_sec);
        }
    });
}

/// A program may end, or close its input, without having read it all.
fn feed(mut stdin: impl Write + Send + 'static, input: Vec<u8>) {
    std::thread::spawn(move || {
        let _ = stdin.write_all(&input);
    });
}

/// All that comes, once it has ended.
fn drain(mut stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("a stream to read");
        // A test that has failed does not listen any more.
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
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
