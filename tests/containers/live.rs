//! A budget that changes while a container runs.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use crate::common::client::Client;
use crate::common::{GIB, cuquota, preload};
use crate::engine::{Engine, Want};
use crate::{CLIENT, LIBRARY, host, limited, started, total};

/// A change is noticed within a second; the rest is for a busy machine.
const NOTICED: Duration = Duration::from_secs(3);

#[track_caller]
fn sees(client: &mut Client, wanted: u64) {
    let start = Instant::now();
    while total(client) != wanted {
        assert!(start.elapsed() < NOTICED, "{} instead of {wanted}", total(client));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_operator_edits_the_quota_of_a_running_container() {
    let Some(host) = host(Engine::Runc) else { return };
    let container = host.container(limited("4GiB"));
    let mut client = started(&container);
    assert_eq!(client.ask(&format!("allocate {}", 3 * GIB))["granted"], 3 * GIB);
    let quota = host.node().join(container.name()).join("etc/quota.toml");
    // As an editor replaces a file, and then as a shell overwrites one.
    fs::write(quota.with_extension("new"), "limit = \"2GiB\"\n").unwrap();
    fs::rename(quota.with_extension("new"), &quota).unwrap();
    sees(&mut client, 2 * GIB);
    assert_eq!(client.ask("info")["free"], 0);
    assert_eq!(client.ask("allocate 2097152")["error"], "CUDA_ERROR_OUT_OF_MEMORY");
    fs::write(&quota, "limit = \"8GiB\"\n").unwrap();
    sees(&mut client, 8 * GIB);
    assert_eq!(client.ask(&format!("allocate {}", 4 * GIB))["granted"], 4 * GIB);
    fs::remove_file(&quota).unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(total(&mut client), 8 * GIB, "without a file the last quota holds");
    assert!(client.finish().lines().count() <= 1);
}

#[test]
fn a_config_map_is_switched_under_a_running_container() {
    let Some(host) = host(Engine::Runc) else { return };
    // The links that Kubernetes makes in a volume of a ConfigMap.
    let volume = host.node().with_extension("configmap");
    for (version, limit) in [("..1", 4), ("..2", 6)] {
        fs::create_dir_all(volume.join(version)).unwrap();
        fs::write(volume.join(version).join("quota.toml"), format!("limit = \"{limit}GiB\"\n")).unwrap();
    }
    symlink("..1", volume.join("..data")).unwrap();
    symlink("..data/quota.toml", volume.join("quota.toml")).unwrap();
    let want = Want {
        mounts: vec![
            (volume.clone(), "/etc/cuquota".into()),
            (preload(), LIBRARY.into()),
            (cuquota(), CLIENT[0].into()),
        ],
        env: vec![("LD_PRELOAD", LIBRARY.to_string())],
        ..Want::default()
    };
    let container = host.container(want);
    let mut client = started(&container);
    assert_eq!(total(&mut client), 4 * GIB);
    symlink("..2", volume.join("..data_tmp")).unwrap();
    fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
    fs::remove_dir_all(volume.join("..1")).unwrap();
    sees(&mut client, 6 * GIB);
    assert_eq!(client.ask(&format!("allocate {}", 5 * GIB))["granted"], 5 * GIB);
    assert_eq!(client.finish(), "");
}
