//! The command line as a whole: its manual, its completions, its output.

use std::fs;

use super::cli;
use super::common::{Run, cuquota};

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
