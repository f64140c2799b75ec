//! `cuquota status`: who holds what.

use std::fs;

use super::common::client::Client;
use super::common::{Container, GIB, MIB, Machine, temp_dir};
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
    assert!(table.contains("  4 GiB       0 B  3.50 GiB  3.50 GiB  3.50 GiB         1\n"), "{table}");
    let row = table.lines().find(|line| line.contains(&two.id().to_string())).unwrap();
    assert!(row.contains("cuquota") && row.contains("2.25 GiB  2.25 GiB  GPU-"), "{row}");

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
