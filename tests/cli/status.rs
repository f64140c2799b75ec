//! `cuquota status`: who holds what.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::common::client::Client;
use super::common::{self, Container, GIB, MIB, Machine, Run, cuquota, temp_dir};
use super::{cli, json};

#[test]
fn status_shows_who_holds_what_and_what_was_refused() {
    let (container, machine) =
        (Container::new("limit = \"4GiB\"\nname = \"team-a\"\n"), Machine::new("16GiB,context=256MiB"));
    let status = |args: &[&str]| {
        cli(["status", "--state"]).arg(container.state_dir()).args(args.iter().copied()).finish().success()
    };
    assert!(status(&[]).stdout.starts_with("No program has used a GPU here"));
    assert_eq!(json(&status(&["--json"])), serde_json::json!({ "containers": [] }));

    let run = Client::run().within(&container).on(&machine);
    let (mut one, mut two) = (Client::start(&run), Client::start(&run));
    assert_eq!((one.ask("start"), two.ask("start")), (serde_json::json!({}), serde_json::json!({})));
    assert_eq!(one.ask("allocate 1073741824")["granted"], GIB);
    assert_eq!(two.ask("allocate 2147483648")["granted"], 2 * GIB);
    assert_eq!(two.ask("allocate 1073741824")["error"], "CUDA_ERROR_OUT_OF_MEMORY");

    let answer = json(&status(&["--json"]));
    let found = &answer["containers"][0];
    let (gpu, processes) = (&found["gpus"][0], found["processes"].as_array().unwrap());
    assert_eq!(found["name"], "team-a");
    assert_eq!((&gpu["limit_bytes"], &gpu["refusals"]), (&(4 * GIB).into(), &1.into()), "{answer:#}");
    assert_eq!(gpu["used_bytes"], 3 * GIB + 512 * MIB);
    assert_eq!(gpu["peak_bytes"], 3 * GIB + 512 * MIB);
    let uses = |program: &Client| {
        let process = processes.iter().find(|process| process["pid"] == program.id());
        process.unwrap_or_else(|| panic!("{answer:#}"))["used"][0]["bytes"].clone()
    };
    assert_eq!((uses(&one), uses(&two)), ((GIB + 256 * MIB).into(), (2 * GIB + 256 * MIB).into()));

    let table = status(&[]).stdout;
    assert!(table.starts_with("team-a ("), "{table}");
    // The longest column stands last: a narrow terminal, or `watch`, cuts nothing else.
    assert!(table.contains("\n4 GiB       0 B  3.50 GiB  3.50 GiB  3.50 GiB         1  GPU-"), "{table}");
    let row = table.lines().find(|line| line.contains(&two.id().to_string())).unwrap();
    assert!(row.contains("cuquota") && row.contains("2.25 GiB  2.25 GiB  GPU-"), "{row}");

    // Named from outside it is some container's; where programs would share it, it is this one's.
    assert!(!table.contains("this container") && found["here"] == false, "{table}");
    let inside = cli(["status"]).within(&container).finish().success().stdout;
    assert!(inside.lines().next().unwrap().ends_with("ledger, this container)"), "{inside}");

    drop((one, two));
    let answer = json(&status(&["--json"]));
    let gpu = &answer["containers"][0]["gpus"][0];
    assert_eq!((&gpu["used_bytes"], &gpu["peak_bytes"]), (&0.into(), &(3 * GIB + 512 * MIB).into()));
    assert_eq!(answer["containers"][0]["processes"], serde_json::json!([]));
    assert!(status(&[]).stdout.contains("no process is running"));
}

#[test]
fn status_says_which_state_cannot_be_read_and_which_directory_is_not_there() {
    let dir = temp_dir("cli");
    fs::write(dir.path().join("ledger"), "not a ledger").unwrap();
    let finished = cli(["status", "--state"]).arg(dir.path()).finish();
    assert_eq!(finished.code(), 1, "{finished}");
    assert!(finished.stdout.contains("ledger cannot be read"), "{finished}");
    let finished = cli(["status", "--json", "--state"]).arg(dir.path()).finish();
    assert!(finished.code() == 1 && json(&finished)["containers"][0]["error"].is_string(), "{finished}");
    let finished = cli(["status", "--state", "/nonexistent"]).finish();
    assert!(finished.code() == 125 && finished.stderr.contains("/nonexistent"), "{finished}");
}

#[test]
fn a_machine_on_which_no_container_has_started_yet_is_empty_and_no_error() {
    // A private mount namespace in which nothing has made /run/cuquota-node.
    let inside = |script: &str| {
        let script = format!("mount -t tmpfs none /run && {script}");
        let run = Run::new("unshare").args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
        run.arg(script).arg(cuquota()).finish()
    };
    if !inside("true").status.success() {
        common::skip::skip(
            "no user and mount namespaces here; allow them (sysctl user.max_user_namespaces), or run as root",
        );
        return;
    }
    let status = "\"$0\" run --sim 16GiB --limit 4GiB -- \"$0\" status --json --node";
    let answer = json(&inside(status).success());
    assert_eq!(answer["containers"], serde_json::json!([]));
    let gpu = &answer["gpus"][0];
    assert_eq!(
        (&gpu["physical_bytes"], &gpu["limited_bytes"]),
        (&(16 * GIB).into(), &0.into()),
        "{answer:#}"
    );
    let mistyped = inside(&format!("{status} /run/cuquota-nodes"));
    assert!(mistyped.code() == 125 && mistyped.stderr.contains("/run/cuquota-nodes"), "{mistyped}");
}

#[test]
fn state_that_this_user_may_not_look_into_is_not_taken_for_none() {
    let (container, dir) = (Container::new("limit = \"4GiB\"\nname = \"a\"\n"), temp_dir("cli"));
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(container.state_dir(), fs::Permissions::from_mode(0o000)).unwrap();
    // The command itself lies where only its builder may look.
    let command = dir.path().join("cuquota");
    fs::copy(cuquota(), &command).unwrap();
    let is_root = Run::new("id").arg("-u").finish().stdout == "0\n";
    for words in [&["status"][..], &["status", "--json"], &["trim", "a"]] {
        let run = match is_root {
            true => {
                Run::new("setpriv").args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&command)
            }
            false => Run::new(&command),
        };
        let variables =
            [("CUQUOTA_CONFIG", container.quota_file()), ("CUQUOTA_STATE", container.state_dir())];
        let run = variables.into_iter().fold(run, |run, (name, path)| run.env(name, path));
        let finished = run.args(words.iter().copied()).finish();
        assert_eq!((finished.code(), finished.stdout.as_str()), (125, ""), "{finished}");
        let state = container.state_dir().display().to_string();
        assert!(finished.stderr.contains(&format!("cannot list {state}: Permission denied")), "{finished}");
    }
    fs::set_permissions(container.state_dir(), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn status_shows_what_this_user_runs_while_it_runs() {
    let dir = temp_dir("cli");
    let status = || json(&cli(["status", "--json"]).env("TMPDIR", dir.path()).finish().success());
    let named = |answer: &Value| {
        let containers = answer["containers"].as_array().unwrap().iter();
        let found = containers.filter(|found| found["name"] == "mine" || found["name"] == "a file's");
        found.map(|found| (found["here"].clone(), found["gpus"][0]["used_bytes"].clone())).collect::<Vec<_>>()
    };
    let file = dir.path().join("quota.toml");
    fs::write(&file, "limit = \"2GiB\"\nname = \"a file's\"\n").unwrap();
    let file = file.to_str().unwrap();
    for flags in [&["--limit", "2GiB", "--name", "mine"][..], &["--quota", file]] {
        let run = cli(["run", "--sim", "16GiB,context=256MiB"]).args(flags.iter().copied());
        let run = run.args(["--"]).arg(cuquota()).arg("__gpu-client").env("TMPDIR", dir.path());
        let mut program = Client::start(&run);
        assert_eq!(program.ask("start"), serde_json::json!({}));
        assert_eq!(program.ask("allocate 1073741824")["granted"], GIB);
        assert_eq!(named(&status()), [(false.into(), (GIB + 256 * MIB).into())], "{flags:?}");
        program.finish();
        assert_eq!(named(&status()), [], "{flags:?}");
    }
}
