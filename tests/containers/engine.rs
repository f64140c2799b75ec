//! Running a program in a container of a real engine.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::base::{self, text};
use crate::common::{Machine, Run, cuquota, sim_dir, target_dir, temp_dir};
use crate::containerd::{self, Root};

/// Where a container sees the simulated cards.
const CARDS: &str = "/cards";
/// The name of the image that podman and docker run.
pub const IMAGE: &str = "cuquota-test/base:1";

/// For podman: where limits may not be raised, its defaults that ask for more must go.
pub const LIMITS: [&str; 2] = ["--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    Runc,
    Podman,
    Docker,
    Containerd,
}

/// What a container is to be.
#[derive(Default)]
pub struct Want {
    /// Annotations by name.
    pub annotations: Vec<(&'static str, String)>,
    /// Bind mounts, from and to, read-only.
    pub mounts: Vec<(PathBuf, String)>,
    /// Variables on top of the simulated machine's.
    pub env: Vec<(&'static str, String)>,
    /// A CDI device by its full name.
    pub device: Option<String>,
    /// Another root than the base, for runc.
    pub rootfs: Option<PathBuf>,
    /// Another image than the base, for podman and docker.
    pub image: Option<String>,
    /// Nobody calls the hook when it has stopped; for runc.
    pub forgotten: bool,
}

/// A machine's containers: the simulated cards that they share, their engine, and the hook's directory.
pub struct Host {
    engine: Engine,
    machine: Machine,
    dir: TempDir,
}

/// A container that may run. Removed when it is dropped.
pub struct Boxed<'a> {
    host: &'a Host,
    name: String,
    want: Want,
    /// Its root, where the engine does not make one.
    root: OnceLock<Root>,
}

impl Host {
    /// A machine of one simulated card of 16 GiB whose containers `engine` runs; the error says what is missing.
    pub fn new(engine: Engine) -> Result<Host, String> {
        if !is_root() {
            return Err("container tests need to run as root".to_string());
        }
        base::rootfs().map_err(|e| format!("images are made of this machine's Debian packages: {e}"))?;
        match engine {
            Engine::Runc => {
                text(Command::new("runc").arg("--version")).map_err(|e| format!("{e} (Debian: runc)"))?
            }
            Engine::Podman => podman_image()?,
            Engine::Docker => docker()?,
            Engine::Containerd => containerd::daemon()?,
        };
        let host = Host { engine, machine: Machine::new("16GiB"), dir: temp_dir("node") };
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(host.machine.cards_dir(), open).expect("cards that every user may open");
        fs::create_dir(host.node()).expect("the hook's directory");
        fs::create_dir(host.hooks()).expect("a directory of hooks");
        for stage in ["createContainer", "poststop"] {
            // The one that is shipped, with the built command in place of the installed one.
            let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("docker/hooks.d");
            let shipped = fs::read_to_string(shipped.join(format!("cuquota-{stage}.json"))).expect("a hook");
            let mut hook: Value = serde_json::from_str(&shipped).expect("a hook in JSON");
            assert_eq!(hook["hook"]["path"], crate::CLIENT[0], "where docs/containers.md has it installed");
            let args = host.hook_args(stage);
            assert_eq!(hook["hook"]["args"], json!(args[..3]));
            hook["hook"] = json!({ "path": cuquota(), "args": args });
            fs::write(host.hooks().join(format!("{stage}.json")), hook.to_string()).expect("a hook");
        }
        Ok(host)
    }

    /// Where the hook keeps quota and state of the containers.
    pub fn node(&self) -> PathBuf {
        self.dir.path().join("containers")
    }

    /// What a program in a container needs to find the simulated machine, as flags of podman and docker.
    pub fn simulated(&self) -> Vec<String> {
        let built = target_dir();
        let mut flags = vec![
            format!("--volume={0}:{0}:ro", built.display()),
            format!("--volume={}:{CARDS}", self.machine.cards_dir().display()),
        ];
        flags.extend(variables().into_iter().map(|(name, value)| format!("--env={name}={value}")));
        flags
    }

    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    fn hooks(&self) -> PathBuf {
        self.dir.path().join("hooks.d")
    }

    pub fn hook_args(&self, stage: &str) -> Vec<String> {
        let node = self.node().display().to_string();
        vec!["cuquota".into(), "hook".into(), stage.into(), "--node".into(), node]
    }

    /// A container that is not running yet.
    pub fn container(&self, want: Want) -> Boxed<'_> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("cuquota-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Boxed { host: self, name, want, root: OnceLock::new() }
    }
}

/// Variables by which programs find the simulated machine.
pub fn variables() -> [(&'static str, String); 3] {
    [
        ("SIMGPU_SPEC", "16GiB".to_string()),
        ("SIMGPU_DIR", CARDS.to_string()),
        ("LD_LIBRARY_PATH", sim_dir().display().to_string()),
    ]
}

impl Boxed<'_> {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Removes it, and answers what it was, for another of its kind.
    pub fn into_want(mut self) -> Want {
        std::mem::take(&mut self.want)
    }

    /// Runs the program as the container's first; its streams are the caller's.
    pub fn run(&self, args: &[&str]) -> Run {
        let run = match self.host.engine {
            Engine::Runc => self.runc(args),
            Engine::Podman => {
                let run =
                    Run::new("podman").args(podman_storage()).args(["run", "--rm", "-i", "--network=none"]);
                let run = run.args(LIMITS).arg("--hooks-dir").arg(self.host.hooks());
                self.flags(run).arg(self.image()).args(args.to_vec())
            }
            Engine::Docker => {
                let run = Run::new(docker_command()).args(docker_host()).args([
                    "run",
                    "--rm",
                    "-i",
                    "--network=none",
                ]);
                self.flags(run).arg(self.image()).args(args.to_vec())
            }
            Engine::Containerd => self.containerd(args),
        };
        run.limit(Duration::from_secs(180))
    }

    /// Kills all of it, as an operator does.
    pub fn kill(&self) {
        let mut command = match self.host.engine {
            Engine::Runc => {
                let mut runc = Command::new("runc");
                runc.arg("--root").arg(self.runc_root()).args(["kill", &self.name, "KILL"]);
                runc
            }
            Engine::Podman => {
                let mut podman = Command::new("podman");
                podman.args(podman_storage()).args(["kill", &self.name]);
                podman
            }
            Engine::Docker => {
                let mut docker = Command::new(docker_command());
                docker.args(docker_host()).args(["kill", &self.name]);
                docker
            }
            Engine::Containerd => {
                containerd::ctr(&["tasks", "kill", "--signal", "KILL", &self.name]).command()
            }
        };
        text(&mut command).expect("a container to kill");
    }

    fn image(&self) -> String {
        self.want.image.clone().unwrap_or_else(|| IMAGE.to_string())
    }

    /// Variables by which its programs find the simulated machine.
    fn variables(&self) -> Vec<String> {
        let machine = variables();
        machine.iter().chain(&self.want.env).map(|(name, value)| format!("{name}={value}")).collect()
    }

    /// What podman and docker understand alike.
    fn flags(&self, run: Run) -> Run {
        let mut run = run.arg("--name").arg(&self.name).args(self.host.simulated());
        for (name, value) in &self.want.env {
            run = run.arg("--env").arg(format!("{name}={value}"));
        }
        for (from, to) in &self.want.mounts {
            run = run.arg("--volume").arg(format!("{}:{to}:ro", from.display()));
        }
        for (name, value) in &self.want.annotations {
            run = run.arg("--annotation").arg(format!("{name}={value}"));
        }
        if let Some(device) = &self.want.device {
            run = run.arg("--device").arg(device);
        }
        run
    }

    fn runc_root(&self) -> PathBuf {
        self.host.dir.path().join("runc")
    }

    /// A configuration as containerd makes it of a Pod's, with the hooks that a CDI device has it put there.
    fn containerd(&self, args: &[&str]) -> Run {
        let root = self.root.get_or_init(|| Root::over(&base::rootfs().expect("made before")));
        let mut spec = self.configuration(args);
        spec["root"]["path"] = json!(root.path());
        let file = self.host.dir.path().join(format!("{}.json", self.name));
        fs::write(&file, spec.to_string()).expect("a configuration");
        containerd::ctr(&["run", "--rm", "--config"]).arg(file).arg(&self.name)
    }

    /// An overlay over the root in a mount namespace of its own, and `runc run` in it.
    fn runc(&self, args: &[&str]) -> Run {
        let bundle = self.host.dir.path().join(&self.name);
        for dir in ["upper", "work", "rootfs"] {
            fs::create_dir_all(bundle.join(dir)).expect("a bundle");
        }
        fs::write(bundle.join("config.json"), self.configuration(args).to_string()).expect("a configuration");
        let lower = self.want.rootfs.clone().unwrap_or_else(|| base::rootfs().expect("made before"));
        let script =
            "mount -t overlay overlay -o \"lowerdir=$0,upperdir=$1/upper,workdir=$1/work\" \"$1/rootfs\"
             exec runc --root \"$2\" run --bundle \"$1\" \"$3\"";
        let run = Run::new("unshare").args(["--mount", "sh", "-ec", script]);
        run.arg(lower).arg(bundle).arg(self.runc_root()).arg(&self.name)
    }

    fn configuration(&self, args: &[&str]) -> Value {
        let spec = Command::new("runc").arg("spec").current_dir(self.host.spec_dir()).output();
        assert!(spec.expect("runc").status.success(), "runc spec");
        let spec = fs::read_to_string(self.host.spec_dir().join("config.json")).expect("what runc wrote");
        fs::remove_file(self.host.spec_dir().join("config.json")).expect("what runc wrote");
        let mut spec: Value = serde_json::from_str(&spec).expect("a configuration in JSON");
        let process = spec["process"].as_object_mut().expect("a process");
        // Raising limits needs a right that a test machine may lack.
        process.remove("rlimits");
        process.insert("terminal".into(), false.into());
        process.insert("args".into(), json!(args));
        let mut env = self.variables();
        env.push("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into());
        process.insert("env".into(), json!(env));
        let rights = ["CAP_SETUID", "CAP_SETGID", "CAP_CHOWN", "CAP_FOWNER", "CAP_DAC_OVERRIDE", "CAP_KILL"];
        for set in ["bounding", "effective", "permitted"] {
            process["capabilities"][set] = json!(rights);
        }
        spec["root"] = json!({ "path": "rootfs", "readonly": false });
        let annotations =
            self.want.annotations.iter().map(|(name, value)| ((*name).to_string(), json!(value)));
        spec["annotations"] = Value::Object(annotations.collect());
        let mounts = spec["mounts"].as_array_mut().expect("mounts");
        let mut bind = |from: &Path, to: &str, access: &str| {
            mounts.push(
                json!({ "destination": to, "source": from, "type": "bind", "options": ["bind", access] }),
            );
        };
        bind(&target_dir(), &target_dir().display().to_string(), "ro");
        bind(self.host.machine.cards_dir(), CARDS, "rw");
        for (from, to) in &self.want.mounts {
            bind(from, to, "ro");
        }
        if !self.want.annotations.is_empty() {
            let hook = |stage| json!([{ "path": cuquota(), "args": self.host.hook_args(stage) }]);
            spec["hooks"] = json!({ "createContainer": hook("createContainer") });
            if !self.want.forgotten {
                spec["hooks"]["poststop"] = hook("poststop");
            }
        }
        spec
    }
}

impl Host {
    /// `runc spec` refuses to overwrite a configuration: each thread has a directory for it.
    fn spec_dir(&self) -> PathBuf {
        let dir = self.dir.path().join("spec");
        fs::create_dir_all(&dir).expect("a directory");
        dir
    }
}

impl Drop for Boxed<'_> {
    fn drop(&mut self) {
        // Most have ended and removed themselves.
        let _ = match self.host.engine {
            Engine::Runc => {
                let mut runc = Command::new("runc");
                runc.arg("--root").arg(self.runc_root()).args(["delete", "--force", &self.name]).output()
            }
            Engine::Podman => {
                Command::new("podman").args(podman_storage()).args(["rm", "--force", &self.name]).output()
            }
            Engine::Docker => Command::new(docker_command())
                .args(docker_host())
                .args(["rm", "--force", &self.name])
                .output(),
            Engine::Containerd => {
                let _ = containerd::ctr(&["tasks", "delete", "--force", &self.name]).command().output();
                containerd::ctr(&["containers", "delete", &self.name]).command().output()
            }
        };
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0)
}

/// Storage of the tests' own, so that the machine's images and containers are left alone.
pub fn podman_storage() -> [String; 4] {
    let dir = target_dir().join("tests-containers/podman");
    let (root, mut hash) = (dir.join("root").display().to_string(), DefaultHasher::new());
    // The other directory must have a short name, and always the same one for this storage.
    root.hash(&mut hash);
    ["--root".into(), root, "--runroot".into(), format!("/run/cuquota-test-{:016x}", hash.finish())]
}

fn podman_image() -> Result<String, String> {
    static MADE: OnceLock<Result<String, String>> = OnceLock::new();
    let make = || {
        text(Command::new("podman").arg("--version")).map_err(|e| format!("{e} (Debian: podman)"))?;
        let root = base::rootfs()?;
        let import = "tar -C \"$0\" -c . | podman \"$@\" import --quiet - ";
        let import = format!("{import} {IMAGE}");
        text(Command::new("sh").args(["-ec", &import]).arg(&root).args(podman_storage()))
    };
    MADE.get_or_init(make).clone()
}

/// Debian's client, not what else may bear its name.
pub fn docker_command() -> &'static str {
    "/usr/bin/docker"
}

fn docker_dir() -> PathBuf {
    target_dir().join(format!("tests-containers/docker-{}", std::process::id()))
}

pub fn docker_host() -> [String; 2] {
    ["--host".into(), format!("unix://{}", docker_dir().join("socket").display())]
}

/// Starts a daemon of the tests' own, which ends with them, and imports the image.
fn docker() -> Result<String, String> {
    static MADE: OnceLock<Result<String, String>> = OnceLock::new();
    let make = || {
        if !Path::new("/usr/sbin/dockerd").exists() {
            return Err("/usr/sbin/dockerd is not there (Debian: docker.io)".to_string());
        }
        let dir = docker_dir();
        fs::create_dir_all(&dir).expect("a directory for the daemon");
        // The shell outlives this process just long enough to end the daemon.
        let script = "
            dockerd --iptables=false --ip6tables=false --bridge=none --host \"unix://$0/socket\" --pidfile \"$0/pid\" \\
                --data-root \"$0/data\" --exec-root \"$0/exec\" >\"$0/log\" 2>&1 &
            while kill -0 \"$1\" 2>/dev/null && kill -0 $! 2>/dev/null; do sleep 0.5; done
            kill $! 2>/dev/null; wait; rm -rf \"$0\"";
        let mut daemon = Command::new("setsid");
        daemon.args(["sh", "-c", script]).arg(&dir).arg(std::process::id().to_string());
        daemon.stdin(std::process::Stdio::null());
        daemon.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        daemon.spawn().map_err(|e| format!("setsid: {e}"))?;
        let mut said = String::new();
        for _ in 0..120 {
            match text(
                Command::new(docker_command()).args(docker_host()).args(["info", "--format", "{{.ID}}"]),
            ) {
                Ok(_) => {
                    let import = format!("tar -C \"$0\" -c . | {} \"$@\" import - {IMAGE}", docker_command());
                    let root = base::rootfs()?;
                    return text(Command::new("sh").args(["-ec", &import]).arg(&root).args(docker_host()));
                }
                Err(why) => said = why,
            }
            std::thread::sleep(Duration::from_millis(250));
        }
        let log = fs::read_to_string(dir.join("log")).unwrap_or_default();
        Err(format!("dockerd does not start: {said}: {}", log.lines().last().unwrap_or_default()))
    };
    MADE.get_or_init(make).clone()
}
