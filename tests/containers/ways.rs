//! Every way of getting the library into a container of an unmodified image.

use std::fs;

use serde_json::{Value, json};

use crate::base::USER;
use crate::common::{GIB, Run, cuquota, preload};
use crate::engine::{Engine, Host, Want};
use crate::{LIBRARY, answers, files, host, limited, mounted, quota_dir, remembered, script, share_one_card};

#[test]
fn runc_with_the_hook() {
    let Some(host) = host(Engine::Runc) else { return };
    share_one_card(&host, limited("4GiB"), limited("8GiB"));
    assert!(remembered(&host).is_empty(), "poststop leaves nothing: {:?}", remembered(&host));
}

#[test]
fn podman_with_hooks() {
    let Some(host) = host(Engine::Podman) else { return };
    share_one_card(&host, limited("4GiB"), limited("8GiB"));
    assert!(remembered(&host).is_empty(), "poststop leaves nothing: {:?}", remembered(&host));
}

#[test]
fn containerd_with_the_hook() {
    let Some(host) = host(Engine::Containerd) else { return };
    share_one_card(&host, limited("4GiB"), limited("8GiB"));
    assert!(remembered(&host).is_empty(), "poststop leaves nothing: {:?}", remembered(&host));
}

#[test]
fn containerd_with_ld_so_preload_mounted() {
    let Some(host) = host(Engine::Containerd) else { return };
    let (four, eight) =
        (mounted(&host, "a", "limit = \"4GiB\"\n"), mounted(&host, "b", "limit = \"8GiB\"\n"));
    share_one_card(&host, four, eight);
}

/// A specification that `cuquota cdi generate` wrote where engines look, gone when it is dropped.
struct Specification {
    path: std::path::PathBuf,
    /// Names of devices must not meet those of tests that run beside this one.
    prefix: String,
}

impl Specification {
    fn generate(host: &Host, flags: &[&str]) -> Specification {
        let prefix = format!("t{}-{}", std::process::id(), flags.len());
        let path = std::path::PathBuf::from(format!("/var/run/cdi/cuquota-test-{prefix}.json"));
        let devices = ["4GiB", "8GiB"].map(|size| format!("{prefix}.{size}={size}"));
        let generate = Run::new(cuquota()).args(["cdi", "generate", "--output"]).arg(&path).args(devices);
        let generate = generate.arg("--files").arg(host.node().with_extension("devices"));
        generate.args(flags.to_vec()).finish().success();
        Specification { path, prefix }
    }

    fn device(&self, size: &str) -> Want {
        Want { device: Some(format!("cuquota.dev/quota={}.{size}", self.prefix)), ..Want::default() }
    }
}

impl Drop for Specification {
    fn drop(&mut self) {
        fs::remove_file(&self.path).expect("the specification to go");
    }
}

#[test]
fn podman_with_cdi() {
    let Some(host) = host(Engine::Podman) else { return };
    let node = host.node().display().to_string();
    let devices = Specification::generate(&host, &["--node", &node]);
    share_one_card(&host, devices.device("4GiB"), devices.device("8GiB"));
    assert!(remembered(&host).is_empty(), "poststop leaves nothing: {:?}", remembered(&host));

    // An annotation wins over the device.
    let smaller = Want { annotations: limited("1GiB").annotations, ..devices.device("4GiB") };
    let said = script(&host.container(smaller), "echo devices | cuquota __gpu-client").success();
    assert_eq!(answers(&said)[0]["devices"][0]["total"], GIB);
}

#[test]
fn podman_with_cdi_that_only_mounts() {
    let Some(host) = host(Engine::Podman) else { return };
    let devices = Specification::generate(&host, &["--no-hook"]);
    share_one_card(&host, devices.device("4GiB"), devices.device("8GiB"));
    assert!(remembered(&host).is_empty());
}

#[test]
fn docker_with_mounts_and_ld_preload() {
    let Some(host) = host(Engine::Docker) else { return };
    let want = |name: &str, quota: &str| Want {
        mounts: files(quota_dir(&host, name, quota)),
        env: vec![("LD_PRELOAD", LIBRARY.to_string())],
        ..Want::default()
    };
    share_one_card(&host, want("a", "limit = \"4GiB\"\n"), want("b", "limit = \"8GiB\"\n"));
}

#[test]
fn docker_with_ld_so_preload_mounted() {
    let Some(host) = host(Engine::Docker) else { return };
    let (four, eight) =
        (mounted(&host, "a", "limit = \"4GiB\"\n"), mounted(&host, "b", "limit = \"8GiB\"\n"));
    share_one_card(&host, four, eight);
}

/// What a user in the container may try to be rid of a preloaded library.
const ESCAPES: &str = r#"
    V="LD_LIBRARY_PATH=$LD_LIBRARY_PATH SIMGPU_SPEC=$SIMGPU_SPEC SIMGPU_DIR=$SIMGPU_DIR"
    ask='echo devices | /usr/local/bin/cuquota __gpu-client'
    sh -c "$ask"
    env -i $V /bin/sh -c "$ask"
    env -u LD_PRELOAD /bin/sh -c "$ask"
    LD_PRELOAD= /bin/sh -c "$ask"
    su USER -c "env $V /bin/sh -c '$ask'"
    su - USER -c "env $V CUQUOTA_CONFIG=/dev/null CUQUOTA_STATE=/tmp /bin/sh -c '$ask'"
    setpriv --reuid=4711 --regid=4711 --clear-groups /bin/sh -c "$ask"
"#;

fn nobody_escapes(host: &Host, want: Want) {
    let said = script(&host.container(want), &ESCAPES.replace("USER", USER)).success();
    let totals: Vec<Value> =
        answers(&said).iter().map(|answer| answer["devices"][0]["total"].clone()).collect();
    assert_eq!(totals, vec![json!(4 * GIB); 7], "{said}");
}

#[test]
fn runc_holds_every_user_and_every_environment() {
    let Some(host) = host(Engine::Runc) else { return };
    nobody_escapes(&host, limited("4GiB"));
}

#[test]
fn podman_holds_every_user_and_every_environment() {
    let Some(host) = host(Engine::Podman) else { return };
    nobody_escapes(&host, limited("4GiB"));
}

#[test]
fn docker_holds_every_user_and_every_environment() {
    let Some(host) = host(Engine::Docker) else { return };
    nobody_escapes(&host, mounted(&host, "a", "limit = \"4GiB\"\n"));
}

#[test]
fn a_container_cannot_write_what_holds_it_nor_its_neighbours() {
    let Some(host) = host(Engine::Runc) else { return };
    let want = Want {
        annotations: [limited("4GiB").annotations, vec![("cuquota.dev/name", "a".into())]].concat(),
        ..Want::default()
    };
    let (first, second) = (host.container(want), host.container(limited("2GiB")));
    let mut neighbour = crate::started(&second);
    assert_eq!(neighbour.ask(&format!("allocate {GIB}"))["granted"], GIB);
    let text = format!(
        "for path in /etc/cuquota/quota.toml /etc/ld.so.preload {LIBRARY} /usr/local/bin/cuquota \
             /run/cuquota/peers/*/state/ledger* /run/cuquota/peers/new; do
             if (echo x >\"$path\") 2>/dev/null; then echo \"$path was written\"; fi
             if rm -f \"$path\" 2>/dev/null && [ ! -e \"$path\" ] && [ \"$path\" != /run/cuquota/peers/new ]
                 then echo \"$path was removed\"; fi
         done
         grep -c . /run/cuquota/peers/{}/etc/quota.toml
         cuquota status --state /run/cuquota/peers/{}/state",
        second.name(),
        second.name(),
    );
    let said = script(&first, &text).success();
    let mut lines = said.stdout.lines();
    assert_eq!(lines.next(), Some("2"), "limit and name of the neighbour, and nothing written: {said}");
    assert!(
        said.stdout.contains("2 GiB       0 B  1.29 GiB"),
        "what the neighbour holds can be seen: {said}"
    );
    assert_eq!(neighbour.ask("info")["total"], 2 * GIB);
}

#[test]
fn what_an_image_preloads_already_stays() {
    let Some(host) = host(Engine::Runc) else { return };
    // The image's own list, as a volume brings it; any library will do.
    let theirs = host.node().with_extension("theirs");
    let library = crate::common::programs::c_library("chain_first");
    fs::write(&theirs, format!("{}\n", library.display())).unwrap();
    let want = Want { mounts: vec![(theirs, "/etc/ld.so.preload".into())], ..limited("4GiB") };
    let said = script(&host.container(want), "cat /etc/ld.so.preload; cat /proc/self/maps").success();
    let both = format!("{LIBRARY}\n{}\n", library.display());
    assert!(said.stdout.starts_with(&both), "{said}");
    let loaded =
        |library: &str| said.stdout.lines().any(|line| line.contains(" r-xp ") && line.ends_with(library));
    assert!(loaded(LIBRARY) && loaded(&library.display().to_string()), "{said}");
}

#[test]
fn the_library_is_the_one_that_was_built() {
    let Some(host) = host(Engine::Runc) else { return };
    let said = script(&host.container(limited("4GiB")), &format!("cksum <{LIBRARY}")).success();
    let here = Run::new("cksum").input(fs::read(preload()).unwrap()).finish().success();
    assert_eq!(said.stdout, here.stdout);
}
