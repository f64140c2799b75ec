//! NVML shows the same GPU as CUDA does.

use crate::common::programs::c_program;
use crate::common::{Container, Machine, Run};
use crate::harness::{four_gib, lines, needs_the_simulator, one_card};

fn nvml(machine: &Machine, container: Option<&Container>, hold: Option<&str>) -> Vec<String> {
    let run = Run::new(c_program("nvml")).on(machine).args(hold);
    lines(match container {
        Some(container) => run.within(container).finish(),
        None => run.finish(),
    })
}

#[test]
fn memory_information_adds_up_in_both_versions() {
    if needs_the_simulator() {
        return;
    }
    let said = nvml(&one_card(), Some(&four_gib()), Some("1GiB"));
    assert_eq!(
        said[..6],
        [
            "alloc 0",
            "too much 2",
            "init 0, handle 0, by PCI bus id 0",
            "v1 0 total=4096MiB free=2772MiB used=1324MiB, sum right, guards whole",
            "v2 0 total=4096MiB free=2772MiB, sum right, guards whole",
            "v2 version 0x2: 25, buffer untouched",
        ]
    );
}

#[test]
fn a_process_that_never_calls_cuda_sees_the_containers_gpu() {
    if needs_the_simulator() {
        return;
    }
    let (machine, container) = (one_card(), four_gib());
    let said = nvml(&machine, Some(&container), None);
    assert_eq!(said[1], "v1 0 total=4096MiB free=4096MiB used=0MiB, sum right, guards whole");
    let unlimited = nvml(&machine, Some(&Container::new("limit = \"32GiB\"\n")), None);
    assert_eq!(unlimited[1], "v1 0 total=16384MiB free=16384MiB used=0MiB, sum right, guards whole");
}

#[test]
fn usage_above_the_quota_leaves_nothing_free() {
    if needs_the_simulator() {
        return;
    }
    let container = Container::new("limit = \"256MiB\"\n");
    let said = nvml(&one_card(), Some(&container), Some("1"));
    assert_eq!(said[3], "v1 0 total=256MiB free=0MiB used=256MiB, sum right, guards whole");
}

#[test]
fn errors_are_nvmls_own() {
    if needs_the_simulator() {
        return;
    }
    for spec in ["16GiB", "16GiB,nvml=notsupported", "16GiB,nvml=nopermission"] {
        let machine = Machine::new(spec);
        let errors = |said: Vec<String>| -> Vec<String> {
            // What succeeds differs by the budget; what fails does not.
            said.into_iter().filter(|line| !line.contains(" 0 total=")).collect()
        };
        assert_eq!(
            errors(nvml(&machine, Some(&four_gib()), None)),
            errors(nvml(&machine, None, None)),
            "{spec}"
        );
    }
}

#[test]
fn what_is_not_hooked_is_the_drivers_very_function() {
    // A look-up of a function that is not hooked must find the driver's own, so that it costs exactly nothing.
    let (machine, container) = (one_card(), four_gib());
    let said = lines(Run::new(c_program("untouched")).on(&machine).within(&container).finish());
    assert_eq!(
        said,
        ["cuLaunchKernel: the driver's", "cuMemcpyHtoD_v2: the driver's", "nvmlDeviceGetName: the driver's"]
    );
}
