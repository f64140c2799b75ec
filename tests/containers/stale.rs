//! Containers that leave more behind than they should: their runtime forgets them, or they write without end.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use crate::common::{GIB, MIB, Run, cuquota};
use crate::engine::{Engine, Host, Want};
use crate::{host, limited, remembered, script, started};

/// As if the container had been started a while ago.
fn make_old(directory: &Path) {
    let long_ago = SystemTime::now() - Duration::from_secs(600);
    fs::File::open(directory).expect("the container's directory").set_modified(long_ago).expect("ours");
}

fn status(host: &Host) -> Value {
    let said = Run::new(cuquota()).on(host.machine()).args(["status", "--json", "--node"]).arg(host.node());
    serde_json::from_str(&said.finish().success().stdout).expect("JSON")
}

#[test]
fn what_a_container_was_promised_whose_runtime_forgot_it_is_free_again_when_the_next_one_starts() {
    let Some(host) = host(Engine::Runc) else { return };
    let reserve = ("cuquota.dev/reserve", "6GiB".to_string());
    let forgotten = Want {
        annotations: [limited("8GiB").annotations, vec![reserve]].concat(),
        forgotten: true,
        ..Want::default()
    };
    let (forgotten, idle, living) =
        (host.container(forgotten), host.container(limited("1GiB")), host.container(limited("100%")));
    let (dead, mut client) = (started(&forgotten), started(&living));
    // One that uses no GPU lives all the same.
    let sleeper = idle.run(&["/bin/sleep", "600"]).spawn();
    let since = Instant::now();
    while !host.node().join(idle.name()).join("ld.so.preload").exists() {
        assert!(since.elapsed() < Duration::from_secs(20), "it starts");
        std::thread::sleep(Duration::from_millis(20));
    }
    forgotten.kill();
    dead.ended();
    assert_eq!(remembered(&host).len(), 3);
    remembered(&host).iter().for_each(|directory| make_old(directory));
    // What it does not hold any more is still promised to it.
    let free = |client: &mut crate::Client| client.ask("info")["free"].as_u64().expect("a number");
    assert!(free(&mut client) < 10 * GIB);
    let seen = status(&host);
    let stale = |id: &str| {
        let containers = seen["containers"].as_array().expect("a list");
        containers.iter().find(|container| container["id"] == id).expect("listed")["stale"].clone()
    };
    assert_eq!(stale(forgotten.name()), true, "{seen:#}");
    assert_eq!((stale(living.name()), stale(idle.name())), (json!(false), json!(false)), "{seen:#}");

    let next = host.container(limited("1GiB"));
    script(&next, "true").success();
    let left: Vec<_> = remembered(&host).iter().map(|dir| dir.file_name().unwrap().to_owned()).collect();
    assert!(left.len() == 2 && !left.contains(&forgotten.name().into()), "{left:?}");
    let since = Instant::now();
    while free(&mut client) < 15 * GIB {
        assert!(since.elapsed() < Duration::from_secs(2), "{}", free(&mut client));
    }
    idle.kill();
    drop(sleeper.wait_with_output());
    assert_eq!(client.finish(), "");
}

/// The options of the mount unit that is shipped, of another size.
fn mount_options(size: &str) -> String {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join(r"docker/systemd/run-cuquota\x2dnode.mount");
    let unit = fs::read_to_string(unit).expect("a unit");
    let value = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)).expect("in the unit");
    // The name of a mount unit is its path, with what separates its parts escaped where it is meant itself.
    assert_eq!((value("Where="), value("Type=")), ("/run/cuquota-node", "tmpfs"));
    let sized =
        |option: &str| if option.starts_with("size=") { format!("size={size}") } else { option.to_owned() };
    value("Options=").split(',').map(sized).collect::<Vec<_>>().join(",")
}

#[test]
fn a_container_that_fills_its_state_holds_up_no_running_one_and_is_found_out() {
    let Some(host) = host(Engine::Runc) else { return };
    let mount = |args: &[&str]| Run::new("mount").args(args.to_vec()).arg(host.node()).finish().success();
    mount(&["-t", "tmpfs", "-o", &mount_options("40m"), "tmpfs"]);
    let node = host.node();
    let unmounted = scopeguard(move || {
        let _ = std::process::Command::new("umount").arg("--lazy").arg(&node).status();
    });
    let (victim, vandal, next) =
        (host.container(limited("8GiB")), host.container(limited("1GiB")), host.container(limited("1GiB")));
    let mut client = started(&victim);
    let mut filling =
        vandal.run(&["/bin/sh", "-c", "cat /dev/zero >/run/cuquota/junk; echo full; sleep 600"]).spawn();
    let mut line = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(filling.stdout.take().expect("piped")),
        &mut line,
    )
    .expect("a line");
    assert_eq!(line, "full\n");
    for _ in 0..3 {
        assert_eq!(client.ask(&format!("allocate {GIB}"))["granted"], GIB);
        client.ask("free");
    }
    // Whoever it is can be seen, and no container starts without being held.
    let said = status(&host);
    let much = said["containers"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|container| container["state_bytes"].as_u64().expect("a number") > 16 * MIB);
    assert_eq!(
        much.map(|container| container["id"].clone()).collect::<Vec<_>>(),
        [json!(vandal.name())],
        "{said:#}"
    );
    let text =
        Run::new(cuquota()).on(host.machine()).args(["status", "--node"]).arg(host.node()).finish().success();
    assert!(text.stdout.contains(&format!("container {} has put", vandal.name())), "{text}");
    let refused = next.run(&["/bin/true"]).finish();
    assert!(refused.code() != 0 && refused.stderr.contains("is the disk full?"), "{refused}");
    vandal.kill();
    drop(filling.wait());
    script(&next, "true").success();
    assert_eq!(client.finish(), "");
    drop(unmounted);
}

/// Runs something when dropped.
fn scopeguard(run: impl FnMut()) -> impl Drop {
    struct Guard<F: FnMut()>(F);
    impl<F: FnMut()> Drop for Guard<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    Guard(run)
}
