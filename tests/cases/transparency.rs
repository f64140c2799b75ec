//! In all that is not the budget, a program cannot tell that the library is there.

use std::os::unix::process::CommandExt;
use std::process::Stdio;

use crate::common::programs::c_program;
use crate::common::{Container, Run, temp_dir};
use crate::harness::{four_gib, one_card};

/// Standard output, standard error and status of a program, bare and within a container.
fn both(program: &str, args: &[&str], container: &Container) -> [(String, String, Option<i32>); 2] {
    let run = || Run::new(program).args(args.to_vec());
    [run().finish(), run().within(container).finish()]
        .map(|ended| (ended.stdout, ended.stderr, ended.status.code()))
}

#[test]
fn programs_that_do_not_use_the_gpu_say_what_they_always_say() {
    let dir = temp_dir("transparency");
    let smi = dir.path().join("nvidia-smi");
    std::fs::write(&smi, "#!/bin/sh\necho 4096, 12\n").unwrap();
    std::fs::set_permissions(&smi, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let smi = smi.to_str().unwrap();
    // With a valid quota, a refused one and none at all.
    let (valid, refused) = (four_gib(), Container::new("limit = \"4g\"\n"));
    let gone = Container::new("");
    std::fs::remove_file(gone.quota_file()).unwrap();
    for container in [&valid, &refused, &gone] {
        let programs: [(&str, &[&str]); 6] = [
            ("/bin/echo", &["hi"]),
            ("/sbin/ldconfig", &["-p"]),
            ("/bin/sh", &["-c", "echo out; echo err >&2; exit 3"]),
            ("/bin/sh", &["-c", "kill -9 $$"]),
            ("/bin/true", &[]),
            (smi, &[]),
        ];
        for (program, args) in programs {
            let [bare, within] = both(program, args, container);
            assert_eq!(within, bare, "{program} {args:?}");
        }
    }
}

#[test]
fn a_program_finds_no_thread_descriptor_or_handler_that_is_not_its_own() {
    let state = |gpu: &str| {
        // The growth switches, which are set in the environment on purpose, aside.
        let container = Container::new("limit = \"4GiB\"\ngrowth = \"native\"\n");
        let machine = one_card();
        let run = || Run::new(c_program("process_state")).on(&machine).arg(gpu);
        [run().finish().success().stdout, run().within(&container).finish().success().stdout]
    };
    for gpu in ["without", "with"] {
        let [bare, within] = state(gpu);
        assert_eq!(within, bare, "{gpu} the GPU");
    }
}

#[test]
fn no_message_lands_in_a_file_that_takes_the_place_of_stderr() {
    // Given a program that is started with its standard descriptors closed, and opens a file as descriptor 2;
    let machine = one_card();
    let refused = Container::new("limit = \"4g\"\n");
    let dir = temp_dir("closed");
    let file = dir.path().join("data");
    let mut command =
        Run::new(c_program("closed_streams")).on(&machine).within(&refused).arg(&file).command();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: close is allowed between fork and exec.
    unsafe {
        command.pre_exec(|| {
            for descriptor in 0..3 {
                libc::close(descriptor);
            }
            Ok(())
        })
    };
    // when its quota is refused, then the file holds what the program wrote and nothing else.
    assert_eq!(command.status().unwrap().code(), Some(0));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine\n");
}

#[test]
fn the_level_governs_the_very_first_message_and_a_file_can_take_them() {
    let (machine, container) = (one_card(), four_gib());
    let dir = temp_dir("log");
    let file = dir.path().join("log");
    let harness = || {
        Run::new(c_program("harness")).on(&machine).within(&container).args([
            "init",
            "device 0",
            "primary",
            "alloc a 5GiB",
        ])
    };
    assert_eq!(harness().finish().success().stderr, "");
    let told = harness().env("CUQUOTA_LOG", "info").finish().success();
    assert!(told.stderr.contains("cuquota: refused 5368709120 bytes"), "{told}");
    assert!(told.stdout.ends_with("alloc a 5GiB -> 2\n"), "{told}");
    let filed = harness().env("CUQUOTA_LOG", "info").env("CUQUOTA_LOG_FILE", &file).finish().success();
    assert_eq!(filed.stderr, "");
    assert!(std::fs::read_to_string(&file).unwrap().contains("refused 5368709120 bytes"));
}
