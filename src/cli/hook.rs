//! `cuquota hook`: what a container runtime calls while it makes and removes a container.

mod annotations;
mod bundle;
mod image;
mod place;
mod rootfs;
pub mod stale;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use cuquota::config::{Quota, Source};

use super::failure::{Context, Failure};
use super::{library, out};
pub use annotations::Given;
use bundle::Bundle;
pub use place::NODE;
use place::Place;
use rootfs::{Access, Rootfs};

/// Where a container finds the library.
pub const LIBRARY_INSIDE: &str = "/usr/local/lib/cuquota/libcuquota.so";
/// Where a container finds this command.
pub const COMMAND_INSIDE: &str = "/usr/local/bin/cuquota";
/// The file that has the loader load the library into every program.
pub const PRELOAD_LIST: &str = "/etc/ld.so.preload";
/// Where a container's programs share their state.
const STATE_INSIDE: &str = "/run/cuquota";
/// Where they see the state of the containers beside it.
const PEERS_INSIDE: &str = "/run/cuquota/peers";

/// Put a container under a budget: called by a container runtime, as an OCI hook
///
/// Reads the container's state, as JSON, from standard input. The budget comes from the container's annotations
/// cuquota.dev/limit, cuquota.dev/reserve, cuquota.dev/growth and cuquota.dev/name, which win over the flags; without
/// any of them, a quota file that the runtime mounts at /etc/cuquota is left as it is.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Hook {
    #[command(subcommand)]
    stage: Stage,
}

const EXAMPLES: &str = "\
A runtime finds the hook in a CDI specification (see `cuquota cdi generate`), or in /etc/containers/oci/hooks.d
(Podman, CRI-O):
  {
    \"version\": \"1.0.0\",
    \"hook\": { \"path\": \"/usr/local/bin/cuquota\", \"args\": [\"cuquota\", \"hook\", \"createContainer\"] },
    \"when\": { \"annotations\": { \"^cuquota\\\\.dev/\": \".\" } },
    \"stages\": [\"createContainer\"]
  }

Exit codes: 0; 125 if the container must not start, with the reason on standard error.";

#[derive(Subcommand)]
#[command(rename_all = "camelCase")]
enum Stage {
    CreateContainer(CreateContainer),
    Poststop(Poststop),
    Prune(Prune),
}

/// Give the container its quota file, its state, the library, and a view of its neighbours
///
/// Refuses a container whose C library cannot load the preload library: it would run without any limit.
#[derive(Args)]
struct CreateContainer {
    #[command(flatten)]
    given: Given,

    #[command(flatten)]
    node: Node,

    /// The preload library [default: beside this executable, then ../lib/cuquota/libcuquota.so from there]
    #[arg(long, value_name = "PATH")]
    preload: Option<PathBuf>,
}

/// Remove what was made for the container
#[derive(Args)]
struct Poststop {
    #[command(flatten)]
    node: Node,
}

/// Remove what was made for containers that are surely dead, and name them
///
/// A runtime that is killed does not call the hook at poststop. Every container that is started or stopped later does
/// this first, so nobody has to. Reads nothing from standard input.
#[derive(Args)]
struct Prune {
    #[command(flatten)]
    node: Node,
}

#[derive(Args)]
struct Node {
    /// Where this machine keeps the quota and the state of each container
    #[arg(long, value_name = "DIR", default_value = place::NODE)]
    node: PathBuf,
}

impl Hook {
    pub fn execute(self) -> Result<ExitCode, Failure> {
        let bundle = || Bundle::from_state(std::io::stdin().lock());
        match self.stage {
            Stage::CreateContainer(create) => create.execute(&bundle()?)?,
            Stage::Poststop(stop) => {
                Place::of(&stop.node.node, &bundle()?.id)?.remove()?;
                stale::remove(&stop.node.node);
            }
            Stage::Prune(prune) => {
                let removed = stale::remove(&prune.node.node);
                out::print(&removed.iter().map(|id| format!("{id}\n")).collect::<String>())?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl CreateContainer {
    fn execute(self, bundle: &Bundle) -> Result<(), Failure> {
        let library = library::find(self.preload.as_deref())?;
        let quota = self.given.quota(bundle)?;
        let rootfs = Rootfs::open(&bundle.rootfs()?)?;
        image::check(&rootfs, &library, bundle)?;

        // A container that is started again starts at zero.
        let place = Place::of(&self.node.node, &bundle.id)?;
        if rootfs.shows(Path::new(STATE_INSIDE), &place.state()) {
            // A device and an annotation have both brought the hook here. Whoever has flags knows all settings.
            return match quota {
                Some(text) if self.given.limit.is_some() => place.write_quota(&text),
                _ => Ok(()),
            };
        }
        place.remove()?;
        // What the dead were promised is not to stand in its way.
        stale::remove(&self.node.node);
        place.make()?;
        match quota {
            Some(text) => {
                place.write_quota(&text)?;
                rootfs.mount(&place.etc(), directory_of(Source::GOVERNING), Access::Read)?;
            }
            None => {
                let text = mounted_quota(&rootfs)?;
                place.write_quota(&text)?;
            }
        }
        let listed = rootfs.read(Path::new(PRELOAD_LIST))?.unwrap_or_default();
        place.write_preload_list(&with_library_first(&listed))?;

        let command = std::env::current_exe().context("find this executable", "is /proc mounted?")?;
        if !bundle.mounts_at(LIBRARY_INSIDE) {
            rootfs.mount(&library, Path::new(LIBRARY_INSIDE), Access::Execute)?;
        }
        if !bundle.mounts_at(COMMAND_INSIDE) {
            rootfs.mount(&command, Path::new(COMMAND_INSIDE), Access::Execute)?;
        }
        rootfs.mount(&place.preload_list(), Path::new(PRELOAD_LIST), Access::Read)?;
        rootfs.mount(&place.state(), Path::new(STATE_INSIDE), Access::Write)?;
        rootfs.mount(&self.node.node, Path::new(PEERS_INSIDE), Access::Read)
    }
}

fn directory_of(file: &str) -> &Path {
    Path::new(file).parent().expect("a file lies in a directory")
}

/// The quota file that the runtime has mounted already. It must be valid: later the container would only find that it
/// may not use a GPU.
fn mounted_quota(rootfs: &Rootfs) -> Result<String, Failure> {
    let path = Path::new(Source::GOVERNING);
    let bytes = rootfs.read(path)?.ok_or_else(|| {
        Failure::new(
            format_args!("no {} is in the directory mounted for it", path.display()),
            "name the file quota.toml",
        )
    })?;
    let text = String::from_utf8(bytes).map_err(|_| {
        Failure::new(format_args!("{} is not UTF-8", path.display()), "write it anew: `cuquota check FILE`")
    })?;
    Quota::parse(&text, path)?;
    Ok(text)
}

/// What the image preloads already stays, behind the library.
fn with_library_first(listed: &[u8]) -> Vec<u8> {
    let mut list = format!("{LIBRARY_INSIDE}\n").into_bytes();
    for line in listed.split(|byte| *byte == b'\n') {
        let ours = line.trim_ascii() == LIBRARY_INSIDE.as_bytes();
        if !ours && !line.trim_ascii().is_empty() {
            list.extend_from_slice(line);
            list.push(b'\n');
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_image_preloads_is_kept_behind_the_library_and_the_library_named_once() {
        let ours = format!("{LIBRARY_INSIDE}\n");
        assert_eq!(with_library_first(b""), ours.as_bytes());
        let theirs = format!("/usr/lib/liba.so\n{LIBRARY_INSIDE}\n\n# note\n/usr/lib/libb.so");
        let kept = format!("{ours}/usr/lib/liba.so\n# note\n/usr/lib/libb.so\n");
        assert_eq!(String::from_utf8(with_library_first(theirs.as_bytes())).unwrap(), kept);
    }
}
