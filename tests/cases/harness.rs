//! The C harness, driven by commands.

use crate::common::programs::{c_build, c_program};
use crate::common::{Container, Finished, Machine, Run};

/// One simulated card of 16 GiB whose contexts cost 300 MiB, as the cases assume.
pub fn one_card() -> Machine {
    Machine::new("16GiB")
}

/// A container with a budget of 4 GiB, as the cases assume.
pub fn four_gib() -> Container {
    Container::new("limit = \"4GiB\"\n")
}

/// What a harness run says, a line a command.
pub fn bare(machine: &Machine, commands: &[&str]) -> Vec<String> {
    lines(Run::new(c_program("harness")).on(machine).args(commands.to_vec()).finish())
}

/// The same under the library.
pub fn within(container: &Container, machine: &Machine, commands: &[&str]) -> Vec<String> {
    lines(Run::new(c_program("harness")).on(machine).within(container).args(commands.to_vec()).finish())
}

/// The harness that is linked against the driver.
pub fn linked() -> std::path::PathBuf {
    c_build("harness", &["-DHARNESS_LINKED", "-Wl,--no-as-needed", "-l:libcuda.so.1"])
}

/// The lines of a run that must have ended well and must not have written to stderr.
#[track_caller]
pub fn lines(finished: Finished) -> Vec<String> {
    let finished = finished.success();
    assert_eq!(finished.stderr, "", "nothing on stderr");
    finished.stdout.lines().map(str::to_owned).collect()
}

/// Runs commands in a fresh container of 4 GiB with a context up, and compares each answer with the one expected. What
/// stands before ` -> ` in an expectation is the command.
#[track_caller]
pub fn expect(container: &Container, machine: &Machine, expected: &[&str]) {
    let start = ["init", "device 0", "primary", "base"];
    let commands: Vec<&str> =
        start.iter().copied().chain(expected.iter().map(|line| line.split(" -> ").next().unwrap())).collect();
    let said = within(container, machine, &commands);
    assert_eq!(said[..4], ["init -> 0", "device 0 -> 0", "primary -> 0", "base -> 0"]);
    for (said, expected) in said[4..].iter().zip(expected) {
        assert_eq!(said, expected, "all of it:\n{said:#?}");
    }
    assert_eq!(said.len(), expected.len() + 4);
}

/// True where the tests run on the machine's own driver (`CUQUOTA_TEST_DRIVER=real`), after saying so: for cases that set
/// the simulated card up, or know what it answers.
pub fn needs_the_simulator() -> bool {
    let real = crate::common::driver_is_real();
    if real {
        crate::common::skip::skip(
            "this case knows the simulated card: run it without CUQUOTA_TEST_DRIVER=real",
        );
    }
    real
}
