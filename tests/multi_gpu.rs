//! Several cards: the quota follows the card, whatever the program's environment makes of their numbers.

mod common;

use common::client::Client;
use common::programs::c_program;
use common::skip::skip;
use common::{Container, Machine, Run};

/// 8 GiB at bus 1, 24 GiB at bus 2, 16 GiB at bus 3; CUDA, fastest first, counts them 2, 3, 1.
fn three() -> Machine {
    Machine::new("8GiB,24GiB,16GiB")
}

/// Each card by another kind of name; what none of them fits may have 512 MiB.
const BY_PLACE: &str = "limit = \"512MiB\"\n[[gpu]]\nindex = 0\nlimit = \"1GiB\"\n[[gpu]]\nindex = 1\nlimit = \"2GiB\"\n\
                        [[gpu]]\nid = \"03:00.0\"\nlimit = \"3GiB\"\n";

/// What the program `visible`, told `words`, says.
#[track_caller]
fn sees(machine: &Machine, container: &Container, words: &[&str], lines: &[&str]) {
    let said = visible(machine, container, words);
    assert_eq!(said.stdout.lines().collect::<Vec<_>>(), lines, "{words:?}: {said}");
}

fn visible(machine: &Machine, container: &Container, words: &[&str]) -> common::Finished {
    Run::new(c_program("visible"))
        .on(machine)
        .within(container)
        .args(words.iter().copied())
        .finish()
        .success()
}

#[test]
fn a_place_in_bus_order_is_that_among_all_cards() {
    let (machine, container) = (three(), Container::new(BY_PLACE));
    let sees = |words: &[&str], lines: &[&str]| sees(&machine, &container, words, lines);
    sees(&[], &["cuda 2048 3072 1024"]);
    sees(&["CUDA_DEVICE_ORDER=PCI_BUS_ID"], &["cuda 1024 2048 3072"]);
    sees(&["CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=1"], &["cuda 2048"]);
    sees(&["CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=2,0"], &["cuda 3072 1024"]);
    sees(&["CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=1,9,0"], &["cuda 2048"]);
}

#[test]
fn what_the_environment_says_after_the_driver_has_started_changes_nothing() {
    let (machine, container) = (three(), Container::new(BY_PLACE));
    let late = ["CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=1", "init", "CUDA_VISIBLE_DEVICES="];
    sees(&machine, &container, &late, &["cuda 2048"]);
    let late = ["init", "CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=1"];
    sees(&machine, &container, &late, &["cuda 2048 3072 1024"]);
}

#[test]
fn a_place_that_cannot_be_known_gets_the_strictest_limit_that_may_be_meant() {
    let (machine, container) = (three(), Container::new(BY_PLACE));
    // The fastest alone: card 1, but the program can show that to nobody.
    sees(&machine, &container, &["CUDA_VISIBLE_DEVICES=0"], &["cuda 512"]);
    // One card before it at the least: not place 0. The last is surely named by its bus, but may be place 1 as well.
    let generous = Container::new(&BY_PLACE.replace("512MiB", "7GiB"));
    sees(&machine, &generous, &["CUDA_VISIBLE_DEVICES=1,0"], &["cuda 2048 1024"]);
    // Without a limit for all, a card that may be none of those named may not be used.
    let only = Container::new("[[gpu]]\nindex = 1\nlimit = \"2GiB\"\n");
    sees(&machine, &only, &["CUDA_VISIBLE_DEVICES=0"], &["cuda 0"]);
    sees(&machine, &only, &[], &["cuda 2048 0 0"]);
}

#[test]
fn nvml_tells_the_place_where_the_program_uses_it() {
    let (machine, container) = (three(), Container::new(BY_PLACE));
    sees(&machine, &container, &["nvml", "CUDA_VISIBLE_DEVICES=0"], &["nvml 1024 2048 3072", "cuda 2048"]);
    // Its indices are never taken for CUDA's ordinals, nor the other way round.
    sees(&machine, &container, &["init", "nvml"], &["nvml 1024 2048 3072", "cuda 2048 3072 1024"]);
    // A card that CUDA met first is the same one to NVML.
    sees(
        &machine,
        &container,
        &["CUDA_VISIBLE_DEVICES=1,0", "init", "nvml"],
        &["nvml 1024 2048 3072", "cuda 3072 2048"],
    );
}

#[test]
fn the_kernel_module_tells_the_place() {
    let (machine, container) = (three(), Container::new(BY_PLACE));
    let may = |script: &str| Run::new("unshare").args(["-m", "sh", "-c", script]).finish().status.success();
    if !may("mount -t tmpfs none /proc/driver") {
        return skip(
            "needs root and a mount namespace, for a /proc/driver/nvidia to show (util-linux, --privileged)",
        );
    }
    let script = "mount -t tmpfs none /proc/driver && for bus in 1 2 3; do mkdir -p /proc/driver/nvidia/gpus/0000:0$bus:00.0; done \
                  && exec \"$0\" \"$@\"";
    for (words, line) in
        [(["CUDA_VISIBLE_DEVICES=0"], "cuda 2048\n"), (["CUDA_VISIBLE_DEVICES=2,1"], "cuda 1024 3072\n")]
    {
        let program = c_program("visible");
        let run = Run::new("unshare").args(["-m", "sh", "-c", script]).arg(program).args(words);
        let said = run.on(&machine).within(&container).finish().success();
        assert_eq!(said.stdout, line, "{words:?}: {said}");
    }
}

/// The UUIDs of a machine's cards, in bus order, as a program without us sees them.
fn uuids(machine: &Machine) -> Vec<String> {
    let run = Client::run().on(machine).env("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    let devices = Client::start(&run).ask("devices")["devices"].clone();
    let text = |device: &serde_json::Value| {
        let bytes: Vec<String> = device["uuid"]
            .as_array()
            .expect("16 bytes")
            .iter()
            .map(|byte| format!("{:02x}", byte.as_u64().expect("a byte")))
            .collect();
        let part = |range: std::ops::Range<usize>| bytes[range].concat();
        format!("GPU-{}-{}-{}-{}-{}", part(0..4), part(4..6), part(6..8), part(8..10), part(10..16))
    };
    devices.as_array().expect("a list").iter().map(text).collect()
}

#[test]
fn an_entry_by_uuid_follows_its_card_through_every_list() {
    let machine = three();
    let uuids = uuids(&machine);
    let quota = format!(
        "limit = \"512MiB\"\n[[gpu]]\nid = \"{}\"\nlimit = \"2GiB\"\n[[gpu]]\nid = \"{}\"\nlimit = \"3GiB\"\n",
        &uuids[1][..12],
        uuids[2].to_uppercase(),
    );
    let container = Container::new(&quota);
    sees(&machine, &container, &[], &["cuda 2048 3072 512"]);
    let list = |entries: &[&str]| format!("CUDA_VISIBLE_DEVICES={}", entries.join(","));
    sees(&machine, &container, &[&list(&[&uuids[2], &uuids[0][..12], "0"])], &["cuda 3072 512 2048"]);
    sees(&machine, &container, &[&list(&[&uuids[1][..12]])], &["cuda 2048"]);
}

#[test]
fn a_beginning_that_fits_several_cards_fails_closed_once_they_are_seen() {
    // Of seventeen cards two begin with the same digit.
    let machine = Machine::new(&["2GiB"; 17].join(","));
    let uuids = uuids(&machine);
    let alike = |a: &&String| uuids.iter().filter(|b| a[..5] == b[..5]).count() > 1;
    let beginning = &uuids.iter().find(alike).expect("two alike")[..5];
    let container = Container::new(&format!("limit = 1\n[[gpu]]\nid = \"{beginning}\"\nlimit = 2\n"));
    let said = visible(&machine, &container, &[]);
    assert_eq!(said.stdout, "init 800\n");
    assert!(said.stderr.lines().count() == 1 && said.stderr.contains("fits several GPUs"), "{said}");
}

#[test]
fn a_mig_instance_goes_by_its_own_uuid() {
    let machine = Machine::new("8GiB,mig=1");
    let instance = uuids(&machine).remove(0);
    let digits = instance.trim_start_matches("GPU-");
    for (kind, total) in [("MIG", "cuda 2048"), ("GPU", "cuda 1024")] {
        let quota = format!("limit = \"1GiB\"\n[[gpu]]\nid = \"{kind}-{digits}\"\nlimit = \"2GiB\"\n");
        sees(&machine, &Container::new(&quota), &[], &[total]);
        let listed = format!("CUDA_VISIBLE_DEVICES=MIG-{digits}");
        sees(&machine, &Container::new(&quota), &[&listed], &[total]);
    }
}
