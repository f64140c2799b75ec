//! The frameworks' own switches, as programs find them in their environment.

use std::collections::BTreeMap;

use crate::common::programs::c_program;
use crate::common::skip::skip;
use crate::common::{Container, Finished, Run, preload, temp_dir};

const TENSORFLOW: &str = "TF_FORCE_GPU_ALLOW_GROWTH";
const ALL: [(&str, &str); 3] = [
    (TENSORFLOW, "true"),
    ("XLA_PYTHON_CLIENT_PREALLOCATE", "false"),
    ("FLAGS_allocator_strategy", "auto_growth"),
];

/// A run without the variables in question, whatever is set where the tests run.
fn run(program: impl AsRef<std::path::Path>) -> Run {
    ALL.iter().fold(Run::new(program), |run, (name, _)| run.without_env(name))
}

/// What `env` prints, by name.
fn environment(finished: &Finished) -> BTreeMap<String, String> {
    let entries = finished.stdout.lines().filter_map(|line| line.split_once('='));
    entries.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[track_caller]
fn silent(finished: Finished) -> Finished {
    let finished = finished.success();
    assert_eq!(finished.stderr, "");
    finished
}

#[test]
fn a_program_finds_the_switches_by_every_way_it_may_look() {
    for growth in ["", "growth = \"hints\"\n", "growth = \"lazy\"\n"] {
        let container = Container::new(&format!("limit = \"4GiB\"\n{growth}"));
        let said = silent(run(c_program("environment")).within(&container).finish()).stdout;
        assert_eq!(said, "constructor true\ngetenv true\nmain true\nenviron true\nchild true\n", "{growth}");
    }
}

#[test]
fn nothing_but_the_switches_is_added_to_the_environment() {
    let container = Container::new("limit = \"4GiB\"\n");
    let bare = container.env().into_iter().fold(run("/usr/bin/env"), |run, (name, value)| {
        if name == "LD_PRELOAD" { run } else { run.env(name, value) }
    });
    let mut expected = environment(&silent(bare.finish()));
    expected.extend(ALL.map(|(name, value)| (name.to_owned(), value.to_owned())));
    expected.insert("LD_PRELOAD".into(), preload().display().to_string());
    assert_eq!(environment(&silent(run("/usr/bin/env").within(&container).finish())), expected);
}

#[test]
fn python_finds_them_too() {
    let container = Container::new("limit = \"4GiB\"\n");
    let script = format!("import os; print(os.environ['{TENSORFLOW}'])");
    let python =
        ["/usr/bin/python3", "/usr/local/bin/python3"].into_iter().find(|p| std::path::Path::new(p).exists());
    let Some(python) = python else { return skip("no Python: apt-get install python3") };
    let said = silent(run(python).within(&container).args(["-c", &script]).finish());
    assert_eq!(said.stdout, "true\n");
}

#[test]
fn what_the_user_has_set_stays_an_empty_value_included() {
    let container = Container::new("limit = \"4GiB\"\n");
    for value in ["false", "", "true", "anything"] {
        let said = silent(run("/usr/bin/env").within(&container).env(TENSORFLOW, value).finish());
        let found = environment(&said);
        assert_eq!(found.get(TENSORFLOW).map(String::as_str), Some(value));
        assert_eq!(found.get("XLA_PYTHON_CLIENT_PREALLOCATE").map(String::as_str), Some("false"));
    }
}

#[test]
fn native_sets_nothing_unless_another_gpu_asks() {
    for (quota, set) in [
        ("limit = 1\ngrowth = \"native\"\n", false),
        ("limit = 1\ngrowth = \"native\"\n[[gpu]]\nindex = 1\ngrowth = \"hints\"\n", true),
        ("limit = 1\n[[gpu]]\nindex = 1\ngrowth = \"native\"\n", true),
        ("[[gpu]]\nindex = 1\nlimit = 1\ngrowth = \"native\"\n", false),
    ] {
        let found = environment(&silent(run("/usr/bin/env").within(&Container::new(quota)).finish()));
        assert!(ALL.iter().all(|(name, _)| found.contains_key(*name) == set), "{quota}");
    }
}

#[test]
fn a_quota_that_is_missing_or_refused_sets_nothing_and_says_nothing() {
    let dir = temp_dir("growth");
    let nothing = |run: Run| {
        let found = environment(&silent(run.finish()));
        assert!(ALL.iter().all(|(name, _)| !found.contains_key(*name)), "{found:?}");
    };
    let preloaded = || run("/usr/bin/env").env("LD_PRELOAD", preload());
    nothing(preloaded());
    nothing(preloaded().env("CUQUOTA_CONFIG", dir.path()));
    nothing(preloaded().env("CUQUOTA_CONFIG", dir.path().join("nowhere.toml")));
    nothing(run("/usr/bin/env").within(&Container::new("limit = \"4g\"\n")));
    nothing(run("/usr/bin/env").within(&Container::new("")));
}

#[test]
fn a_child_started_with_an_empty_environment_has_none_of_it() {
    let container = Container::new("limit = \"4GiB\"\n");
    let said = silent(run("/bin/sh").within(&container).args(["-c", "env -i /usr/bin/env"]).finish());
    assert_eq!(said.stdout, "", "neither switches nor a preload");
}

#[test]
fn a_variable_that_was_removed_is_set_again_in_the_child() {
    let container = Container::new("limit = \"4GiB\"\n");
    let script = format!("env -u {TENSORFLOW} /usr/bin/env");
    let said = silent(run("/bin/sh").within(&container).args(["-c", &script]).finish());
    assert_eq!(environment(&said).get(TENSORFLOW).map(String::as_str), Some("true"));
}

#[test]
fn the_log_says_once_in_a_family_of_programs_what_was_set_and_why() {
    let container = Container::new("limit = \"4GiB\"\n");
    let said = run("/bin/sh")
        .within(&container)
        .env("CUQUOTA_LOG", "info")
        .args(["-c", "/bin/true; /bin/true"])
        .finish()
        .success();
    let lines: Vec<&str> = said.stderr.lines().collect();
    assert_eq!(lines.len(), ALL.len(), "{said}");
    for ((name, value), line) in ALL.iter().zip(lines) {
        assert!(line.starts_with(&format!("cuquota: {name}={value} set: ")), "{line}");
    }
}

/// Runs `script` in a mount namespace of its own, where `/etc` is an overlay with the preload file and the quota file
/// in place; `None` where that is not to be had.
fn with_preload_file(quota: &str, script: &str) -> Option<Finished> {
    let dir = temp_dir("etc");
    let setup = format!(
        "set -e; mount -t tmpfs none {0}; cd {0}; mkdir upper work bin; cp {1} bin/libcuquota.so; chmod -R a+rX .; \
         mkdir upper/cuquota; printf '%s' \"$QUOTA\" >upper/cuquota/quota.toml; \
         echo {0}/bin/libcuquota.so >upper/ld.so.preload; chmod -R a+rX upper; chmod a+rx .; \
         mount -t overlay overlay -o lowerdir=/etc,upperdir=upper,workdir=work /etc",
        dir.path().display(),
        preload().display(),
    );
    let unshare = |script: &str| {
        let run = run("/usr/bin/unshare").env("QUOTA", quota);
        run.args(["-m", "sh", "-c", script]).finish()
    };
    unshare(&setup).status.success().then(|| unshare(&format!("{setup}; cd /; {script}")))
}

#[test]
fn the_preload_file_reaches_children_with_an_empty_environment() {
    let said = with_preload_file("limit = \"4GiB\"\n", "env -i /usr/bin/env");
    let Some(said) = said else { return skip("no mount namespace: run as root") };
    let expected = ALL.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(environment(&silent(said)), BTreeMap::from(expected));
}

#[test]
fn a_set_user_id_program_gets_them_by_the_preload_file_too() {
    let script = "dir=$(mktemp -d) && mount -t tmpfs none $dir && cp /usr/bin/env $dir/env && \
                  chown 65534 $dir/env && chmod 4755 $dir/env && $dir/env";
    let said = with_preload_file("limit = \"4GiB\"\n", script);
    let Some(said) = said else { return skip("no mount namespace: run as root") };
    let found = environment(&silent(said));
    assert!(ALL.iter().all(|(name, value)| found.get(*name).map(String::as_str) == Some(value)), "{found:?}");
}
