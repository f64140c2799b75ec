//! The simulated machine: its spec, the identity of its cards, and which of them a process sees.

mod common;

use common::programs::c_program;
use common::{Machine, Run};

/// What `identity` printed on this machine, by the first word of each line.
struct Seen(String);

impl Seen {
    fn with(machine: &Machine, env: &[(&str, &str)]) -> Seen {
        let run = env.iter().fold(Run::new(c_program("identity")).on(machine), |run, (k, v)| run.env(*k, *v));
        Seen(run.finish().success().stdout)
    }

    fn lines<'a>(&'a self, first: &'a str) -> impl Iterator<Item = Vec<&'a str>> {
        self.0.lines().map(|l| l.split(' ').collect::<Vec<_>>()).filter(move |words| words[0] == first)
    }

    /// The sizes of the devices that CUDA lists, in GiB, in the order of their ordinals.
    fn cuda_gib(&self) -> Vec<u64> {
        self.lines("cuda").map(|w| w[5].parse::<u64>().expect("bytes") >> 30).collect()
    }

    fn cuda_uuids(&self) -> Vec<String> {
        self.lines("cuda").map(|w| w[3].to_string()).collect()
    }

    fn nvml_uuids(&self) -> Vec<String> {
        self.lines("nvml").map(|w| w[3].to_string()).collect()
    }

    fn init(&self) -> i32 {
        self.lines("cuInit").next().expect("cuInit's answer")[1].parse().expect("a code")
    }
}

#[test]
fn cuda_counts_the_largest_first_and_nvml_in_bus_order() {
    let machine = Machine::new("8GiB,24GiB,16GiB");
    let seen = Seen::with(&machine, &[]);
    assert_eq!(seen.cuda_gib(), [24, 16, 8]);
    let (cuda, nvml) = (seen.cuda_uuids(), seen.nvml_uuids());
    assert_eq!([&cuda[2], &cuda[0], &cuda[1]], [&nvml[0], &nvml[1], &nvml[2]]);
    let buses: Vec<_> = seen.lines("cuda").map(|w| w[4].to_string()).collect();
    assert_eq!(buses, ["0000:02:00.0", "0000:03:00.0", "0000:01:00.0"]);
    assert!(seen.0.contains("\"Simulated GPU 24GiB\" by bus 0 0\n"), "{}", seen.0);
    assert_eq!(seen.0.matches("found again").count(), 3, "{}", seen.0);
    assert!(
        seen.0.contains(
            "count before nvmlInit 1
"
        ),
        "{}",
        seen.0
    );
}

#[test]
fn cuda_device_order_can_follow_the_bus() {
    let seen = Seen::with(&Machine::new("8GiB,24GiB"), &[("CUDA_DEVICE_ORDER", "PCI_BUS_ID")]);
    assert_eq!(seen.cuda_gib(), [8, 24]);
    assert_eq!(seen.cuda_uuids(), seen.nvml_uuids());
}

#[test]
fn uuids_are_the_machines_own_and_stay() {
    let machine = Machine::new("8GiB,8GiB,8GiB");
    let first = Seen::with(&machine, &[]).nvml_uuids();
    assert_eq!(first, Seen::with(&machine, &[]).nvml_uuids());
    let mut heads: Vec<_> = first.iter().map(|u| &u[..12]).collect();
    heads.sort_unstable();
    heads.dedup();
    assert_eq!(heads.len(), 3, "the first eight digits tell the cards of a machine apart: {first:?}");
    assert_ne!(first, Seen::with(&Machine::new("8GiB,8GiB,8GiB"), &[]).nvml_uuids());
}

#[test]
fn visible_devices_select_and_order_the_ordinals() {
    let machine = Machine::new("8GiB,24GiB,16GiB");
    let uuids = Seen::with(&machine, &[]).cuda_uuids(); // 24, 16, 8
    let prefix = &uuids[2][..12];
    let lower = uuids[1].to_lowercase();
    for (list, want) in [
        ("2,0", &[8, 24][..]),
        ("1", &[16]),
        (prefix, &[8]),
        (&format!("{lower},0"), &[16, 24]),
        ("0,7,1", &[24]),
        ("0,-1,1", &[24]),
        ("0, 1", &[24, 16]),
        ("1,x", &[16]),
    ] {
        let seen = Seen::with(&machine, &[("CUDA_VISIBLE_DEVICES", list)]);
        assert_eq!(seen.cuda_gib(), want, "CUDA_VISIBLE_DEVICES={list}");
        assert_eq!(seen.nvml_uuids().len(), 3, "NVML does not look at it");
    }
    for none in ["", "-1", "GPU-", "3", "1,1", "MIG-1"] {
        let seen = Seen::with(&machine, &[("CUDA_VISIBLE_DEVICES", none)]);
        assert_eq!(seen.init(), 100, "CUDA_VISIBLE_DEVICES={none}: no device");
    }
}

#[test]
fn a_spec_that_is_not_understood_names_the_part() {
    for (spec, part) in [
        ("16gib", "\"16gib\""),
        ("16GiB,speed=1", "\"speed=1\""),
        ("16GiB,", "\"\""),
        ("driver=13", "\"driver=13\""),
        ("16GiB,context=-1", "\"context=-1\""),
        ("delay=1h", "\"delay=1h\""),
        ("4096", "\"4096\""),
        ("2TiB", "\"2TiB\""),
        ("nvml=no", "\"nvml=no\""),
    ] {
        let run = Run::new(c_program("identity")).on(&Machine::new(spec)).finish().success();
        assert!(run.stdout.starts_with("cuInit 802\n"), "{spec}: {run}");
        let lines: Vec<_> = run.stderr.lines().filter(|l| l.starts_with("simgpu: SIMGPU_SPEC: ")).collect();
        assert!(lines.iter().all(|l| l.contains(part)), "{spec}: {run}");
        // One from each library.
        assert_eq!(lines.len(), 2, "{spec}: {run}");
    }
}

#[test]
fn nvml_can_refuse_its_memory_figures() {
    for (word, code) in [("notsupported", "3"), ("nopermission", "4")] {
        let seen = Seen::with(&Machine::new(&format!("16GiB,nvml={word}")), &[]);
        let nvml: Vec<_> = seen.lines("nvml").collect();
        assert_eq!(nvml[0][nvml[0].len() - 3..nvml[0].len() - 2], [code], "{}", seen.0);
    }
}
