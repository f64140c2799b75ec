//! Every way to reach the driver leads through the library, and a way that finds nothing still finds nothing.

use crate::common::programs::{c_build, c_library, c_program};
use crate::common::{Machine, Run, preload};
use crate::harness::{four_gib, lines, linked, needs_the_simulator, one_card};

const ROUTES: [&str; 7] =
    ["dlsym", "default", "next", "dlsym-of-dlsym", "procaddr", "procaddr_v2", "procaddr-of-procaddr"];
const COMMANDS: [&str; 9] = [
    "init",
    "device 0",
    "primary",
    "info",
    "alloc a 5GiB",
    "alloc b 3GiB",
    "alloc-async c 1GiB",
    "free b",
    "info",
];
const ANSWERS: [&str; 9] = [
    "init -> 0",
    "device 0 -> 0",
    "primary -> 0",
    "info -> 0 free=3796MiB total=4096MiB",
    "alloc a 5GiB -> 2",
    "alloc b 3GiB -> 0",
    "alloc-async c 1GiB -> 2",
    "free b -> 0",
    "info -> 0 free=3796MiB total=4096MiB",
];

#[test]
fn every_route_is_limited_from_the_first_allocation() {
    if needs_the_simulator() {
        return;
    }
    let (machine, container) = (one_card(), four_gib());
    for route in ROUTES {
        let run = Run::new(c_program("harness")).on(&machine).within(&container);
        assert_eq!(lines(run.env("HARNESS_ROUTE", route).args(COMMANDS).finish()), ANSWERS, "{route}");
    }
    for (route, now) in [("link", ""), ("link", "1"), ("dlsym", ""), ("next", "1")] {
        let run = Run::new(linked()).on(&machine).within(&container).env("LD_BIND_NOW", now);
        assert_eq!(
            lines(run.env("HARNESS_ROUTE", route).args(COMMANDS).finish()),
            ANSWERS,
            "linked, {route}"
        );
    }
}

#[test]
fn inner_addresses_that_equal_no_export_are_limited_too() {
    if needs_the_simulator() {
        return;
    }
    let (machine, container) = (Machine::new("16GiB,procaddr=inner"), four_gib());
    for route in ROUTES {
        let run = Run::new(c_program("harness")).on(&machine).within(&container);
        assert_eq!(lines(run.env("HARNESS_ROUTE", route).args(COMMANDS).finish()), ANSWERS, "{route}");
    }
}

#[test]
fn a_plugin_linked_against_the_driver_is_limited_however_it_is_opened() {
    if needs_the_simulator() {
        return;
    }
    // Python extension modules are such plug-ins: opened with local scope, their driver is in nobody else's. Those
    // opened with RTLD_DEEPBIND look into their own driver first, and those in a namespace of their own see no other.
    let linked = ["-shared", "-fPIC", "-Wl,--no-as-needed", "-l:libcuda.so.1"];
    for binding in ["-Wl,-z,now", "-Wl,-z,lazy"] {
        let plugin = c_build("plugin", &[linked.as_slice(), &[binding]].concat());
        for way in [&[][..], &["deep"], &["deep", "lazy"], &["namespace"], &["namespace", "lazy"]] {
            let (machine, container) = (one_card(), four_gib());
            let run = Run::new(c_program("plugin_host")).on(&machine).within(&container).arg(&plugin);
            assert_eq!(
                lines(run.args(way.to_vec()).finish()),
                [
                    "direct 2",
                    "own dlsym 2",
                    "opened 2",
                    "by the driver's own look-up 2",
                    "within the budget 0"
                ],
                "{binding} {way:?}"
            );
        }
    }
}

#[test]
fn a_plugin_that_only_its_opener_can_find_is_limited_too() {
    if needs_the_simulator() {
        return;
    }
    // The loader looks for it in the opener's own run path, so it must see who opens it.
    let plugin = c_build("plugin", &["-shared", "-fPIC", "-Wl,--no-as-needed", "-l:libcuda.so.1"]);
    let (dir, name) = (plugin.parent().unwrap().display(), plugin.file_name().unwrap().to_owned());
    for tags in ["--enable-new-dtags", "--disable-new-dtags"] {
        let host = c_build("plugin_host", &[&format!("-Wl,{tags},-rpath,{dir}")]);
        for way in [&[][..], &["deep"], &["deep", "lazy"]] {
            let (machine, container) = (one_card(), four_gib());
            let run = Run::new(&host).on(&machine).within(&container).arg(&name).args(way.to_vec());
            let said = lines(run.finish());
            assert_eq!(said[..3], ["direct 2", "own dlsym 2", "opened 2"], "{tags} {way:?}");
        }
    }
}

#[test]
fn a_tool_that_the_driver_loads_is_limited_like_the_program() {
    if needs_the_simulator() {
        return;
    }
    let tool = c_build("plugin", &["-shared", "-fPIC", "-Wl,--no-as-needed", "-l:libcuda.so.1"]);
    let (machine, container) = (one_card(), four_gib());
    let run = Run::new(c_program("harness")).on(&machine).within(&container);
    // It runs inside the program's cuInit, and what it keeps counts.
    let run = run.env("CUDA_INJECTION64_PATH", tool).args(["init", "device 0", "primary", "alloc a 3GiB"]);
    assert_eq!(
        lines(run.finish()),
        [
            "direct 2",
            "own dlsym 2",
            "opened 2",
            "by the driver's own look-up 2",
            "within the budget 0",
            "init -> 0",
            "device 0 -> 0",
            "primary -> 0",
            "alloc a 3GiB -> 2"
        ]
    );
}

#[test]
fn two_copies_of_the_driver_are_each_served_by_their_own_functions() {
    if needs_the_simulator() {
        return;
    }
    let (machine, container) = (one_card(), four_gib());
    let copies = crate::common::temp_dir("copies");
    let copy = |name: &str| {
        let path = copies.path().join(name);
        std::fs::copy(crate::common::sim_dir().join("libcuda.so.1"), &path).unwrap();
        path
    };
    let run = Run::new(c_program("two_drivers")).on(&machine).within(&container);
    assert_eq!(
        lines(run.arg(copy("libcuda.so.1")).arg(copy("another.so")).finish()),
        [
            "first: 5 GiB 2, 2 GiB 0, asked of it 1, of the other 0",
            "second: 2 GiB 2, 1 GiB 0, asked of it 1, of the other 0",
            "freed: first 0, second 0, free again 3496 MiB",
            "pool 0, 512 MiB 0, released 0, destroyed 0, free 3284 MiB",
        ]
    );
}

#[test]
fn copies_of_the_driver_that_cannot_be_told_apart_are_refused() {
    if needs_the_simulator() {
        return;
    }
    let (copies, machine, container) = (crate::common::temp_dir("copies"), one_card(), four_gib());
    for count in [6, 9] {
        let mut run = Run::new(c_program("many_drivers")).on(&machine).within(&container);
        for at in 0..count {
            let path = copies.path().join(format!("copy{count}.{at}.so"));
            std::fs::copy(crate::common::sim_dir().join("libcuda.so.1"), &path).unwrap();
            run = run.arg(path);
        }
        let said = run.finish();
        assert_eq!(
            (said.code(), said.stdout.trim()),
            (0, "init 800, retain 800, set 3, 5 GiB 800"),
            "{said}"
        );
        assert_eq!(said.stderr.lines().count(), 1, "{said}");
        assert!(said.stderr.contains("is refused in one more copy of the driver"), "{said}");
    }
}

#[test]
fn a_thread_that_jumps_out_of_a_call_is_held_afterwards() {
    if needs_the_simulator() {
        return;
    }
    let (machine, container) = (one_card(), four_gib());
    let run = Run::new(c_program("jump")).on(&machine).within(&container).finish();
    assert_eq!((run.code(), run.stdout.trim()), (0, "5 GiB 2, 1 GiB 0"), "{run}");
}

#[test]
fn a_dependency_of_a_plug_in_finds_what_that_was_linked_against() {
    if needs_the_simulator() {
        return;
    }
    let (machine, container, dependency) = (one_card(), four_gib(), c_library("dependency"));
    let dependency = dependency.to_str().unwrap();
    for order in [["-lcuda", dependency], [dependency, "-lcuda"]] {
        let flags = ["-shared", "-fPIC", "-Wl,--no-as-needed", order[0], order[1]];
        let run = Run::new(c_program("dependent_host")).on(&machine).within(&container);
        let held = run.arg(c_build("dependent", &flags)).finish();
        assert_eq!((held.code(), held.stdout.trim()), (0, "none of the name 1, 5 GiB 2, 1 GiB 0"), "{held}");
    }
}

#[test]
fn other_interposers_keep_working_before_and_behind_the_library() {
    if needs_the_simulator() {
        return;
    }
    let other = c_library("interposer");
    let (machine, container) = (one_card(), four_gib());
    let ours = crate::common::preload();
    let list = |first: &std::path::Path, second: &std::path::Path| {
        format!("{}:{}", first.display(), second.display())
    };
    for preloads in [list(&ours, &other), list(&other, &ours)] {
        for (program, route) in [(linked(), "link"), (linked(), "dlsym"), (c_program("harness"), "dlsym")] {
            let run = Run::new(program).on(&machine).within(&container).env("LD_PRELOAD", &preloads);
            let finished = run.env("HARNESS_ROUTE", route).args(COMMANDS).finish().success();
            let said: Vec<&str> = finished.stdout.lines().collect();
            assert_eq!(said, ANSWERS, "{preloads} {route}");
            assert_eq!(finished.stderr, "interposer: 2 allocations\n", "{preloads} {route}");
        }
    }
}

#[test]
fn dlvsym_finds_hooks_where_it_can_look_into_a_driver() {
    // It finds nothing in libraries that need versions of others without naming their own, as the driver's are.
    let driver =
        c_build("unversioned_driver", &["-shared", "-fPIC", "-nostdlib", "-Wl,-soname,libcuda.so.1"]);
    let container = four_gib();
    let probe = || Run::new(c_program("dlvsym")).arg(&driver);
    assert_eq!(
        lines(probe().within(&container).finish()),
        ["plain: hook", "looked up: hook", "unhooked: driver", "absent: nothing"]
    );
    assert_eq!(
        lines(probe().finish()),
        ["plain: driver", "looked up: driver", "unhooked: driver", "absent: nothing"]
    );
}

#[test]
fn versions_and_flags_get_what_the_driver_answers_them() {
    let container = four_gib();
    let machine = one_card();
    let probe = || Run::new(c_program("procaddr_versions")).on(&machine);
    let bare = lines(probe().finish());
    let within = lines(probe().within(&container).finish());
    // Codes, statuses and which variant it is are the driver's own; only the hooked ones are at other addresses.
    let facts = |said: &[String]| {
        said.iter().map(|line| line.split(" at ").next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(facts(&within), facts(&bare));
    let elsewhere: Vec<&str> =
        within.iter().filter_map(|line| line.split_once(" at hook").map(|(fact, _)| fact)).collect();
    assert!(elsewhere.iter().any(|fact| fact.starts_with("cuMemAlloc@3020")), "{within:#?}");
    assert!(
        !elsewhere.iter().any(|fact| fact.starts_with("cuLaunchKernel")),
        "not hooked, so untouched: {within:#?}"
    );
    assert!(!bare.iter().any(|line| line.contains(" at hook")), "{bare:#?}");
}

#[test]
fn a_name_that_no_loaded_driver_has_stays_unfound() {
    let container = four_gib();
    let run = |program: &str| {
        let bare = lines(Run::new(c_program(program)).finish());
        let within = lines(Run::new(c_program(program)).within(&container).finish());
        assert_eq!(within, bare, "{program}");
        bare
    };
    assert_eq!(run("weak"), ["cuInit absent, cuMemAlloc_v2 absent, table absent"]);
    assert!(run("lookups").iter().any(|line| line == "cuInit by default: absent"));
}

#[test]
fn another_librarys_own_function_of_a_hooked_name_is_left_alone() {
    let container = four_gib();
    let namesake = c_library("namesake");
    let host = c_build("namesake_host", &["-Wl,--no-as-needed", namesake.to_str().unwrap()]);
    let said = lines(Run::new(&host).within(&container).arg(&namesake).finish());
    assert_eq!(said, lines(Run::new(&host).arg(&namesake).finish()));
    assert_eq!(said, ["linked 4711", "dlsym 4711", "next 4711"]);
}

#[test]
fn foreign_look_ups_find_what_they_would_find_without_the_library() {
    let container = four_gib();
    // Two libraries define the same function, and the first calls on to the second by RTLD_NEXT, from eight threads.
    for level in ["-O0", "-O2"] {
        let second = c_build("chain_second", &["-shared", "-fPIC", level]);
        let first = c_build("chain_first", &["-shared", "-fPIC", level, second.to_str().unwrap()]);
        let host = c_build(
            "chain_host",
            &[level, "-Wl,--no-as-needed", first.to_str().unwrap(), second.to_str().unwrap()],
        );
        let said = lines(Run::new(&host).within(&container).finish());
        assert_eq!(said, lines(Run::new(&host).finish()), "{level}");
        assert_eq!(said, ["first then second"; 16], "{level}");
    }
}

#[test]
fn a_program_that_checks_dlerror_after_a_look_up_finds_none() {
    let (machine, container) = (one_card(), four_gib());
    let said = lines(Run::new(c_program("dlerror")).on(&machine).within(&container).finish());
    assert_eq!(said, lines(Run::new(c_program("dlerror")).on(&machine).finish()));
}

#[test]
fn the_dynamic_symbols_are_exactly_the_table() {
    let output = std::process::Command::new("nm").args(["-D", "--defined-only"]).arg(preload()).output();
    let Ok(output) = output else {
        return crate::common::skip::skip("nm is not there: install binutils");
    };
    let mut exported: Vec<String> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| line.rsplit(' ').next().unwrap().to_owned())
        .collect();
    let table = cuquota::hook::Hook::ALL.iter().map(|hook| hook.info().symbol.to_str().unwrap().to_owned());
    let mut expected: Vec<String> =
        table.chain(["dlsym", "dlvsym", "dlopen", "dlmopen"].map(str::to_owned)).collect();
    exported.sort();
    expected.sort();
    assert_eq!(exported, expected);
}
