//! The command line, as somebody at a terminal or in a script meets it.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::client::Client;
use common::{Container, Finished, GIB, MIB, Machine, Run, cuquota, sim_dir, temp_dir};
use serde_json::Value;

fn cli<A: Into<std::ffi::OsString>>(args: impl IntoIterator<Item = A>) -> Run {
    Run::new(cuquota()).args(args)
}

/// `cuquota run --sim FLAGS -- sh -c SCRIPT`
fn run_script(flags: &[&str], script: &str) -> Run {
    cli(["run", "--sim"]).args(flags.iter().copied()).args(["--", "sh", "-c", script])
}

fn json(finished: &Finished) -> Value {
    serde_json::from_str(&finished.stdout).unwrap_or_else(|error| panic!("{error}\n{finished}"))
}

fn write(dir: &Path, text: &str) -> PathBuf {
    let file = dir.join("quota.toml");
    fs::write(&file, text).unwrap();
    file
}

#[test]
fn run_passes_the_exit_code_on() {
    for code in [0, 1, 7, 125, 255] {
        let finished = run_script(&["--limit", "1GiB"], &format!("exit {code}")).finish();
        assert_eq!(finished.code(), code);
        assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("", ""), "it says nothing itself");
    }
}

#[test]
fn run_answers_128_and_the_signal_that_killed_the_command() {
    for (signal, code) in [("KILL", 137), ("TERM", 143), ("SEGV", 139), ("PIPE", 141)] {
        let finished = run_script(&["--limit", "1GiB"], &format!("kill -{signal} $$")).finish();
        assert_eq!(finished.code(), code, "{signal}");
    }
}

#[test]
fn run_tells_a_command_that_is_missing_from_one_that_cannot_be_executed() {
    let dir = temp_dir("cli");
    let text = write(dir.path(), "limit = 1");
    let missing = cli(["run", "--sim", "--limit", "1", "--", "no-such-command"]).finish();
    assert_eq!(missing.code(), 127);
    assert!(missing.stderr.contains("cannot run no-such-command"), "{missing}");
    let forbidden = cli(["run", "--sim", "--limit", "1", "--"]).arg(text).finish();
    assert_eq!(forbidden.code(), 126);
}

#[test]
fn run_passes_signals_on_to_the_command() {
    for signal in ["TERM", "HUP", "INT", "USR1", "QUIT"] {
        let script = format!("trap 'exit 42' {signal}; echo ready; while :; do sleep 0.02; done");
        let mut child = run_script(&["--limit", "1GiB"], &script).spawn();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(42), "{signal}");
    }
}

#[test]
fn run_leaves_a_signal_ignored_that_was_ignored() {
    let script =
        "trap '' HUP; exec \"$0\" run --sim --limit 1 -- sh -c 'kill -HUP $PPID; kill -HUP $$; echo alive'";
    let finished = Run::new("/bin/sh").args(["-c", script]).arg(cuquota()).finish().success();
    assert_eq!(finished.stdout, "alive\n");
}

#[test]
fn run_gives_the_command_a_quota_file_and_a_state_directory_and_takes_them_back() {
    let flags =
        ["--limit", "4GiB", "--gpu", "1=8GiB", "--growth", "lazy", "--reserve", "1GiB", "--name", "a \"b\""];
    let script = "echo $CUQUOTA_CONFIG; echo $CUQUOTA_STATE; touch $CUQUOTA_STATE/x; cat $CUQUOTA_CONFIG";
    let finished = run_script(&flags, script).finish().success();
    let mut lines = finished.stdout.lines();
    let (quota, state) = (lines.next().unwrap(), lines.next().unwrap());
    let text: Vec<&str> = lines.collect();
    let quota_text = text.join("\n");
    let parsed = cuquota::config::Quota::parse(&quota_text, Path::new(quota)).unwrap();
    assert_eq!(parsed.name.as_deref(), Some("a \"b\""));
    assert_eq!(parsed.gpus[0].rule.limit.to_string(), "8GiB");
    assert!(!Path::new(quota).exists() && !Path::new(state).exists(), "they go with the command");
    assert!(!Path::new(quota).parent().unwrap().exists());
}

#[test]
fn run_preloads_the_library_before_whatever_is_preloaded() {
    let script = "echo $LD_PRELOAD; echo $LD_LIBRARY_PATH";
    let finished = run_script(&["--limit", "1GiB"], script)
        .env("LD_PRELOAD", "libc.so.6")
        .env("LD_LIBRARY_PATH", "/opt/lib")
        .finish()
        .success();
    let lines: Vec<&str> = finished.stdout.lines().collect();
    assert_eq!(lines[0], format!("{}:libc.so.6", common::preload().display()));
    assert!(lines[1].ends_with("/driver:/opt/lib"), "{finished}");
}

#[test]
fn run_reaches_a_library_whose_path_has_blanks() {
    let dir = temp_dir("cli with blanks");
    let library = dir.path().join("libcuquota.so");
    fs::copy(common::preload(), &library).unwrap();
    let finished =
        run_script(&["--limit", "1GiB", "--preload", library.to_str().unwrap()], "readlink $LD_PRELOAD");
    let finished = finished.finish().success();
    assert_eq!(finished.stdout.trim(), library.canonicalize().unwrap().to_str().unwrap());
    assert_eq!(finished.stderr, "", "the loader found it");
}

#[test]
fn run_without_its_library_says_where_it_looked() {
    let dir = temp_dir("cli");
    let alone = dir.path().join("cuquota");
    fs::copy(cuquota(), &alone).unwrap();
    let finished = Run::new(&alone).args(["run", "--sim", "--limit", "1", "--", "true"]).finish();
    assert_eq!(finished.code(), 125);
    assert!(finished.stderr.contains("lib/cuquota") && finished.stderr.contains("--preload"), "{finished}");

    let finished =
        Run::new(&alone).args(["run", "--sim", "--limit", "1", "--preload", "/nope", "--", "true"]);
    let finished = finished.finish();
    assert_eq!(finished.code(), 125);
    assert!(finished.stderr.contains("/nope"), "{finished}");
}

#[test]
fn run_puts_the_simulated_driver_before_the_command_under_every_name_it_is_opened_by() {
    let script = "echo $SIMGPU_SPEC; ls $SIMGPU_DIR/.. >/dev/null; cd ${LD_LIBRARY_PATH%%:*}; \
                  for l in libcuda.so libcuda.so.1 libnvidia-ml.so libnvidia-ml.so.1; do cksum < $l; done";
    for (flags, spec) in [
        (&["--sim", "8GiB,24GiB", "--limit", "1GiB"][..], "8GiB,24GiB"),
        (&["--sim=8GiB", "--limit", "1GiB"], "8GiB"),
        (&["--sim", "--limit", "1GiB"], "16GiB"),
        (&["--limit", "1GiB", "--sim"], "16GiB"),
        (&["--sim", "1.5GiB,context=0", "--limit", "1GiB"], "1536MiB,context=0"),
    ] {
        let finished =
            cli(["run"]).args(flags.iter().copied()).args(["--", "sh", "-c", script]).finish().success();
        let lines: Vec<&str> = finished.stdout.lines().collect();
        assert_eq!(lines[0], spec, "{flags:?}");
        assert_eq!((lines[1], lines[3]), (lines[2], lines[4]));
        let built =
            Run::new("/bin/sh").args(["-c", "cksum < \"$0\""]).arg(sim_dir().join("libcuda.so.1")).finish();
        assert_eq!(lines[1], built.stdout.trim(), "the driver that was built");
    }
}

#[test]
fn run_shares_simulated_cards_and_a_budget_on_request() {
    let dir = temp_dir("cli");
    let (cards, state) = (dir.path().join("cards"), dir.path().join("state"));
    let flags = ["--limit", "1GiB", "--sim-dir", cards.to_str().unwrap(), "--state", state.to_str().unwrap()];
    let finished = run_script(&flags, "echo $SIMGPU_DIR; echo $CUQUOTA_STATE").finish().success();
    assert_eq!(finished.stdout, format!("{}\n{}\n", cards.display(), state.display()));
    assert!(cards.is_dir() && state.is_dir(), "they stay");
}

#[test]
fn run_refuses_what_is_no_budget_and_names_the_flag() {
    for (flags, words) in [
        (&["--limit", "4g"][..], &["--limit 4g", "4GiB (powers of 1024) or 4GB (powers of 1000)?"][..]),
        (&["--limit", "-1"], &["--limit -1", "negative"]),
        (&["--limit", "4GiB", "--gpu", "0"], &["--gpu 0", "no size"]),
        (&["--limit", "4GiB", "--growth", "fast"], &["--growth fast", "\"lazy\""]),
        (&["--limit", "1GiB", "--reserve", "2GiB"], &["--reserve 2GiB", "more than the limit"]),
        (&[], &["no limit was given", "--limit 4GiB"]),
    ] {
        let finished = run_script(flags, "echo ran").finish();
        assert_eq!(finished.code(), 125, "{finished}");
        assert_eq!(finished.stdout, "", "the command is not run");
        assert!(words.iter().all(|word| finished.stderr.contains(word)), "{finished}");
    }
    let finished = cli(["run", "--sim", "python", "--limit", "1GiB", "--", "true"]).finish();
    assert!(
        finished.code() == 125 && finished.stderr.contains("\"python\" is not the size of a card"),
        "{finished}"
    );
    for wrong in [
        &["run", "--limit", "1", "true"][..],
        &["run", "--limit", "1"],
        &["run", "--sim-dir", "x", "--", "y"],
    ] {
        assert_eq!(cli(wrong.iter().copied()).finish().code(), 2, "{wrong:?}");
    }
}

#[test]
fn run_takes_a_quota_file_and_refuses_an_invalid_one_before_the_command() {
    let dir = temp_dir("cli");
    let file = write(dir.path(), "limit = \"3GiB\"\n");
    let quota = |file: &Path| {
        cli(["run", "--sim", "--quota"]).arg(file).args(["--", "sh", "-c", "echo $CUQUOTA_CONFIG"])
    };
    assert_eq!(quota(&file).finish().success().stdout.trim(), file.to_str().unwrap());
    let by_variable = cli(["run", "--sim", "--", "sh", "-c", "echo $CUQUOTA_CONFIG"]);
    let by_variable = by_variable.env("CUQUOTA_CONFIG", &file).finish().success();
    assert_eq!(by_variable.stdout.trim(), file.to_str().unwrap());
    let finished = quota(&write(dir.path(), "limit = \"3g\"\n")).finish();
    assert_eq!((finished.code(), finished.stdout.as_str()), (125, ""));
    assert!(finished.stderr.contains("^^^^"), "{finished}");
}

#[test]
fn run_says_that_this_machine_has_no_driver() {
    let finished = cli(["run", "--limit", "1GiB", "--", "echo", "ran"]).finish().success();
    assert_eq!(finished.stdout, "ran\n");
    let driver =
        Run::new("/bin/sh").args(["-c", "ldconfig -p | grep -q libcuda.so.1"]).finish().status.success();
    assert_eq!(finished.stderr.contains("no NVIDIA driver") && finished.stderr.contains("--sim"), !driver);
}

#[test]
fn where_the_governing_file_exists_flags_are_refused_and_the_rest_runs_under_it() {
    // A private mount namespace in which /etc/cuquota/quota.toml exists.
    let dir = temp_dir("cli");
    fs::create_dir(dir.path().join("cuquota")).unwrap();
    write(&dir.path().join("cuquota"), "limit = \"2GiB\"\n");
    let inside = |script: &str| {
        let script = format!("mount --bind \"$1\" /etc && {script}");
        let mut command = Run::new("unshare").args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
        command = command.arg(script).arg(cuquota()).arg(dir.path());
        command.finish()
    };
    if !inside("true").status.success() {
        common::skip::skip(
            "no user and mount namespaces here; allow them (sysctl user.max_user_namespaces), or run as root",
        );
        return;
    }
    for flags in ["--limit 4GiB", "--quota /dev/null", "--name x --limit 1", "--state /tmp/x"] {
        let finished = inside(&format!("\"$0\" run --sim {flags} -- echo ran"));
        assert_eq!((finished.code(), finished.stdout.as_str()), (125, ""), "{finished}");
        assert!(finished.stderr.contains("/etc/cuquota/quota.toml exists and governs"), "{finished}");
    }
    let finished = inside("\"$0\" run --sim -- sh -c 'echo ${CUQUOTA_CONFIG-unset} $LD_PRELOAD'").success();
    assert_eq!(finished.stdout, format!("unset {}\n", common::preload().display()));
    let finished = inside("CUQUOTA_CONFIG=/mine \"$0\" check").success();
    assert!(finished.stdout.starts_with("/etc/cuquota/quota.toml is valid"), "{finished}");
}

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
    assert_eq!(answer["warnings"].as_array().unwrap().len(), 1);
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
fn output_that_nobody_reads_is_no_crash() {
    let script = "\"$0\" completions bash | head -c 10 >/dev/null; \"$0\" check --help | true; echo done";
    let finished = Run::new("/bin/sh").args(["-c", script]).arg(cuquota()).finish().success();
    assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("done\n", ""));
}

#[test]
fn completions_know_the_commands_and_their_flags() {
    for shell in ["bash", "zsh", "fish"] {
        let script = cli(["completions", shell]).finish().success().stdout;
        for word in ["run", "check", "status", "demo", "sim-dir"] {
            assert!(script.contains(word), "{shell} lacks {word}");
        }
    }
    let script = cli(["completions", "bash"]).finish().success().stdout;
    let checked = Run::new("bash").args(["-n", "-c", &script]).finish();
    assert!(checked.status.success(), "{checked}");
}

#[test]
fn every_command_and_flag_of_the_help_is_in_the_manual() {
    let manual = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/cli.md")).unwrap();
    let help = cli(["--help"]).finish().success().stdout;
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| !line.starts_with("Commands:"))
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(commands.len() >= 5, "{commands:?}");
    for command in commands {
        assert!(manual.contains(&format!("## cuquota {command}")), "{command} is not in docs/cli.md");
        let help = cli([command, "--help"]).finish().success().stdout;
        let flags = help.lines().filter_map(|line| line.trim_start().strip_prefix("--"));
        let flags: Vec<&str> = flags.map(|rest| rest.split([' ', '[']).next().unwrap_or(rest)).collect();
        for flag in flags {
            assert!(manual.contains(&format!("--{flag}")), "{command} --{flag} is not in docs/cli.md");
        }
    }
}

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

#[test]
fn the_demo_keeps_every_promise() {
    let finished = cli(["demo"]).finish();
    assert_eq!(finished.code(), 0, "{finished}");
    assert!(finished.stdout.ends_with("16 of 16 promises kept\n"), "{finished}");
    for line in [
        "a/1      sees 4 GiB in all",
        "b/1      sees 8 GiB in all",
        "refused, CUDA_ERROR_OUT_OF_MEMORY",
        "signal: 9",
        "at the peak, 2 refusals",
    ] {
        assert!(finished.stdout.contains(line), "{line}\n{finished}");
    }
    assert_eq!(finished.stderr, "");
}

#[test]
fn the_demo_notices_when_nothing_holds_the_programs() {
    // A library that hooks nothing in the place of ours: the card is real enough to show it.
    let finished = cli(["demo", "--preload"]).arg(sim_dir().join("libnvidia-ml.so.1")).finish();
    assert_eq!(finished.code(), 1, "{finished}");
    assert!(finished.stdout.contains("NOT AS PROMISED: a sees a GPU of 4 GiB"), "{finished}");
}
