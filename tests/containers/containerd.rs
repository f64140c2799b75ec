//! containerd, with a daemon of the tests' own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use tempfile::TempDir;

use crate::base::text;
use crate::common::{Run, target_dir, temp_dir};

fn dir() -> PathBuf {
    target_dir().join(format!("tests-containers/containerd-{}", std::process::id()))
}

/// Its command, for this daemon.
pub fn ctr(args: &[&str]) -> Run {
    Run::new("ctr").arg("--address").arg(dir().join("socket")).args(args.to_vec())
}

/// Starts the daemon, which ends with the tests; the error says what is missing.
pub fn daemon() -> Result<String, String> {
    static MADE: OnceLock<Result<String, String>> = OnceLock::new();
    let make = || {
        text(Command::new("containerd").arg("--version")).map_err(|e| format!("{e} (Debian: containerd)"))?;
        text(Command::new("runc").arg("--version")).map_err(|e| format!("{e} (Debian: runc)"))?;
        let dir = dir();
        fs::create_dir_all(&dir).expect("a directory for the daemon");
        // Kubernetes' part of it wants a network.
        let settings = "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n";
        fs::write(dir.join("config.toml"), settings).expect("its settings");
        // The shell outlives this process just long enough to end the daemon.
        let script = "
            containerd --config \"$0/config.toml\" --root \"$0/root\" --state \"$0/state\" --address \"$0/socket\" \\
                >\"$0/log\" 2>&1 &
            while kill -0 \"$1\" 2>/dev/null && kill -0 $! 2>/dev/null; do sleep 0.5; done
            kill $! 2>/dev/null; wait; rm -rf \"$0\"";
        let mut daemon = Command::new("setsid");
        daemon.args(["sh", "-c", script]).arg(&dir).arg(std::process::id().to_string());
        daemon.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        daemon.spawn().map_err(|e| format!("setsid: {e}"))?;
        let mut said = String::new();
        for _ in 0..120 {
            match text(&mut ctr(&["version"]).command()) {
                Ok(version) => return Ok(version),
                Err(why) => said = why,
            }
            std::thread::sleep(Duration::from_millis(250));
        }
        let log = fs::read_to_string(dir.join("log")).unwrap_or_default();
        Err(format!("containerd does not start: {said}: {}", log.lines().last().unwrap_or_default()))
    };
    MADE.get_or_init(make).clone()
}

/// A root that a container may write, over one that stays as it is. Where the machine sees it, and gone when it is dropped.
pub struct Root(TempDir);

impl Root {
    pub fn over(lower: &Path) -> Root {
        let dir = temp_dir("root");
        let script = "
            mount -t tmpfs tmpfs \"$0\"
            mkdir \"$0/upper\" \"$0/work\" \"$0/rootfs\"
            mount -t overlay overlay -o \"lowerdir=$1,upperdir=$0/upper,workdir=$0/work\" \"$0/rootfs\"";
        text(Command::new("sh").args(["-ec", script]).arg(dir.path()).arg(lower)).expect("a root");
        Root(dir)
    }

    pub fn path(&self) -> PathBuf {
        self.0.path().join("rootfs")
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        for mounted in [self.path(), self.0.path().to_owned()] {
            let _ = Command::new("umount").arg("--lazy").arg(mounted).status();
        }
    }
}
