//! The quota file as running programs meet it: whatever is wrong with it, no program gets memory that it does not
//! allow, each says so once, and those that do not use the GPU notice nothing.

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use common::client::Client;
use common::{Container, GIB, Machine, Run, preload, temp_dir};
use serde_json::{Value, json};

/// Longer than a change may take to be noticed, which is a second.
const NOTICED: Duration = Duration::from_millis(1500);

/// A client with the quota file at `quota`, whatever lies there.
fn client(quota: &Path, machine: &Machine) -> Run {
    let state = quota.parent().expect("a directory").join("state");
    Client::run()
        .on(machine)
        .env("LD_PRELOAD", preload())
        .env("CUQUOTA_CONFIG", quota)
        .env("CUQUOTA_STATE", state)
}

/// A program held to the file at `quota` is refused at every attempt and says why once; another notices nothing.
#[track_caller]
fn fails_closed(quota: &Path, machine: &Machine, words: &str) {
    let run = client(quota, machine);
    let mut program = Client::start(&run);
    for question in ["open", "devices", "start", "allocate 2097152"] {
        let answer = program.ask(question);
        assert_eq!(answer["error"], "CUDA_ERROR_NOT_PERMITTED", "{}: {question}: {answer}", quota.display());
    }
    let said = program.finish();
    assert_eq!(said.lines().count(), 1, "{}: {said}", quota.display());
    assert!(said.starts_with(&format!("cuquota: {}", quota.display())) && said.contains(words), "{said}");

    let other =
        Run::new("/bin/sh").args(["-c", "echo out; echo err >&2; exit 3"]).env("LD_PRELOAD", preload());
    let other = other.env("CUQUOTA_CONFIG", quota).finish();
    assert_eq!((other.code(), other.stdout.as_str(), other.stderr.as_str()), (3, "out\n", "err\n"));
}

#[test]
fn every_value_that_is_not_understood_fails_closed() {
    let (dir, machine) = (temp_dir("quota"), Machine::new("16GiB"));
    let quota = dir.path().join("quota.toml");
    for value in [
        "\"\"",
        "-1",
        "\"-1\"",
        "1e30",
        "18446744073709551616",
        "nan",
        "inf",
        "true",
        "[4]",
        "\"4Gix\"",
        "\"4g\"",
        "\"0m\"",
        "\"08G\"",
        "\"1_024\"",
        "4GiB",
        "1\nlimit = 2",
        "1\nunknown = 2",
    ] {
        fs::write(&quota, format!("limit = {value}\n")).unwrap();
        let line = if value.contains('\n') { ":2:1: " } else { ":1:9: " };
        fails_closed(&quota, &machine, line);
    }
}

#[test]
fn whatever_lies_at_the_path_instead_of_a_quota_file_fails_closed() {
    let (dir, machine) = (temp_dir("quota"), Machine::new("16GiB"));
    let at = |name: &str| dir.path().join(name);
    fails_closed(&at("missing"), &machine, "missing");
    fs::create_dir(at("directory")).unwrap();
    fails_closed(&at("directory"), &machine, "directory");
    symlink("nowhere", at("dangling")).unwrap();
    fails_closed(&at("dangling"), &machine, "link to nothing");
    for (name, contents, words) in [
        ("empty", &b""[..], "empty"),
        ("comment", b"# limit = 1\n", "no limit"),
        ("truncated", b"limit = \"4Gi", "not valid TOML"),
        ("binary", b"\xff\xfel\0i\0m\0i\0t\0", "UTF-8"),
        ("reserve", b"limit = 1\nreserve = 2\n", "more than the limit"),
    ] {
        fs::write(at(name), contents).unwrap();
        fails_closed(&at(name), &machine, words);
    }
    fs::write(at("large"), format!("limit = 1\n#{}", "#".repeat(1 << 20))).unwrap();
    fails_closed(&at("large"), &machine, "1 MiB");
    assert!(Run::new("mkfifo").arg(at("pipe")).finish().status.success());
    fails_closed(&at("pipe"), &machine, "pipe");
}

#[test]
fn a_file_that_this_user_may_not_read_fails_closed() {
    let (dir, machine) = (temp_dir("quota"), Machine::new("16GiB"));
    let quota = dir.path().join("quota.toml");
    fs::write(&quota, "limit = \"4GiB\"\n").unwrap();
    fs::set_permissions(&quota, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read(&quota).is_ok() {
        // Root reads everything. As a user without rights it does not.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let script = "exec setpriv --reuid 65534 --clear-groups \"$0\" __gpu-client";
        let command = temp_dir("command");
        fs::set_permissions(command.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let copy = |from: &Path| {
            let to = command.path().join(from.file_name().unwrap());
            fs::copy(from, &to).unwrap();
            to
        };
        let (program, library) = (copy(&common::cuquota()), copy(&preload()));
        let (cuda, nvml) = (
            copy(&common::sim_dir().join("libcuda.so.1")),
            copy(&common::sim_dir().join("libnvidia-ml.so.1")),
        );
        let run = Run::new("/bin/sh").args(["-c", script]).arg(program).on(&machine);
        let run = run.env("LD_LIBRARY_PATH", cuda.parent().unwrap()).env("LD_PRELOAD", library);
        let mut client = Client::start(&run.env("CUQUOTA_CONFIG", &quota));
        assert_eq!(client.ask("open")["error"], "CUDA_ERROR_NOT_PERMITTED");
        let said = client.finish();
        assert!(said.lines().count() == 1 && said.contains("cannot be read by this user"), "{said}");
        drop(nvml);
    } else {
        fails_closed(&quota, &machine, "cannot be read by this user");
    }
}

#[test]
fn without_any_quota_file_nothing_is_permitted() {
    let machine = Machine::new("16GiB");
    let mut program = Client::start(&Client::run().on(&machine).env("LD_PRELOAD", preload()));
    assert_eq!(program.ask("open")["error"], "CUDA_ERROR_NOT_PERMITTED");
    let said = program.finish();
    assert!(
        said.lines().count() == 1 && said.contains("no quota file") && said.contains("CUQUOTA_CONFIG"),
        "{said}"
    );
}

#[test]
fn zero_means_that_nothing_may_be_allocated() {
    let (container, machine) = (Container::new("limit = 0\n"), Machine::new("16GiB,context=0"));
    let mut program = Client::start(&Client::run().within(&container).on(&machine));
    assert_eq!(program.ask("start"), json!({}));
    assert_eq!(program.ask("info"), json!({ "free": 0, "total": 0 }));
    assert_eq!(program.ask("allocate 1")["error"], "CUDA_ERROR_OUT_OF_MEMORY");
}

#[test]
fn each_gpu_has_the_limit_of_the_first_entry_that_matches_it() {
    let quota = "limit = \"25%\"\n[[gpu]]\nindex = 1\nlimit = \"1GiB\"\n[[gpu]]\nid = \"03:00.0\"\nlimit = \"unlimited\"\n";
    let (container, machine) = (Container::new(quota), Machine::new("16GiB,16GiB,16GiB"));
    let totals = |run: Run| -> Vec<u64> {
        let answer = Client::start(&run.env("CUDA_DEVICE_ORDER", "PCI_BUS_ID")).ask("devices");
        answer["devices"].as_array().unwrap().iter().map(|device| device["total"].as_u64().unwrap()).collect()
    };
    let run = || Client::run().within(&container).on(&machine);
    assert_eq!(totals(run()), [4 * GIB, GIB, 16 * GIB]);
    // A place counts the hidden cards too.
    assert_eq!(totals(run().env("CUDA_VISIBLE_DEVICES", "1")), [GIB]);
    // Never by CUDA's own numbers, which CUDA_VISIBLE_DEVICES turns round.
    assert_eq!(totals(run().env("CUDA_VISIBLE_DEVICES", "2,1,0")), [16 * GIB, GIB, 4 * GIB]);
}

/// Asks for the total until it is `total`, or the time is up.
#[track_caller]
fn sees_within(program: &mut Client, total: u64, time: Duration) {
    let start = Instant::now();
    loop {
        let seen = program.ask("info")["total"].as_u64().expect("a total");
        if seen == total {
            return;
        }
        assert!(start.elapsed() < time, "{seen} instead of {total} after {:?}", start.elapsed());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_new_limit_holds_from_the_next_request_and_kills_nothing() {
    let (container, machine) = (Container::new("limit = \"4GiB\"\n"), Machine::new("16GiB,context=0"));
    let mut program = Client::start(&Client::run().within(&container).on(&machine));
    assert_eq!(program.ask("start"), json!({}));
    assert_eq!(program.ask(&format!("allocate {}", 3 * GIB))["granted"], 3 * GIB);

    container.write_quota("limit = \"2GiB\"\n");
    sees_within(&mut program, 2 * GIB, NOTICED);
    assert_eq!(program.ask("info")["free"], 0, "above the limit nothing is free");
    assert_eq!(program.ask("allocate 2097152")["error"], "CUDA_ERROR_OUT_OF_MEMORY");
    assert_eq!(program.ask("free")["freed"], 3 * GIB, "what it has, it keeps until it gives it back");
    assert_eq!(program.ask(&format!("allocate {GIB}"))["granted"], GIB);

    container.write_quota("limit = \"8GiB\"\n");
    sees_within(&mut program, 8 * GIB, NOTICED);
    assert_eq!(program.ask(&format!("allocate {}", 6 * GIB))["granted"], 6 * GIB);
    assert_eq!(program.finish(), "");
}

#[test]
fn an_invalid_new_version_keeps_the_last_good_one_and_says_so_once() {
    let (container, machine) = (Container::new("limit = \"4GiB\"\n"), Machine::new("16GiB"));
    let mut program = Client::start(&Client::run().within(&container).on(&machine));
    assert_eq!(program.ask("start"), json!({}));
    container.write_quota("limit = \"8g\"\n");
    let start = Instant::now();
    while start.elapsed() < NOTICED {
        assert_eq!(program.ask("info")["total"], 4 * GIB);
        std::thread::sleep(Duration::from_millis(50));
    }
    container.write_quota("limit = \"5GiB\"\n");
    sees_within(&mut program, 5 * GIB, NOTICED);
    let said = program.finish();
    assert!(said.lines().count() == 1 && said.contains(":1:9: \"8g\""), "{said}");
}

#[test]
fn a_file_that_goes_away_leaves_its_limit_in_force() {
    let (container, machine) = (Container::new("limit = \"4GiB\"\n"), Machine::new("16GiB,context=0"));
    let mut program = Client::start(&Client::run().within(&container).on(&machine));
    assert_eq!(program.ask("start"), json!({}));
    fs::remove_file(container.quota_file()).unwrap();
    std::thread::sleep(NOTICED);
    assert_eq!(program.ask("info")["total"], 4 * GIB);
    assert_eq!(program.ask(&format!("allocate {}", 5 * GIB))["error"], "CUDA_ERROR_OUT_OF_MEMORY");
    assert_eq!(program.ask(&format!("allocate {}", 3 * GIB))["granted"], 3 * GIB);
    assert_eq!(program.finish(), "");
}

#[test]
fn programs_that_start_while_a_link_is_switched_are_held_to_one_of_the_two_files() {
    let (dir, machine) = (temp_dir("quota"), Machine::new("16GiB"));
    let at = |name: &str| dir.path().join(name);
    for (name, limit) in [("one", 1), ("two", 2)] {
        fs::create_dir(at(name)).unwrap();
        fs::write(at(name).join("quota.toml"), format!("limit = \"{limit}GiB\"\n")).unwrap();
    }
    symlink("one", at("..data")).unwrap();
    symlink("..data/quota.toml", at("quota.toml")).unwrap();
    let run = client(&at("quota.toml"), &machine);

    let totals: Vec<Value> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let total = || {
                        let mut program = Client::start(&run);
                        let total = program.ask("devices")["devices"][0]["total"].clone();
                        assert_eq!(program.finish(), "");
                        total
                    };
                    (0..10).map(|_| total()).collect::<Vec<_>>()
                })
            })
            .collect();
        for round in 0..10_000 {
            symlink(if round % 2 == 0 { "two" } else { "one" }, at("..next")).unwrap();
            fs::rename(at("..next"), at("..data")).unwrap();
        }
        starts.into_iter().flat_map(|start| start.join().unwrap()).collect()
    });
    assert_eq!(totals.len(), 80);
    assert!(totals.iter().all(|total| *total == GIB || *total == 2 * GIB), "{totals:?}");
}
