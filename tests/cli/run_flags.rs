//! `cuquota run`: what its flags give to the command, and which are refused.

use std::fs;
use std::path::Path;

use super::common::{self, Run, cuquota, sim_dir, temp_dir};
use super::{cli, run_script, write};

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
fn run_without_room_for_its_files_says_where_they_may_go() {
    let finished = run_script(&["--limit", "1GiB"], "true").env("TMPDIR", "/proc/nowhere").finish();
    assert_eq!(finished.code(), 125, "{finished}");
    assert!(finished.stderr.contains("/proc/nowhere") && finished.stderr.contains("TMPDIR"), "{finished}");
}

#[test]
fn what_is_refused_does_not_steer_the_terminal() {
    let finished = run_script(&["--limit", "1GiB", "--name", "a\u{1b}[2J\nb"], "true").finish();
    assert_eq!(finished.code(), 125, "{finished}");
    assert!(finished.stderr.starts_with("error: --name a\\u{1b}[2J\\nb: not a usable name\n"), "{finished}");
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
fn a_command_without_its_dashes_is_answered_with_where_they_go() {
    for (wrong, like) in [
        (&["run", "--limit", "1GiB", "sleep", "1"][..], "like -- sleep"),
        (&["run", "sleep", "--limit", "1GiB"], "like -- sleep"),
        (&["run", "--limit", "1GiB"], "like -- python train.py"),
        (&["doctor", "sleep"], "like -- sleep"),
    ] {
        let finished = cli(wrong.iter().copied()).finish();
        assert_eq!((finished.code(), finished.stdout.as_str()), (2, ""), "{finished}");
        assert!(
            finished.stderr.contains("tip: write -- before the command") && finished.stderr.contains(like)
        );
    }
    // Neither where a flag is mistyped nor where no command is taken.
    for wrong in [&["run", "--limt", "1GiB", "--", "true"][..], &["check", "a", "b"], &["trim"]] {
        let finished = cli(wrong.iter().copied()).finish();
        assert_eq!(finished.code(), 2, "{finished}");
        assert!(!finished.stderr.contains("write --"), "{finished}");
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
