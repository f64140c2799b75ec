//! Several containers on one card, under each policy.

use serde_json::Value;

use crate::common::{Container, MIB, Machine, Run, cuquota};
use crate::program::Program;

const CONTEXT: u64 = 300;

fn container(limit: &str, growth: &str) -> Container {
    Container::new(&format!("name = \"{growth}\"\nlimit = \"{limit}\"\ngrowth = \"{growth}\"\n"))
}

/// What all processes hold of a machine's only card, in MiB, seen from outside.
fn card_used(machine: &Machine) -> u64 {
    let client = Run::new(cuquota()).on(machine).arg("__gpu-client");
    let said = client.input("devices\nstart\ninfo\n").finish().success().stdout;
    let info: Value = serde_json::from_str(said.lines().last().expect("three answers")).expect("JSON");
    let number = |key: &str| info[key].as_u64().expect("a number");
    (number("total") - number("free")) / MIB - CONTEXT
}

fn status(container: &Container, machine: &Machine) -> Value {
    let run =
        Run::new(cuquota()).on(machine).args(["status", "--json", "--state"]).arg(container.state_dir());
    let answer: Value = serde_json::from_str(&run.finish().success().stdout).expect("JSON");
    answer["containers"][0]["gpus"][0].clone()
}

#[test]
fn three_that_grab_most_of_the_card_run_at_once_when_lazy() {
    let machine = Machine::new("16GiB");
    let containers: Vec<Container> = (0..3).map(|_| container("8GiB", "lazy")).collect();
    let mut programs: Vec<Program> =
        containers.iter().map(|one| Program::ready("tensorflow-fraction", 16, &machine, one)).collect();
    assert_eq!(card_used(&machine), 3 * (1024 + CONTEXT));
    for (program, container) in programs.iter_mut().zip(&containers) {
        assert_eq!(program.held(), 1024 + CONTEXT);
        assert_eq!(program.ask("check"), "same");
        let gpu = status(container, &machine);
        let reserved = (8 * 1024 * MIB / 10 * 9).next_multiple_of(2 * MIB);
        assert_eq!(gpu["lazy_bytes"], reserved, "charged in full: {gpu}");
        // What a context costs cannot be learned on a card that others use.
        let context = gpu["used_bytes"].as_u64().expect("a number") - reserved;
        assert!((100 * MIB..=CONTEXT * MIB).contains(&context), "{gpu}");
        assert_eq!(gpu["resident_bytes"], (1024 + CONTEXT) * MIB);
        assert_eq!(gpu["peak_bytes"], gpu["used_bytes"]);
    }
}

#[test]
fn under_native_the_third_of_them_fails() {
    let machine = Machine::new("16GiB");
    let containers: Vec<Container> = (0..3).map(|_| container("8GiB", "native")).collect();
    let start = |one: &Container| Program::start("tensorflow-fraction", 16, &machine, one);
    let running: Vec<(Program, String)> = containers.iter().map(start).collect();
    let said: Vec<&str> = running.iter().map(|(_, said)| said.as_str()).collect();
    assert_eq!(said, ["ready", "ready", "failed 2"]);
}

#[test]
fn an_idle_programs_lazy_memory_gives_way_and_comes_back_unharmed() {
    let machine = Machine::new("4GiB");
    let (lazy, native) = (container("4GiB", "lazy"), container("4GiB", "native"));
    let mut idle = Program::ready("tensorflow-fraction", 40, &machine, &lazy);
    assert_eq!(idle.held(), 40 * 64 + CONTEXT);
    let neighbour = Program::ready("torch", 40, &machine, &native);
    let left = 4096 - 40 * 64 - CONTEXT;
    assert!(idle.held() <= left, "{} MiB are left to it, of {left}", idle.held());
    assert_eq!(idle.ask("check"), "same", "what was moved away is read where it is");
    drop(neighbour);
    assert_eq!(idle.ask("touch"), "0");
    assert_eq!(idle.held(), 40 * 64 + CONTEXT);
    assert_eq!(idle.ask("check"), "same");
}

#[test]
fn the_container_itself_never_gets_past_its_limit() {
    let machine = Machine::new("16GiB");
    let one = container("8GiB", "lazy");
    let _first = Program::ready("tensorflow-fraction", 1, &machine, &one);
    let (_second, said) = Program::start("tensorflow-fraction", 1, &machine, &one);
    assert_eq!(said, "failed 2", "7.2 GiB are charged, though 64 MiB are used");
}

#[test]
fn trim_moves_an_idle_containers_lazy_memory_to_the_host() {
    let machine = Machine::new("16GiB");
    let (one, other) = (container("8GiB", "lazy"), container("8GiB", "lazy"));
    let mut program = Program::ready("tensorflow-fraction", 16, &machine, &one);
    let mut bystander = Program::ready("tensorflow-fraction", 16, &machine, &other);
    let trim = |name: &str| {
        let run = Run::new(cuquota()).args(["trim", name, "--state"]).arg(one.state_dir());
        run.finish()
    };
    let said = trim("lazy").success();
    assert_eq!(said.stdout, "lazy: asked, 7.20 GiB of lazy memory in 1 process\n");
    assert_eq!(program.held(), 1024 + CONTEXT, "nothing happens behind the program's back");
    std::thread::sleep(std::time::Duration::from_millis(300));
    program.ask("info");
    assert_eq!((program.held(), bystander.held()), (CONTEXT, 1024 + CONTEXT));
    let gpu = status(&one, &machine);
    assert_eq!(gpu["resident_bytes"], CONTEXT * MIB, "{gpu}");
    assert_eq!(program.ask("check"), "same");
    assert_eq!(program.ask("touch"), "0");
    assert_eq!(program.held(), 1024 + CONTEXT);
    // Once asked is once done.
    std::thread::sleep(std::time::Duration::from_millis(300));
    program.ask("info");
    bystander.ask("info");
    assert_eq!((program.held(), bystander.held()), (1024 + CONTEXT, 1024 + CONTEXT));

    let unknown = trim("nobody");
    assert_eq!(unknown.code(), 125);
    assert!(unknown.stderr.contains("there is no container \"nobody\""), "{unknown}");
}

#[test]
fn status_shows_what_is_used_and_what_of_it_is_resident() {
    let machine = Machine::new("16GiB");
    let one = container("8GiB", "lazy");
    let program = Program::ready("tensorflow-fraction", 16, &machine, &one);
    let run = Run::new(cuquota()).on(&machine).args(["status", "--state"]).arg(one.state_dir());
    let said = run.finish().success().stdout;
    assert!(said.contains("LIMIT  RESERVED      USED  RESIDENT      PEAK  REFUSALS  GPU"), "{said}");
    assert!(said.contains("\n8 GiB       0 B  7.49 GiB  1.29 GiB  7.49 GiB         0  GPU-"), "{said}");
    let row = said.lines().find(|line| line.trim_start().starts_with(&program.id().to_string()));
    assert!(row.is_some_and(|row| row.contains("  7.49 GiB  1.29 GiB  GPU-")), "{said}");
}
