//! `cuquota cdi`: budgets as devices of the Container Device Interface, which engines hand out by name.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::failure::{Context, Failure};
use super::hook::{COMMAND_INSIDE, Given, LIBRARY_INSIDE, PRELOAD_LIST};
use super::{library, out};

/// The version of the interface that all engines read: Podman 4.3 takes 0.2.0 to 0.5.0, Docker 26 0.3.0 to 0.7.0.
const CDI_VERSION: &str = "0.5.0";
/// A device is asked for as `KIND=NAME`.
const KIND: &str = "cuquota.dev/quota";
/// The devices where none are named.
const DEFAULT_DEVICES: [&str; 9] =
    ["1GiB", "2GiB", "4GiB", "8GiB", "12GiB", "16GiB", "24GiB", "32GiB", "64GiB"];

/// Describe budgets as devices that container engines hand out by name
#[derive(Args)]
pub struct Cdi {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Generate(Box<Generate>),
}

/// Write a specification of the Container Device Interface
///
/// Each DEVICE is a budget: LIMIT, or NAME=LIMIT, then ,reserve=SIZE and ,growth=GROWTH where wanted. A container gets
/// one by `--device cuquota.dev/quota=NAME`. Its quota file lies below --files and is mounted into the containers that
/// have this device: who edits it changes the budget of all of them at once.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
struct Generate {
    /// Budgets such as 4GiB or big=24GiB,reserve=16GiB,growth=lazy [default: 1GiB to 64GiB]
    #[arg(value_name = "DEVICE")]
    devices: Vec<String>,

    /// Where to write the specification [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Where to keep the quota files of the devices
    #[arg(long, value_name = "DIR", default_value = "/var/lib/cuquota/devices")]
    files: PathBuf,

    /// Mount only, and call no hook: images that list other libraries to preload lose them, a C library that cannot
    /// load this one is not noticed, and a reserve holds nothing back
    #[arg(long)]
    no_hook: bool,

    /// Where the hook keeps the state of each container [default: /run/cuquota-node]
    #[arg(long, value_name = "DIR", conflicts_with = "no_hook")]
    node: Option<PathBuf>,

    /// The preload library [default: beside this executable, then ../lib/cuquota/libcuquota.so from there]
    #[arg(long, value_name = "PATH")]
    preload: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  cuquota cdi generate --output /etc/cdi/cuquota.json
  cuquota cdi generate 4GiB big=24GiB,reserve=16GiB,growth=lazy --output /etc/cdi/cuquota.json
  podman run --device cuquota.dev/quota=4GiB --device nvidia.com/gpu=0 ...
  docker run --device cuquota.dev/quota=4GiB ...                    (Docker 26 and newer, with CDI on)
  annotation cdi.k8s.io/quota: cuquota.dev/quota=4GiB               (containerd, CRI-O)";

/// A budget with a name.
struct Device {
    name: String,
    budget: Given,
    quota: String,
}

impl Cdi {
    pub fn execute(self) -> Result<ExitCode, Failure> {
        let Verb::Generate(generate) = self.verb;
        generate.execute()?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Generate {
    fn execute(&self) -> Result<(), Failure> {
        let given: Vec<&str> = match self.devices.as_slice() {
            [] => DEFAULT_DEVICES.to_vec(),
            devices => devices.iter().map(String::as_str).collect(),
        };
        let devices = given.into_iter().map(Device::parse).collect::<Result<Vec<_>, _>>()?;
        for (index, device) in devices.iter().enumerate() {
            if devices[..index].iter().any(|earlier| earlier.name == device.name) {
                return Err(Failure::new(
                    format_args!("two devices have the name {}", device.name),
                    "write NAME=LIMIT to give one another name",
                ));
            }
            if self.no_hook && device.budget.reserve.is_some() {
                return Err(Failure::new(
                    format_args!("device {} has a reserve, which needs the hook", device.name),
                    "leave out reserve= or --no-hook",
                ));
            }
        }
        let specification = self.specification(&devices)?;
        let files =
            std::path::absolute(&self.files).context("find the current directory", "change into one")?;
        for device in &devices {
            write(&files.join(&device.name).join("quota.toml"), &device.quota)?;
        }
        if self.no_hook {
            write(&files.join(".preload"), &format!("{LIBRARY_INSIDE}\n"))?;
        }
        match &self.output {
            None => out::print_json(&specification),
            Some(path) => write(path, &format!("{specification:#}\n")),
        }
    }

    fn specification(&self, devices: &[Device]) -> Result<Value, Failure> {
        let library = library::find(self.preload.as_deref())?;
        let command = std::env::current_exe().context("find this executable", "is /proc mounted?")?;
        let files =
            std::path::absolute(&self.files).context("find the current directory", "change into one")?;
        let mut common =
            vec![mount(&library, LIBRARY_INSIDE, "exec"), mount(&command, COMMAND_INSIDE, "exec")];
        if self.no_hook {
            common.push(mount(&files.join(".preload"), PRELOAD_LIST, "noexec"));
        }
        let hook = |stage: &str, flags: &[String]| {
            let mut args = vec!["cuquota".to_owned(), "hook".to_owned(), stage.to_owned()];
            args.extend_from_slice(flags);
            if let Some(node) = &self.node {
                args.extend(["--node".to_owned(), node.display().to_string()]);
            }
            json!({ "hookName": stage, "path": command, "args": args })
        };
        let devices: Vec<Value> = devices
            .iter()
            .map(|device| {
                let quota = mount(&files.join(&device.name), "/etc/cuquota", "noexec");
                let mut edits = json!({ "mounts": [quota] });
                if !self.no_hook {
                    let mut flags = device.flags();
                    if self.preload.is_some() {
                        flags.extend(["--preload".to_owned(), library.display().to_string()]);
                    }
                    edits["hooks"] = json!([hook("createContainer", &flags), hook("poststop", &[])]);
                }
                json!({ "name": device.name, "containerEdits": edits })
            })
            .collect();
        Ok(json!({
            "cdiVersion": CDI_VERSION,
            "kind": KIND,
            "devices": devices,
            "containerEdits": { "mounts": common },
        }))
    }
}

impl Device {
    /// Reads `[NAME=]LIMIT[,reserve=SIZE][,growth=GROWTH]`.
    fn parse(given: &str) -> Result<Self, Failure> {
        let refuse = |why: String| {
            Failure::new(
                format_args!("device {given}: {why}"),
                "write 4GiB, or quarter=25%, or big=24GiB,reserve=16GiB,growth=lazy",
            )
        };
        let mut parts = given.split(',');
        let first = parts.next().unwrap_or_default();
        let (name, limit) = first.split_once('=').unwrap_or((first, first));
        let letter = |c: char| c.is_ascii_alphanumeric() || "_-.:".contains(c);
        let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        if !ends(name.chars().next()) || !ends(name.chars().last()) || !name.chars().all(letter) {
            return Err(refuse(format!(
                "{name:?} cannot be the name of a device, which begins and ends with a letter or digit and has only \
                 letters, digits and _-.: between"
            )));
        }
        let mut budget = Given { limit: Some(limit.to_owned()), ..Given::default() };
        for part in parts {
            match part.split_once('=') {
                Some(("reserve", size)) if budget.reserve.is_none() => budget.reserve = Some(size.to_owned()),
                Some(("growth", growth)) if budget.growth.is_none() => {
                    budget.growth = Some(growth.to_owned())
                }
                _ => return Err(refuse(format!("{part:?} is neither reserve=SIZE nor growth=GROWTH"))),
            }
        }
        let quota = budget.to_toml(&format!("device {name}"))?;
        Ok(Device { name: name.to_owned(), budget, quota })
    }

    /// The budget again, for the hook: an annotation of the container may replace a part of it.
    fn flags(&self) -> Vec<String> {
        let given = [
            ("--limit", &self.budget.limit),
            ("--reserve", &self.budget.reserve),
            ("--growth", &self.budget.growth),
        ];
        let said = given.into_iter().filter_map(|(flag, value)| Some([flag.to_owned(), value.clone()?]));
        said.flatten().collect()
    }
}

fn mount(from: &Path, at: &str, exec: &str) -> Value {
    json!({
        "hostPath": from,
        "containerPath": at,
        "options": ["bind", "ro", "nosuid", "nodev", exec],
    })
}

/// Replaces the file in one step, so that a reader sees the old one or the new one.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let written = fs::create_dir_all(directory).and_then(|()| {
        let fresh = tempfile::NamedTempFile::new_in(directory)?;
        fs::write(fresh.path(), text)?;
        fs::set_permissions(fresh.path(), Permissions::from_mode(0o644))?;
        fresh.persist(path)?;
        Ok(())
    });
    written.context(format_args!("write {}", path.display()), "run this as root, or name another place")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_a_budget_with_a_name() {
        let device = Device::parse("big=24GiB,reserve=16GiB,growth=lazy").unwrap();
        assert_eq!(device.name, "big");
        assert_eq!(device.flags().join(" "), "--limit 24GiB --reserve 16GiB --growth lazy");
        assert_eq!(Device::parse("4GiB").unwrap().name, "4GiB");
        assert_eq!(Device::parse("quarter=25%").unwrap().flags().join(" "), "--limit 25%");
    }

    #[test]
    fn a_device_that_means_nothing_is_refused() {
        for wrong in [
            "",
            "25%",
            "4g",
            "a=",
            "=4GiB",
            "a/b=4GiB",
            "4GiB,",
            "4GiB,growth=fast",
            "4GiB,size=1",
            "-a=1GiB",
        ] {
            assert!(Device::parse(wrong).is_err(), "{wrong:?}");
        }
        let error = Device::parse("big=24GiB,reserve=16g").err().unwrap().to_string();
        assert!(error.contains("device big: reserve = 16g: unknown unit"), "{error}");
    }
}
