//! `cuquota run`: the command it runs.

use std::io::{BufRead, BufReader};
use std::process::Command;

use super::common::{self, Run, cuquota, temp_dir};
use super::{cli, run_script, write};

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
        // What is ignored where the tests were started can be trapped nowhere below.
        let run =
            Run::new("env").arg("--default-signal").arg(cuquota()).args(["run", "--sim", "--limit", "1GiB"]);
        let mut child = run.args(["--", "sh", "-c", &script]).spawn();
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
fn run_says_that_this_machine_has_no_driver() {
    let finished = cli(["run", "--limit", "1GiB", "--", "echo", "ran"]).finish().success();
    assert_eq!(finished.stdout, "ran\n");
    let driver =
        Run::new("/bin/sh").args(["-c", "ldconfig -p | grep -q libcuda.so.1"]).finish().status.success();
    assert_eq!(finished.stderr.contains("no NVIDIA driver") && finished.stderr.contains("--sim"), !driver);
}
