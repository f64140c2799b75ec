//! `cuquota demo`: what it promises, and that it would notice.

use super::cli;
use super::common::sim_dir;

#[test]
fn the_demo_keeps_every_promise() {
    let finished = cli(["demo"]).finish();
    assert_eq!(finished.code(), 0, "{finished}");
    assert!(finished.stdout.ends_with("16 of 16 promises kept\n"), "{finished}");
    for line in [
        "a/1      sees 4 GiB in all",
        "b/1      sees 8 GiB in all",
        "refused, CUDA_ERROR_OUT_OF_MEMORY",
        "signal: 9",
        "at the peak, 2 refusals",
    ] {
        assert!(finished.stdout.contains(line), "{line}\n{finished}");
    }
    assert_eq!(finished.stderr, "");
}

#[test]
fn the_demo_notices_when_nothing_holds_the_programs() {
    // A library that hooks nothing in the place of ours: the card is real enough to show it.
    let finished = cli(["demo", "--preload"]).arg(sim_dir().join("libnvidia-ml.so.1")).finish();
    assert_eq!(finished.code(), 1, "{finished}");
    assert!(finished.stdout.contains("NOT AS PROMISED: a sees a GPU of 4 GiB"), "{finished}");
}
