//! `cuquota doctor`: what it says where all is well, and that it notices each thing that can be wrong.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use common::{Container, Finished, Machine, Run, cuquota, preload, temp_dir};
use serde_json::Value;

fn doctor() -> Run {
    Run::new(cuquota()).arg("doctor")
}

/// What it answers in JSON, and its exit code.
fn asked(run: Run) -> (Value, i32) {
    let finished = run.arg("--json").finish();
    let answer = serde_json::from_str(&finished.stdout).unwrap_or_else(|error| panic!("{error}\n{finished}"));
    (answer, finished.code())
}

fn rows(answer: &Value) -> Vec<(&str, &str, &str)> {
    let rows = answer["rows"].as_array().unwrap().iter();
    rows.map(|row| ["route", "function", "verdict"].map(|key| row[key].as_str().unwrap()).into()).collect()
}

/// The findings that say something is wrong.
fn problems(answer: &Value) -> Vec<String> {
    let findings = answer["findings"].as_array().unwrap().iter();
    let wrong = findings.filter(|finding| finding["problem"] == true);
    wrong
        .map(|finding| {
            assert!(finding["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()), "{finding}");
            finding["finding"].as_str().unwrap().to_owned()
        })
        .collect()
}

#[track_caller]
fn assert_wrong(answer: &Value, words: &str) {
    let problems = problems(answer);
    assert!(problems.iter().any(|problem| problem.contains(words)), "no {words:?} in {problems:#?}");
}

/// `cuquota run --sim SPEC --limit LIMIT -- cuquota doctor --json`
fn under_run(spec: &str, limit: &str) -> Finished {
    let run = Run::new(cuquota()).args(["run", "--sim", spec, "--limit", limit, "--"]);
    run.arg(cuquota()).args(["doctor", "--json"]).finish()
}

#[test]
fn all_is_capped_on_every_generation_of_the_driver() {
    for (driver, absent_routes, absent_functions) in [
        (
            "10.2",
            &["procaddress", "procaddress-v2", "procaddress-of-itself"][..],
            &["Async", "Graph", "_v3", "_v4"][..],
        ),
        ("11.4", &["procaddress-v2", "procaddress-of-itself"], &["_v4"]),
        ("12.0", &[], &["_v4"]),
        ("12.9", &[], &[]),
        ("13.0", &[], &[]),
    ] {
        for limit in ["4GiB", "unlimited"] {
            let finished = under_run(&format!("16GiB,driver={driver}"), limit);
            assert_eq!((finished.code(), finished.stderr.as_str()), (0, ""), "{driver} {limit}\n{finished}");
            let answer: Value = serde_json::from_str(&finished.stdout).unwrap();
            assert_eq!(answer["well"], true);
            let rows = rows(&answer);
            assert!(rows.len() >= 14 * 20, "{}", rows.len());
            for (route, function, verdict) in rows {
                let lacks = |part: &&str| function.contains(*part);
                let absent = absent_routes.contains(&route) || absent_functions.iter().any(lacks);
                let expected = if absent { "absent" } else { "capped" };
                assert_eq!(verdict, expected, "{driver} {limit}: {route} {function}");
            }
        }
    }
}

#[test]
fn a_driver_that_hands_out_inner_addresses_is_no_way_out() {
    let finished = under_run("16GiB,procaddr=inner", "4GiB");
    assert_eq!(finished.code(), 0, "{finished}");
}

#[test]
fn an_older_driver_really_lacks_the_newer_names() {
    let look = "import ctypes; cuda = ctypes.CDLL('libcuda.so.1'); \
                print(hasattr(cuda, 'cuMemAlloc_v2'), hasattr(cuda, 'cuMemCreate'), \
                hasattr(cuda, 'cuMemAllocAsync'), hasattr(cuda, 'cuGetProcAddress_v2'))";
    for (driver, expected) in
        [("10.2", "True True False False"), ("11.4", "True True True False"), ("12.0", "True True True True")]
    {
        let run = Run::new(cuquota()).args(["run", "--sim", &format!("16GiB,driver={driver}")]);
        let said = run.args(["--limit", "1GiB", "--", "python3", "-c", look]).finish().success();
        assert_eq!(said.stdout.trim(), expected, "{driver}");
    }
}

#[test]
fn without_the_library_everything_escapes() {
    let run = Run::new(cuquota()).args(["run", "--sim", "16GiB", "--limit", "4GiB", "--"]);
    let finished = run.args(["env", "-u", "LD_PRELOAD"]).arg(cuquota()).arg("doctor").finish();
    assert_eq!(finished.code(), 1, "{finished}");
    assert!(finished.stdout.contains("ESCAPES"), "{finished}");
    assert!(finished.stdout.contains("the library is not preloaded"), "{finished}");
    let run = Run::new(cuquota()).args(["run", "--sim", "16GiB", "--limit", "4GiB", "--"]);
    let (answer, code) = asked(run.args(["env", "-u", "LD_PRELOAD"]).arg(cuquota()).arg("doctor"));
    assert_eq!((code, &answer["well"]), (1, &Value::Bool(false)));
    assert!(rows(&answer).iter().all(|(.., verdict)| *verdict == "escapes"), "{answer:#}");
}

#[test]
fn a_machine_without_a_driver_is_named() {
    let container = Container::new("limit = \"4GiB\"\n");
    let (answer, code) = asked(doctor().within(&container));
    assert_eq!(code, 1);
    assert_wrong(&answer, "there is no NVIDIA driver");
}

#[test]
fn a_refused_quota_is_named_with_its_place() {
    let container = Container::new("limit = \"4g\"\n");
    let (answer, code) = asked(doctor().on(&Machine::new("16GiB")).within(&container));
    assert_eq!(code, 1);
    assert_wrong(&answer, ":1:9: unknown unit");
    assert_wrong(&answer, "the library said: cuquota");
    assert!(rows(&answer).iter().all(|(.., verdict)| *verdict == "untried"), "{answer:#}");
    let text = doctor().on(&Machine::new("16GiB")).within(&container).finish().stdout;
    assert!(text.contains("the quota is refused: no program gets the GPU\n"), "{text}");
    assert!(!text.contains(" tried: "), "nothing was tried\n{text}");
}

#[test]
fn a_preload_that_is_missing_or_unreadable_is_named() {
    let (machine, container) = (Machine::new("16GiB"), Container::new("limit = \"4GiB\"\n"));
    let missing = || doctor().on(&machine).within(&container).env("LD_PRELOAD", "/nowhere/libcuquota.so");
    let (answer, code) = asked(missing());
    assert_eq!(code, 1);
    assert_wrong(&answer, "/nowhere/libcuquota.so, which is not there");

    let dir = temp_dir("doctor");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = dir.path().join("libcuquota.so");
    fs::copy(preload(), &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o600)).unwrap();
    if !Command::new("id").arg("-u").output().is_ok_and(|out| out.stdout == b"0\n") {
        return common::skip::skip("only root can become another user: run the tests as root");
    }
    // The command itself lies where only its builder may look.
    let command = dir.path().join("cuquota");
    fs::copy(cuquota(), &command).unwrap();
    let run = Run::new("setpriv").args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    let run = run.arg(command).arg("doctor").within(&container).env("LD_PRELOAD", &copy);
    let (answer, code) = asked(run);
    assert_eq!(code, 1);
    assert_wrong(&answer, "which this user cannot read");
}

#[test]
fn state_that_cannot_be_shared_is_named() {
    let (machine, container) = (Machine::new("16GiB"), Container::new("limit = \"4GiB\"\n"));
    let file = temp_dir("doctor");
    let in_the_way = file.path().join("state");
    fs::write(&in_the_way, "a file where a directory should be").unwrap();
    let (answer, code) =
        asked(doctor().on(&machine).within(&container).env("CUQUOTA_STATE", in_the_way.join("below")));
    assert_eq!(code, 1);
    assert_wrong(&answer, "the state is not shared");
}

#[test]
fn programs_that_cannot_be_held_are_named() {
    let (machine, container) = (Machine::new("16GiB"), Container::new("limit = \"4GiB\"\n"));
    let about = |program: &std::path::Path| {
        let run = doctor().on(&machine).within(&container).args(["--json", "--"]).arg(program);
        let finished = run.finish();
        (serde_json::from_str::<Value>(&finished.stdout).unwrap(), finished.code())
    };
    let (answer, code) = about("/bin/sh".as_ref());
    assert_eq!((code, problems(&answer)), (0, vec![]));

    let dir = temp_dir("doctor");
    let (source, fixed) = (dir.path().join("fixed.c"), dir.path().join("fixed"));
    fs::write(&source, "int main(void) { return 0; }").unwrap();
    let built = Command::new("cc").arg("-static").arg(&source).arg("-o").arg(&fixed).status();
    assert!(built.is_ok_and(|status| status.success()), "a C compiler that links statically");
    let (answer, code) = about(&fixed);
    assert_eq!(code, 1);
    assert_wrong(&answer, "statically linked");

    // A script is judged by what runs it.
    let script = dir.path().join("script");
    fs::write(&script, format!("#!{}\n", fixed.display())).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    assert_wrong(&about(&script).0, "statically linked");

    // What the kernel would start is the loader that the program names.
    let mut bytes = fs::read("/bin/true").unwrap();
    let at = bytes.windows(8).position(|part| part == b"/lib64/l").expect("a loader's name");
    bytes[at..at + 16].copy_from_slice(b"/lib/ld-musl.so\0");
    let musl = dir.path().join("musl");
    fs::write(&musl, bytes).unwrap();
    fs::set_permissions(&musl, fs::Permissions::from_mode(0o755)).unwrap();
    assert_wrong(&about(&musl).0, "linked against musl");

    fs::copy("/bin/true", dir.path().join("raised")).unwrap();
    fs::set_permissions(dir.path().join("raised"), fs::Permissions::from_mode(0o4755)).unwrap();
    assert_wrong(&about(&dir.path().join("raised")).0, "drop LD_PRELOAD");
    assert_wrong(&about("no-such-program".as_ref()).0, "is not found");
    assert_wrong(&about(&dir.path().join("no-such-program")).0, "is not found");
    assert_wrong(&about(&source).0, "fixed.c cannot be executed");
}

#[test]
fn what_nvml_reports_is_compared_with_what_cuda_reports() {
    let container = Container::new("limit = \"4GiB\"\n");
    let said = |spec: &str| doctor().on(&Machine::new(spec)).within(&container).finish();
    let same = said("16GiB");
    assert!(same.stdout.contains("CUDA and NVML both report a GPU of 4 GiB"), "{same}");
    // Where NVML does not say, programs know how to live with that.
    let silent = said("16GiB,nvml=notsupported");
    assert_eq!(silent.code(), 0);
    assert!(silent.stdout.contains("NVML does not report the GPU's memory: it answers 3"), "{silent}");
}

#[test]
fn a_level_of_the_log_that_there_is_not_is_pointed_out() {
    let container = Container::new("limit = \"4GiB\"\n");
    let said = |level: &str| {
        doctor().on(&Machine::new("16GiB")).within(&container).env("CUQUOTA_LOG", level).finish()
    };
    let wrong = said("DEBUG");
    assert_eq!(wrong.code(), 0, "nothing escapes by it\n{wrong}");
    assert!(wrong.stdout.contains("CUQUOTA_LOG is \"DEBUG\", which is no level"), "{wrong}");
    assert!(!said("error").stdout.contains("CUQUOTA_LOG"));
}

#[test]
fn a_budget_without_room_is_no_escape() {
    for limit in ["0", "100MiB"] {
        let (machine, container) = (Machine::new("16GiB"), Container::new(&format!("limit = \"{limit}\"\n")));
        let (answer, _) = asked(doctor().on(&machine).within(&container));
        assert!(!rows(&answer).is_empty());
        for (route, function, verdict) in rows(&answer) {
            assert_ne!(verdict, "escapes", "{limit}: {route} {function}");
        }
    }
}
