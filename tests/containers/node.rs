//! What a scheduler is told about a machine and the containers on it.

use std::fs;

use serde_json::{Value, json};

use crate::common::client::Client;
use crate::common::{GIB, Machine, Run, cuquota, preload, temp_dir};

#[test]
fn the_node_s_containers_are_summed_by_gpu() {
    let (node, machine) = (temp_dir("node"), Machine::new("16GiB,24GiB,context=512MiB"));
    let place = |id: &str, quota: &str| {
        let dir = node.path().join(id);
        fs::create_dir_all(dir.join("etc")).unwrap();
        fs::create_dir_all(dir.join("state")).unwrap();
        fs::write(dir.join("etc/quota.toml"), quota).unwrap();
        dir
    };
    let first = place("a", "name = \"trainer\"\nlimit = \"4GiB\"\nreserve = \"2GiB\"\n");
    place("b", "[[gpu]]\nindex = 0\nlimit = \"25%\"\n");
    place("c", "limit = \"unlimited\"\n");
    let client = Client::run().on(&machine).env("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    let client = client.env("LD_PRELOAD", preload()).env("CUQUOTA_STATE", first.join("state"));
    let mut client = Client::start(&client.env("CUQUOTA_CONFIG", first.join("etc/quota.toml")));
    assert_eq!(client.ask("start"), json!({}));
    assert_eq!(client.ask(&format!("allocate {GIB}"))["granted"], GIB);

    let status = || Run::new(cuquota()).on(&machine).args(["status", "--node"]).arg(node.path());
    let said: Value = serde_json::from_str(&status().arg("--json").finish().success().stdout).unwrap();
    let sums: Vec<[&Value; 4]> = said["gpus"]
        .as_array()
        .unwrap()
        .iter()
        .map(|gpu| ["physical_bytes", "reserved_bytes", "limited_bytes", "used_bytes"].map(|key| &gpu[key]))
        .collect();
    // In halves of a GiB, which is what a context costs here. A percentage is one of the card, no limit is the whole of it, and a GPU without a rule may not be used.
    let halves = |amounts: [u64; 4]| amounts.map(|half| json!(half * GIB / 2));
    assert_eq!(sums[0].map(Value::clone), halves([32, 4, 8 + 8 + 32, 2 + 1]), "{said:#}");
    assert_eq!(sums[1].map(Value::clone), halves([48, 4, 8 + 48, 0]), "{said:#}");
    assert_eq!(said["containers"][0]["name"], "trainer");
    assert_eq!(said["containers"][2]["gpus"][0]["unlimited"], true);
    assert!(status().finish().success().stdout.contains("24 GiB"));

    fs::write(first.join("etc/quota.toml"), "limit = \"4g\"\n").unwrap();
    let wrong = status().finish();
    assert_eq!(wrong.code(), 1, "a sum that leaves one out is not to be relied on: {wrong}");
    assert!(wrong.stdout.contains("container a: ") && wrong.stdout.contains("4g"), "{wrong}");
    assert_eq!(client.finish().lines().count(), 0);
}
