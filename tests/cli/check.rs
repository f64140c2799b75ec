//! `cuquota check`: what a quota file means, or where it is wrong.

use std::path::Path;

use serde_json::Value;

use super::common::{cuquota, temp_dir};
use super::{cli, json, write};

#[test]
fn check_shows_the_rules() {
    let dir = temp_dir("cli");
    let file = write(
        dir.path(),
        "name = \"team-a\"\nlimit = \"25%\"\n[[gpu]]\nid = \"gpu-8F4C\"\nlimit = \"8GiB\"\nreserve = \"2GiB\"\n\
         [[gpu]]\nindex = 3\nlimit = 7\n[when_full]\nwait = \"5s\"\n",
    );
    let finished = cli(["check"]).arg(&file).finish().success();
    for line in [
        "name: team-a",
        "up to 5000 ms",
        "GPU-8f4c         8GiB   2GiB",
        "every other GPU  25%",
        "index 3 is 7 bytes",
    ] {
        assert!(finished.stdout.contains(line), "{line}\n{finished}");
    }
    let answer = json(&cli(["check", "--json"]).arg(&file).finish().success());
    assert_eq!(
        (&answer["valid"], &answer["name"], &answer["wait_ms"]),
        (&true.into(), &"team-a".into(), &5000.into())
    );
    assert_eq!(answer["rules"][0]["limit_bytes"], 8u64 << 30);
    assert_eq!(answer["rules"][2]["on"], "every other GPU");
    assert!(answer["warnings"][0].as_str().unwrap().contains("is a unit missing?"), "{answer:#}");
}

#[test]
fn check_shows_the_budget_on_each_gpu_of_the_machine() {
    let flags = ["run", "--sim", "16GiB,24GiB", "--limit", "25%", "--gpu", "1=unlimited", "--"];
    // One GPU hidden and the order turned round: the file counts them as the machine has them.
    let check = cli(flags).arg(cuquota()).args(["check", "--json"]).env("CUDA_VISIBLE_DEVICES", "1");
    let answer = json(&check.finish().success());
    let gpus = answer["gpus"].as_array().unwrap();
    assert_eq!(gpus.len(), 2, "{answer:#}");
    assert_eq!(
        (&gpus[0]["card_bytes"], &gpus[0]["limit_bytes"]),
        (&(16u64 << 30).into(), &(4u64 << 30).into())
    );
    assert_eq!((&gpus[1]["card_bytes"], &gpus[1]["limit_bytes"]), (&(24u64 << 30).into(), &Value::Null));

    let table = cli(flags).arg(cuquota()).arg("check").finish().success();
    assert!(table.stdout.contains("On this machine:"), "{table}");
    let row = table.stdout.lines().find(|line| line.starts_with("0 ")).unwrap_or_else(|| panic!("{table}"));
    assert!(row.contains("GPU-") && row.contains("16 GiB") && row.contains("4 GiB"), "{row}");

    let only = ["run", "--sim", "16GiB,24GiB", "--gpu", "0=1GiB", "--"];
    let table = cli(only).arg(cuquota()).arg("check").finish().success();
    assert!(table.stdout.contains("may not be used"), "{table}");
}

#[test]
fn check_shows_an_error_with_a_caret_and_exits_with_1() {
    let dir = temp_dir("cli");
    let file = write(dir.path(), "# mine\nlimit = \"4g\"  # four\n");
    let finished = cli(["check"]).arg(&file).finish();
    assert_eq!((finished.code(), finished.stdout.as_str()), (1, ""));
    assert_eq!(
        finished.stderr,
        format!(
            "error: unknown unit \"g\"\n --> {}:2:9\n  |\n2 | limit = \"4g\"  # four\n  |         ^^^^\n\
             help: 4GiB (powers of 1024) or 4GB (powers of 1000)?\n",
            file.display()
        )
    );
    let finished = cli(["check", "--json"]).arg(&file).finish();
    assert_eq!(finished.code(), 1);
    let error = &json(&finished)["error"];
    assert_eq!((&error["line"], &error["column"], &error["value"]), (&2.into(), &9.into(), &"\"4g\"".into()));
    let finished = cli(["check", "/nonexistent"]).finish();
    assert!(finished.code() == 1 && finished.stderr.contains("/nonexistent"), "{finished}");
    if !Path::new("/etc/cuquota/quota.toml").exists() {
        let finished = cli(["check"]).finish();
        assert!(finished.code() == 1 && finished.stderr.contains("CUQUOTA_CONFIG"), "{finished}");
    }
}

#[test]
fn check_warns_of_entries_and_limits_that_do_nothing_on_this_machine() {
    let warnings = |flags: &[&str]| {
        let run = cli(["run", "--sim", "16GiB,24GiB"]).args(flags.iter().copied()).arg("--");
        let answer = json(&run.arg(cuquota()).args(["check", "--json"]).finish().success());
        let warnings = answer["warnings"].as_array().unwrap().iter();
        warnings.map(|warning| warning.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(warnings(&["--limit", "16GiB", "--gpu", "1=unlimited"]), [""; 0]);
    let nobodys = "GPU-00000000-0000-0000-0000-000000000000=1GiB";
    let absent = warnings(&["--limit", "4GiB", "--gpu", "0=1GiB", "--gpu", "7=1GiB", "--gpu", nobodys]);
    assert_eq!(absent.len(), 2, "{absent:#?}");
    assert!(absent[0].contains("no GPU that is index 7"), "{absent:#?}");
    let beyond = warnings(&["--limit", "20GiB"]);
    assert_eq!(beyond.len(), 1, "{beyond:#?}");
    assert!(beyond[0].ends_with("has 16 GiB: the limit of 20 GiB leaves programs all of it"), "{beyond:#?}");
}
