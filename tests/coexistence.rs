//! Other preloaded libraries, checkers, and the smallest containers: everything works as it does without the library,
//! and the budget holds.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::programs::{c_build, c_library, c_program};
use common::{Container, Machine, Run, preload, temp_dir};

/// Whoever deadlocks does not get that far.
const SOON: Duration = Duration::from_secs(20);

/// Asks for more than the budget, by the harness, and what it is answered.
const COMMANDS: [&str; 6] = ["init", "device 0", "primary", "alloc a 5GiB", "alloc b 3GiB", "info"];
const ANSWERS: &str = "init -> 0\ndevice 0 -> 0\nprimary -> 0\nalloc a 5GiB -> 2\nalloc b 3GiB -> 0\n\
                       info -> 0 free=724MiB total=4096MiB\n";

fn four_gib() -> Container {
    Container::new("limit = \"4GiB\"\n")
}

/// Where Debian puts a library: the file's name under any of the usual directories.
fn library(name: &str) -> Option<PathBuf> {
    let multiarch = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let dirs = [multiarch.clone(), format!("{multiarch}/faketime"), "/usr/lib/heaptrack".to_owned()];
    dirs.iter().map(|dir| Path::new(dir).join(name)).find(|path| path.exists())
}

fn both_orders(other: &Path) -> [String; 2] {
    let (ours, other) = (preload(), other.display());
    [format!("{}:{other}", ours.display()), format!("{other}:{}", ours.display())]
}

/// Programs that know nothing of the GPU, and one that uses it, with `other` preloaded before and behind the library.
fn lives_with(other: &Path, prepare: impl Fn(Run) -> Run) {
    let (machine, container) = (Machine::new("16GiB"), four_gib());
    for preloads in both_orders(other) {
        let run = |program: &Path| {
            let run = prepare(Run::new(program)).on(&machine).within(&container).limit(SOON);
            run.env("LD_PRELOAD", &preloads)
        };
        let quiet = run("/bin/true".as_ref()).finish().success();
        assert_eq!(quiet.stdout, "", "{preloads}");
        let done = run(&c_program("loop")).finish().success();
        assert!(done.stdout.contains("done\n"), "{preloads}: {done}");
        let python = run("python3".as_ref()).args(["-c", "print(1)"]).finish().success();
        assert!(python.stdout.contains("1\n"), "{preloads}: {python}");
        let used = run(&c_program("harness")).args(COMMANDS).finish().success();
        assert!(used.stdout.contains(ANSWERS), "{preloads}: {used}");
    }
}

#[test]
fn allocators_clocks_and_tracers_may_be_preloaded_before_or_behind() {
    for (name, package) in [
        ("libjemalloc.so.2", "libjemalloc2"),
        ("libtcmalloc.so.4", "libgoogle-perftools4"),
        ("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
        ("libfaketime.so.1", "libfaketime"),
        ("libheaptrack_preload.so", "libheaptrack"),
    ] {
        let Some(other) = library(name) else {
            common::skip::skip(&format!("{name} is not there: apt-get install {package}"));
            continue;
        };
        let trace = temp_dir("trace");
        lives_with(&other, |run| {
            let run = run.env("DUMP_HEAPTRACK_OUTPUT", trace.path().join("trace"));
            if name.contains("faketime") { run.env("FAKETIME", "-15d") } else { run }
        });
    }
}

#[test]
fn an_allocator_that_looks_names_up_under_its_lock_does_not_wait_for_itself() {
    lives_with(&c_library("stubborn_malloc"), |run| run);
}

#[test]
fn a_program_under_valgrind_is_limited_and_finds_no_new_fault() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return common::skip::skip("valgrind is not there: apt-get install valgrind libc6-dbg");
    }
    let (machine, container) = (Machine::new("16GiB"), four_gib());
    let run = Run::new("valgrind").args(["-q", "--error-exitcode=99"]).arg(c_program("harness"));
    let used = run.args(COMMANDS).on(&machine).within(&container).limit(Duration::from_secs(120)).finish();
    assert_eq!((used.code(), used.stdout.as_str(), used.stderr.as_str()), (0, ANSWERS, ""), "{used}");
}

#[test]
fn programs_built_with_address_sanitizer_are_limited() {
    let (machine, container) = (Machine::new("16GiB"), four_gib());
    let run = |program: &Path| {
        Run::new(program).args(COMMANDS).on(&machine).within(&container).limit(Duration::from_secs(60))
    };
    // With the checker linked in it is the first by itself; as a library it wants to be the first that is preloaded.
    let inside = c_build("harness", &["-fsanitize=address", "-static-libasan"]);
    let used = run(&inside).env("ASAN_OPTIONS", "verify_asan_link_order=0").finish();
    assert_eq!((used.code(), used.stdout.as_str()), (0, ANSWERS), "{used}");
    let asan = Command::new("cc").arg("-print-file-name=libasan.so").output().expect("a C compiler");
    let asan = String::from_utf8(asan.stdout).unwrap();
    let outside = c_build("harness", &["-fsanitize=address"]);
    let preloads = format!("{}:{}", asan.trim(), preload().display());
    let used = run(&outside).env("LD_PRELOAD", preloads).finish();
    assert_eq!((used.code(), used.stdout.as_str()), (0, ANSWERS), "{used}");
}

/// Runs a script of shell in namespaces of its own, as root there; `None` where this machine does not allow that.
fn unshared(flags: &[&str], script: &str, run: impl Fn(Run) -> Run) -> Option<common::Finished> {
    let possible = Command::new("unshare").args(flags).arg("/bin/true").output();
    if !possible.is_ok_and(|output| output.status.success()) {
        let flags = flags.join(" ");
        common::skip::skip(&format!("unshare {flags} is not allowed here: run the tests as root"));
        return None;
    }
    let shell = Run::new("unshare").args(flags.to_vec()).args(["sh", "-ec", script]);
    Some(run(shell).limit(Duration::from_secs(60)).finish())
}

/// A container with nothing in it: the root and /tmp read-only but for what `KEEP` names, no /dev/shm, no /proc.
const SMALLEST: &str = "for dir in $KEEP; do mount --bind \"$dir\" \"$dir\"; done
    mount -t tmpfs -o ro,size=4k none /dev/shm
    mount -o remount,bind,ro /
    umount -l /proc 2>/dev/null || mount -t tmpfs -o ro none /proc
    exec env LD_PRELOAD=\"$OURS\" $AS \"$@\"";

#[test]
fn the_smallest_container_holds_its_programs_all_the_same() {
    let harness = c_program("harness");
    for user in ["", "setpriv --reuid=65534 --regid=65534 --clear-groups"] {
        for state_is_writable in [true, false] {
            let (machine, container) = (Machine::new("16GiB"), four_gib());
            // Files that another user may read; the programs that cargo built lie where only their builder may look.
            let open = temp_dir("open");
            for (from, to) in [(preload(), "libcuquota.so"), (harness.clone(), "harness")] {
                std::fs::copy(from, open.path().join(to)).unwrap();
            }
            std::fs::copy(container.quota_file(), open.path().join("quota.toml")).unwrap();
            std::fs::copy(common::sim_dir().join("libcuda.so.1"), open.path().join("libcuda.so.1")).unwrap();
            let all = |dir: &Path, mode| {
                use std::os::unix::fs::PermissionsExt;
                std::fs::set_permissions(dir, std::fs::Permissions::from_mode(mode)).unwrap();
            };
            all(open.path(), 0o755);
            all(machine.cards_dir(), 0o777);
            let state = open.path().join("state");
            std::fs::create_dir(&state).unwrap();
            all(&state, 0o777);
            let mut keep = machine.cards_dir().display().to_string();
            if state_is_writable {
                keep += &format!(" {}", state.display());
            }
            let finished = unshared(
                &["--mount"],
                &format!(
                    "set -- {} {}\n{SMALLEST}",
                    open.path().join("harness").display(),
                    COMMANDS.map(|c| format!("'{c}'")).join(" ")
                ),
                |run| {
                    let run = run
                        .on(&machine)
                        .env("LD_LIBRARY_PATH", open.path())
                        .env("KEEP", &keep)
                        .env("AS", user);
                    run.env("CUQUOTA_CONFIG", open.path().join("quota.toml"))
                        .env("CUQUOTA_STATE", &state)
                        .env("OURS", open.path().join("libcuquota.so"))
                },
            );
            let Some(finished) = finished else { return };
            assert_eq!((finished.code(), finished.stdout.as_str()), (0, ANSWERS), "{user}: {finished}");
            // Where nothing can be shared, each process is held to the whole limit, and one line says so.
            let said: Vec<&str> = finished.stderr.lines().collect();
            match state_is_writable {
                true => assert!(said.is_empty(), "{finished}"),
                false => assert!(said.len() == 1 && said[0].starts_with("cuquota: "), "{finished}"),
            }
            // What does not use the GPU notices nothing at all.
            let quiet = unshared(&["--mount"], &format!("set -- /bin/true\n{SMALLEST}"), |run| {
                let run =
                    run.env("KEEP", &keep).env("AS", user).env("OURS", open.path().join("libcuquota.so"));
                run.env("CUQUOTA_CONFIG", open.path().join("quota.toml")).env("CUQUOTA_STATE", &state)
            });
            let quiet = quiet.expect("possible a moment ago");
            assert_eq!((quiet.code(), quiet.stdout.as_str(), quiet.stderr.as_str()), (0, "", ""), "{quiet}");
        }
    }
}

#[test]
fn a_user_namespace_holds_its_programs() {
    let (machine, container) = (Machine::new("16GiB"), four_gib());
    let script = format!("exec {} \"$@\"", c_program("harness").display());
    let run = |run: Run| run.arg("sh").args(COMMANDS).on(&machine).within(&container);
    let Some(finished) = unshared(&["--user", "--map-root-user"], &script, run) else { return };
    assert_eq!((finished.code(), finished.stdout.as_str(), finished.stderr.as_str()), (0, ANSWERS, ""));
}

#[test]
fn with_everything_bound_at_start_a_program_starts_as_without_the_library() {
    for program in ["/bin/true", "/bin/ls", "python3"] {
        let run = || Run::new(program).arg("--version").env("LD_BIND_NOW", "1");
        let (bare, within) = (run().finish().success(), run().within(&four_gib()).finish().success());
        assert_eq!((within.stdout, within.stderr), (bare.stdout, bare.stderr), "{program}");
    }
}
