//! Real containers of real engines on one simulated card: each sees the GPU it was given, is held to it by every way
//! in, and gives the memory back when it is killed.

#[path = "../common/mod.rs"]
mod common;

mod base;
mod containerd;
mod engine;
mod images;
mod live;
mod node;
mod reserves;
mod rootless;
mod shipped;
mod stale;
mod ways;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use common::client::Client;
use common::skip::skip;
use common::{Finished, GIB, cuquota, preload};
use engine::{Boxed, Engine, Host, Want};

/// What a container runs to use the GPU as the test tells it, line by line.
const CLIENT: [&str; 2] = ["/usr/local/bin/cuquota", "__gpu-client"];
/// Where a container finds the library where the test mounts it.
const LIBRARY: &str = "/usr/local/lib/cuquota/libcuquota.so";

/// The machine, or nothing where its engine is missing and that is allowed.
fn host(engine: Engine) -> Option<Host> {
    Host::new(engine).map_err(|missing| skip(&missing)).ok()
}

/// A program that has a context in this container.
#[track_caller]
fn started(container: &Boxed) -> Client {
    let mut client = Client::start(&container.run(&CLIENT));
    assert_eq!(client.ask("start"), json!({}));
    client
}

/// A container that the hook holds to `limit`.
fn limited(limit: &str) -> Want {
    Want { annotations: vec![("cuquota.dev/limit", limit.to_string())], ..Want::default() }
}

/// The quota file, in a directory of its own as every way in but the hook mounts it.
fn quota_dir(host: &Host, name: &str, quota: &str) -> PathBuf {
    let dir = host.machine().cards_dir().with_extension(name);
    fs::create_dir_all(&dir).expect("a directory");
    fs::write(dir.join("quota.toml"), quota).expect("a quota file");
    dir
}

/// A container into which the library is mounted, without any hook, and its list of libraries to preload.
fn mounted(host: &Host, name: &str, quota: &str) -> Want {
    let dir = quota_dir(host, name, quota);
    let list = dir.join("ld.so.preload");
    fs::write(&list, format!("{LIBRARY}\n")).expect("a list");
    Want { mounts: [files(dir), vec![(list, "/etc/ld.so.preload".into())]].concat(), ..Want::default() }
}

/// The mounts of quota, library and command.
fn files(quota: PathBuf) -> Vec<(PathBuf, String)> {
    vec![(quota, "/etc/cuquota".into()), (preload(), LIBRARY.into()), (cuquota(), CLIENT[0].into())]
}

/// Two containers of 4 GiB and 8 GiB: what each sees, what it may take, and what is left when the first is killed and
/// started again.
fn share_one_card(host: &Host, four: Want, eight: Want) {
    let (four, eight) = (host.container(four), host.container(eight));
    let (mut a, mut b) = (started(&four), started(&eight));
    assert_eq!(total(&mut a), 4 * GIB);
    assert_eq!(total(&mut b), 8 * GIB);
    assert_eq!(a.ask(&format!("allocate {}", 3 * GIB)), json!({ "granted": 3 * GIB, "intact": true }));
    assert_eq!(b.ask(&format!("allocate {}", 7 * GIB)), json!({ "granted": 7 * GIB, "intact": true }));
    for client in [&mut a, &mut b] {
        assert_eq!(client.ask(&format!("allocate {GIB}"))["error"], "CUDA_ERROR_OUT_OF_MEMORY");
    }
    let before = used_by_all(host);
    assert!(before >= 10 * GIB, "{before}");
    four.kill();
    let start = Instant::now();
    while used_by_all(host) > before - 3 * GIB {
        assert!(start.elapsed() < Duration::from_secs(5), "the memory of a killed container comes back");
    }
    a.ended();
    assert_eq!(total(&mut b), 8 * GIB, "the other one goes on");
    // Killed and removed, it is started anew and at zero.
    let mut again = again(four, host);
    assert_eq!(again.1.ask(&format!("allocate {}", 3 * GIB))["granted"], 3 * GIB);
    assert_eq!(again.1.finish(), "");
    assert_eq!(b.finish(), "");
}

/// The same container once more.
fn again<'a>(container: Boxed<'a>, host: &'a Host) -> (Boxed<'a>, Client) {
    let want = container.into_want();
    let container = host.container(want);
    let client = started(&container);
    (container, client)
}

fn total(client: &mut Client) -> u64 {
    client.ask("info")["total"].as_u64().expect("a total")
}

/// What all hold of the card, as a program outside of any container sees it.
fn used_by_all(host: &Host) -> u64 {
    let mut outside = Client::start(&Client::run().on(host.machine()));
    assert_eq!(outside.ask("start"), json!({}));
    let info = outside.ask("info");
    let number = |name: &str| info[name].as_u64().expect("a number");
    number("total") - number("free")
}

/// Runs a shell script in the container.
fn script(container: &Boxed, text: &str) -> Finished {
    container.run(&["/bin/sh", "-ec", text]).finish()
}

/// The names of containers that the hook has a directory for.
fn remembered(host: &Host) -> Vec<PathBuf> {
    fs::read_dir(host.node())
        .expect("the hook's directory")
        .map(|entry| entry.expect("an entry").path())
        .collect()
}

/// Parses what a client in a script printed, a line an answer.
fn answers(finished: &Finished) -> Vec<Value> {
    finished.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}
