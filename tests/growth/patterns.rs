//! How frameworks take memory, under each policy: what is charged and what the card holds. The same table is in
//! `docs/growth.md`.

use crate::common::{Container, MIB, Machine, Run, cuquota};
use crate::program::Program;

/// Tensors of 64 MiB: 512 MiB in all.
const TENSORS: u32 = 8;
const CONTEXT: u64 = 300;

const PATTERNS: [(&str, &str); 9] = [
    ("tensorflow", "TensorFlow"),
    ("tensorflow-fraction", "TensorFlow, 90 % asked for by the program"),
    ("tensorflow-cuda-malloc-async", "TensorFlow, `cuda_malloc_async`"),
    ("jax", "JAX"),
    ("jax-platform", "JAX, `platform`"),
    ("jax-cuda-async", "JAX, `cuda_async`"),
    ("torch", "PyTorch"),
    ("torch-expandable", "PyTorch, `expandable_segments`"),
    ("torch-cuda-malloc-async", "PyTorch, `cudaMallocAsync`"),
];

/// What a pattern is charged and what the card holds for it, in MiB without the context.
fn measure(pattern: &str, growth: &str, machine: &Machine) -> (u64, u64) {
    let container = Container::new(&format!("limit = \"8GiB\"\ngrowth = \"{growth}\"\n"));
    let mut program = Program::ready(pattern, TENSORS, machine, &container);
    assert_eq!(program.ask("check"), "same", "{pattern} under {growth}");
    let run =
        Run::new(cuquota()).on(machine).args(["status", "--json", "--state"]).arg(container.state_dir());
    let status: serde_json::Value = serde_json::from_str(&run.finish().success().stdout).expect("JSON");
    let used = status["containers"][0]["gpus"][0]["used_bytes"].as_u64().expect("a number");
    (used / MIB - CONTEXT, program.held() - CONTEXT)
}

#[test]
fn what_each_framework_is_charged_and_holds_is_as_documented() {
    let docs =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/growth.md")).expect("the docs");
    let mut missing = String::new();
    for (pattern, name) in PATTERNS {
        let machine = Machine::new("16GiB");
        let cells: Vec<String> = ["native", "hints", "lazy"]
            .iter()
            .map(|growth| {
                let (used, held) = measure(pattern, growth, &machine);
                format!("{used} / {held}")
            })
            .collect();
        let row = format!("| {name} | {} |\n", cells.join(" | "));
        if !docs.contains(&row) {
            missing += &row;
        }
    }
    assert!(missing.is_empty(), "docs/growth.md should say:\n{missing}");
}

#[test]
fn with_a_quota_that_says_nothing_of_growth_a_small_model_stays_below_a_gib() {
    let machine = Machine::new("16GiB");
    for pattern in ["tensorflow", "tensorflow-cuda-malloc-async", "jax", "jax-platform", "jax-cuda-async"] {
        let container = Container::new("limit = \"4GiB\"\n");
        let mut program = Program::ready(pattern, 4, &machine, &container);
        let held = program.held();
        assert!(held < 1024, "{pattern}: {held} MiB");
    }
}

#[test]
fn what_the_user_says_wins() {
    let machine = Machine::new("16GiB");
    for (pattern, variable, value, takes) in [
        ("tensorflow", "TF_FORCE_GPU_ALLOW_GROWTH", "false", 4096 - CONTEXT - 1800),
        ("jax", "XLA_PYTHON_CLIENT_PREALLOCATE", "true", 3072),
        ("jax-cuda-async", "XLA_PYTHON_CLIENT_PREALLOCATE", "", 3072),
    ] {
        let container = Container::new("limit = \"4GiB\"\n");
        let (mut program, said) = Program::start_with(pattern, 4, &machine, &container, &[(variable, value)]);
        assert_eq!(said, "ready");
        assert_eq!(program.held(), takes + CONTEXT, "{pattern}");
    }
}
