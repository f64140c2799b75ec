//! Is there a way around? Every name of the driver is hooked, or is marked with why it need not be or cannot be.
//!
//! `docs/coverage.md` is written from the same data: `CUQUOTA_WRITE_DOCS=1 cargo test --test coverage`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use cuquota::hook::Hook;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Functions for which there is one reason.
struct Group {
    library: String,
    enforced: bool,
    reason: String,
    names: Vec<String>,
}

/// A line "LIBRARY MARK: REASON", then lines of names, indented.
fn groups() -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for line in
        read("tests/coverage/marks.txt").lines().filter(|line| !line.starts_with('#') && !line.is_empty())
    {
        if line.starts_with(' ') {
            let group = groups.last_mut().expect("a group before its names");
            group.names.extend(line.split_whitespace().map(str::to_owned));
            continue;
        }
        let (head, reason) = line.split_once(": ").unwrap_or_else(|| panic!("no reason: {line}"));
        let (library, mark) = head.split_once(' ').unwrap_or_else(|| panic!("no mark: {line}"));
        let enforced = match mark {
            "takes-none" => true,
            "not-enforced" => false,
            other => panic!("{other:?} is not a mark; there are takes-none and not-enforced"),
        };
        let (library, reason) = (library.to_owned(), reason.to_owned());
        groups.push(Group { library, enforced, reason, names: Vec::new() });
    }
    groups
}

/// The names that a library exports, as far as they may have to do with memory, with the version they appeared in.
fn names(library: &str) -> BTreeMap<String, u32> {
    match library {
        "libcuda" => {
            let table = read("tests/sim/names.tsv");
            let row = |line: &str| {
                let columns: Vec<&str> = line.split('\t').collect();
                (columns[0].to_owned(), columns[2].parse().expect("a version"))
            };
            table.lines().skip(1).map(row).collect()
        }
        _ => {
            let of_memory =
                |name: &&str| ["Mem", "Process", "Accounting", "Fb"].iter().any(|part| name.contains(part));
            let not = |name: &&str| !name.contains("FBC");
            let table = read("tests/sim/nvml_names.txt");
            table.split_whitespace().filter(of_memory).filter(not).map(|name| (name.to_owned(), 0)).collect()
        }
    }
}

fn symbol(hook: &Hook) -> String {
    hook.info().symbol.to_string_lossy().into_owned()
}

#[test]
fn every_name_of_the_driver_is_hooked_or_says_why_not() {
    let groups = groups();
    let mut complaints = Vec::new();
    for library in ["libcuda", "libnvidia-ml"] {
        let mine = |hook: &&Hook| hook.is_nvml() == (library == "libnvidia-ml");
        let hooked: BTreeSet<String> = Hook::ALL.iter().filter(mine).map(symbol).collect();
        let mut marked = BTreeSet::new();
        for name in groups.iter().filter(|group| group.library == library).flat_map(|group| &group.names) {
            if !marked.insert(name.clone()) {
                complaints.push(format!("{name} has two marks"));
            }
            if hooked.contains(name) {
                complaints.push(format!("{name} is hooked and marked as if it were not"));
            }
        }
        let names = names(library);
        let covered = |name: &&String| hooked.contains(*name) || marked.contains(*name);
        complaints
            .extend(names.keys().filter(|name| !covered(name)).map(|name| format!("{name} has no mark")));
        let unknown = marked.iter().chain(&hooked).filter(|name| !names.contains_key(*name));
        complaints.extend(unknown.map(|name| format!("no {library} exports {name}")));
    }
    assert!(complaints.is_empty(), "src/api.rs and tests/coverage/marks.txt:\n{}", complaints.join("\n"));
}

#[test]
fn every_hook_stands_for_the_version_and_variant_that_the_driver_has() {
    let table = read("tests/sim/names.tsv");
    let rows: BTreeMap<&str, Vec<&str>> = table
        .lines()
        .skip(1)
        .map(|line| line.split('\t').collect::<Vec<_>>())
        .map(|row| (row[0], row))
        .collect();
    for hook in Hook::ALL.iter().filter(|hook| !hook.is_nvml()) {
        let info = hook.info();
        let (name, since) = (symbol(hook), info.since.to_string());
        // The last column: 0 for no variants, 1 for the plain one, 2 for the per-thread one.
        let row = &rows[name.as_str()];
        assert_eq!((row[1], row[2], row[3] == "2"), (info.base, since.as_str(), info.per_thread), "{name}");
    }
}

#[test]
fn the_documentation_is_that_of_the_table() {
    let (path, page) = (root().join("docs/coverage.md"), page());
    if std::env::var_os("CUQUOTA_WRITE_DOCS").is_some() {
        fs::write(&path, &page).expect("docs/coverage.md written");
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == page,
        "docs/coverage.md is not up to date: CUQUOTA_WRITE_DOCS=1 cargo test --test coverage"
    );
}

const INTRODUCTION: &str = "\
# What is covered

Every function that the NVIDIA driver's libraries export, from CUDA 10.2 to 13.x, and what the preload library does about
it. A function is *hooked*, or it *takes no device memory*, or it is *not enforced*, and then this page says why.

This page is written from `src/api.rs` and `tests/coverage/marks.txt` by `CUQUOTA_WRITE_DOCS=1 cargo test --test coverage`,
and a test fails where it is not up to date or a name is missing.

";

const BEYOND: &str = "\
Nor can a preload library hold what does not go through the driver's libraries, or not through the loader:

- memory that **Vulkan, OpenGL, video encoders and other graphics interfaces** take from the card without CUDA;
- a **static program**, in which nothing can be preloaded, and a program built for **another C library** (musl);
- a program that **speaks to the device files itself**;
- a program that was started **without the library**: `/etc/ld.so.preload` leaves no such programs, `LD_PRELOAD` does.

`cuquota doctor` shows for a container which of these apply.
";

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    let groups = groups();
    for (library, title) in
        [("libcuda", "CUDA (`libcuda.so.1`)"), ("libnvidia-ml", "NVML (`libnvidia-ml.so.1`)")]
    {
        let mine = |hook: &&Hook| hook.is_nvml() == (library == "libnvidia-ml");
        let of = |enforced: bool| {
            groups.iter().filter(move |group| group.library == library && group.enforced == enforced)
        };
        let count = |enforced: bool| of(enforced).map(|group| group.names.len()).sum::<usize>();
        let hooked: Vec<&Hook> = Hook::ALL.iter().filter(mine).collect();
        let all = names(library).len();
        let what =
            if library == "libcuda" { "names" } else { "names that have to do with memory or processes" };
        let _ = writeln!(
            page,
            "## {title}\n\nOf {all} {what}, {} are hooked, {} take no device memory, {} are not enforced.\n",
            hooked.len(),
            count(true),
            count(false)
        );
        let _ = writeln!(page, "### Hooked\n\n| function | since | what it does to memory |\n|---|---|---|");
        for hook in hooked {
            let info = hook.info();
            let since = match info.since {
                0 => String::new(),
                version => format!("{}.{}", version / 1000, version % 1000 / 10),
            };
            let _ = writeln!(page, "| `{}` | {since} | {} |", symbol(hook), hook.effect());
        }
        page.push('\n');
        for (enforced, heading) in [(true, "Take no device memory"), (false, "Not enforced")] {
            if count(enforced) > 0 {
                let _ = writeln!(page, "### {heading}\n");
            }
            for group in of(enforced) {
                let names: Vec<String> = group.names.iter().map(|name| format!("`{name}`")).collect();
                let _ = writeln!(
                    page,
                    "**{}{}.** {}\n",
                    group.reason[..1].to_uppercase(),
                    &group.reason[1..],
                    names.join(", ")
                );
            }
        }
    }
    page.push_str("## Beyond the libraries\n\n");
    page.push_str(BEYOND);
    page
}
