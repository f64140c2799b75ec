//! What is not a matter of time: pointers, the library's size, memory.

use cuquota::hook::Hook;

use crate::Bench;
use crate::common::preload;
use crate::duel::Duel;
use crate::table::{Row, Unit};

/// Every function that is not hooked is handed out as it is, so that calling it costs exactly nothing: the pointers
/// of all names that the driver exports, by `dlsym` and by `cuGetProcAddress`, compared.
pub fn pointers(bench: &Bench, report: &mut dyn FnMut(Row)) {
    let container = bench.container();
    let mut duel = Duel::new(&bench.machine, &container);
    let names = names();
    let (bare, held) = (duel.bare.pointers(&names), duel.held.pointers(&names));
    assert_eq!((bare.len(), held.len()), (names.len(), names.len()), "an answer for every name");
    let (mut same, mut different, mut unhooked) = (0, 0, Vec::new());
    for ((name, bare), held) in names.iter().zip(&bare).zip(&held) {
        match (is_hooked(name), bare == held) {
            (false, true) => same += 1,
            (false, false) => unhooked.push(format!("{bare} is {held}")),
            (true, true) => panic!("{name} is hooked, and yet handed out: {held}"),
            (true, false) => different += 1,
        }
    }
    unhooked.iter().for_each(|difference| println!("    {difference}"));
    let what =
        format!("not hooked: of {} pointers differ ({different} hooked ones do)", same + unhooked.len());
    report(Row::counted(what, Unit::Pointers, 0.0, None, unhooked.len() as f64));
}

/// What is asked for: symbols by `dlsym`, and base names, marked `@`, by `cuGetProcAddress`.
fn names() -> Vec<String> {
    let cuda = include_str!("../../tests/sim/names.tsv").lines().skip(1);
    let mut names = Vec::new();
    for line in cuda {
        let mut columns = line.split('\t');
        names.extend(columns.next().map(str::to_string));
        names.extend(columns.next().filter(|base| *base != "-").map(|base| format!("@{base}")));
    }
    names.extend(include_str!("../../tests/sim/nvml_names.txt").lines().map(str::to_string));
    names.sort();
    names.dedup();
    names
}

fn is_hooked(name: &str) -> bool {
    let mut hooks = Hook::ALL.iter().map(|hook| hook.info());
    match name.strip_prefix('@') {
        Some(base) => hooks.any(|info| info.base == base),
        None => hooks.any(|info| info.symbol.to_bytes() == name.as_bytes()),
    }
}

/// The library's size.
pub fn size(_: &Bench, report: &mut dyn FnMut(Row)) {
    let bytes = std::fs::metadata(preload()).expect("the library").len();
    report(Row::counted("size of libcuquota.so", Unit::KiB, 1024.0, None, bytes as f64 / 1024.0));
}

/// Memory of a program that holds a million allocations, and of one that has made and freed a million.
pub fn memory(bench: &Bench, report: &mut dyn FnMut(Row)) {
    const LIVE: usize = 1_000_000;
    for (bytes, size) in [(512, "512 B"), (2 << 20, "2 MiB")] {
        let container = bench.container();
        let mut duel = Duel::new(&bench.machine, &container);
        let mut each = |question: &str| {
            let growth = [&mut duel.bare, &mut duel.held].map(|meter| {
                let before = meter.number("rss");
                meter.ask(question);
                (meter.number("rss") - before) / LIVE as f64
            });
            (growth[0], growth[1])
        };
        let (bare, held) = each(&format!("live {LIVE} {bytes}"));
        let what = format!("memory of a live allocation of {size}");
        report(Row::counted(what, Unit::Bytes, 64.0, Some(bare), held));
    }
    let container = bench.container();
    let mut duel = Duel::new(&bench.machine, &container);
    let growth = [&mut duel.bare, &mut duel.held].map(|meter| {
        meter.ask("live 1000 512");
        meter.ask("swaps 10000 512");
        let before = meter.number("rss");
        meter.ask("swaps 500000 512");
        meter.ask("pairs 500000 512");
        (meter.number("rss") - before) / 1024.0
    });
    let what = "growth over 1,000,000 alloc+free";
    report(Row::counted(what, Unit::KiB, 64.0, Some(growth[0]), growth[1]));
}
