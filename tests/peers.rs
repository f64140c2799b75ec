//! Containers that share one card: each has a reserve and a limit, reads what its neighbours say, and writes only what is
//! its own. Real processes on one simulated card.

mod common;
#[path = "peers/hostile.rs"]
mod hostile;
mod ledger_support;
#[path = "peers/node.rs"]
mod node;
#[path = "peers/soak.rs"]
mod soak;
#[path = "peers/waiting.rs"]
mod waiting;

use std::time::Duration;

use common::{GIB, MIB, client::Client, driver_is_real, skip::skip};
use cuquota::ledger::Snapshot;
use node::{Layout, Node, Program};

workers!(run);

fn run(role: &str, dir: &std::path::Path) {
    assert!(ledger_support::stranger::run(role, dir), "no such role: {role}");
}

/// The real card has a size of its own.
fn needs_the_simulator() -> bool {
    let real = driver_is_real();
    if real {
        skip("containers that share a card are tried on a simulated one: unset CUQUOTA_TEST_DRIVER");
    }
    real
}

#[test]
fn a_container_bursts_only_into_what_its_neighbours_are_not_promised() {
    if needs_the_simulator() {
        return;
    }
    for layout in [Layout::Mounted, Layout::Linked] {
        let node = Node::new("16GiB,context=256MiB", layout);
        let a = node.container("a", "limit = \"100%\"\nreserve = \"6GiB\"\n");
        let b = node.container("b", "limit = \"100%\"\n");
        let (mut in_a, mut in_b) = (a.start(), b.start());
        // The context is part of what b holds.
        assert_eq!(in_b.take_chunks(GIB), 9, "{layout:?}");
        assert_eq!(in_b.free(), 10 * GIB - 9 * GIB - 256 * MIB);
        assert_eq!(in_b.take_chunks(256 * MIB), 3);
        assert_eq!((in_b.free(), in_b.take_chunks(2 * MIB)), (0, 0));
        // The neighbour has its reserve to the last block, and nothing more.
        assert_eq!(in_a.free(), 6 * GIB - 256 * MIB);
        assert!(in_a.take(6 * GIB - 256 * MIB));
        assert_eq!((in_a.free(), in_a.take_chunks(2 * MIB)), (0, 0));
        // What one gives back beyond its reserve is anybody's.
        in_b.give_back();
        assert_eq!(in_a.free(), 256 * MIB);
        assert!(in_a.take(256 * MIB) && !in_b.take(2 * MIB));
    }
}

#[test]
fn a_reserve_is_kept_for_a_container_that_has_not_started_yet() {
    if needs_the_simulator() {
        return;
    }
    let node = Node::new("16GiB,context=256MiB", Layout::Mounted);
    let _a = node.container("a", "limit = \"8GiB\"\nreserve = \"25%\"\n");
    let b = node.container("b", "limit = \"100%\"\nreserve = \"1GiB\"\n");
    let mut in_b = b.start();
    assert_eq!(in_b.free(), 12 * GIB - 256 * MIB);
    assert!(!in_b.take(12 * GIB) && in_b.take(12 * GIB - 256 * MIB));
}

#[test]
fn a_container_that_comes_or_goes_or_is_promised_something_else_is_noticed_within_a_second() {
    if needs_the_simulator() {
        return;
    }
    let node = Node::new("16GiB,context=256MiB", Layout::Mounted);
    let a = node.container("a", "limit = \"100%\"\n");
    let mut in_a = a.start();
    assert_eq!(in_a.free(), 16 * GIB - 256 * MIB);
    let b = node.container("b", "limit = \"8GiB\"\nreserve = \"4GiB\"\n");
    in_a.until_free(12 * GIB - 256 * MIB);
    b.write_quota("limit = \"8GiB\"\nreserve = \"6GiB\"\n");
    in_a.until_free(10 * GIB - 256 * MIB);
    a.write_quota("limit = \"100%\"\nreserve = \"10.5GiB\"\n");
    in_a.until_free(10 * GIB + 512 * MIB - 256 * MIB);
    node.remove("b");
    in_a.until_free(16 * GIB - 256 * MIB);
}

#[test]
fn three_containers_with_reserves_share_what_is_left_and_a_killed_one_frees_its_share_within_a_second() {
    if needs_the_simulator() {
        return;
    }
    let node = Node::new("16GiB,context=256MiB", Layout::Mounted);
    let quota = |reserve: &str| format!("limit = \"100%\"\nreserve = \"{reserve}\"\n");
    let (a, b, c) = (
        node.container("a", &quota("4GiB")),
        node.container("b", &quota("4GiB")),
        node.container("c", &quota("2GiB")),
    );
    let (mut in_a, mut in_b, mut in_c) = (a.start(), b.start(), c.start());
    // Two processes of one container share its part.
    let mut also_in_a = a.start();
    assert!(in_a.take(2 * GIB) && also_in_a.take(7 * GIB + 512 * MIB));
    assert!(!in_a.take(2 * MIB) && !also_in_a.take(2 * MIB));
    // All that is left is reserved, and can be had.
    assert!(in_b.take(4 * GIB - 256 * MIB) && in_c.take(2 * GIB - 256 * MIB));
    assert!(!in_b.take(2 * MIB) && !in_c.take(2 * MIB));
    also_in_a.kill();
    let freed = 7 * GIB + 512 * MIB + 256 * MIB;
    // What a does not use of its reserve is still its own.
    in_b.until_free(freed - (4 * GIB - 2 * GIB - 256 * MIB));
    assert!(in_c.take(freed - (4 * GIB - 2 * GIB - 256 * MIB)));
    assert!(in_a.take(4 * GIB - 2 * GIB - 256 * MIB));
}

#[test]
fn requests_of_different_containers_for_the_last_place_are_granted_to_exactly_one() {
    if needs_the_simulator() {
        return;
    }
    let node = Node::new("16GiB,context=256MiB", Layout::Mounted);
    let names = ["a", "b", "c"];
    let containers = names.map(|name| node.container(name, "limit = \"100%\"\nreserve = \"1GiB\"\n"));
    let mut programs = containers.each_ref().map(|container| container.start());
    for program in &mut programs {
        assert!(program.take(GIB - 256 * MIB));
    }
    for round in 0..30 {
        let granted = programs.each_mut().map(|program| {
            program.begin_take(7 * GIB);
            program
        });
        let granted = granted.map(|program| (program.was_granted(), program));
        assert_eq!(granted.iter().filter(|(granted, _)| *granted).count(), 1, "round {round}");
        for (_, program) in granted.into_iter().filter(|(granted, _)| *granted) {
            program.give_back();
        }
    }
}

#[test]
fn a_context_beyond_the_reserve_needs_room_like_everything_else() {
    if needs_the_simulator() {
        return;
    }
    let node = Node::new("16GiB,context=256MiB", Layout::Mounted);
    let a = node.container("a", "limit = \"100%\"\nreserve = \"4GiB\"\n");
    let b = node.container("b", "limit = \"100%\"\nreserve = \"256MiB\"\n");
    let mut in_a = a.start();
    assert!(in_a.take(16 * GIB - 512 * MIB));
    // The first is promised to it, the second is not.
    let _in_b = b.start();
    assert!(b.try_start().is_none());
    in_a.give_back();
    assert!(b.try_start().is_some());
}

#[test]
fn status_shows_what_is_reserved() {
    if needs_the_simulator() {
        return;
    }
    let node = Node::new("16GiB,context=256MiB", Layout::Mounted);
    let a = node.container("a", "limit = \"8GiB\"\nreserve = \"4GiB\"\n");
    let _program = a.start();
    let status = common::Run::new(common::cuquota()).arg("status").arg("--state").arg(a.state());
    let said = status.finish().success().stdout;
    assert!(said.contains("RESERVED") && said.contains("4 GiB"), "{said}");
    let status = common::Run::new(common::cuquota()).args(["status", "--json", "--state"]).arg(a.state());
    let said: serde_json::Value = serde_json::from_str(&status.finish().success().stdout).unwrap();
    assert_eq!(said["containers"][0]["gpus"][0]["reserved_bytes"], 4 * GIB);
}

#[test]
fn a_context_is_counted_at_every_moment_from_its_admission_on() {
    if needs_the_simulator() {
        return;
    }
    let node = Node::new("16GiB,context=64MiB", Layout::Mounted);
    let (a, _b) = (node.container("a", "limit = \"100%\"\n"), node.container("b", "limit = \"100%\"\n"));
    for _ in 0..100 {
        let program = Program::begin(&a.within(Client::run()));
        let mut counted = false;
        while !program.is_answered() {
            let used = program.stopped(|| {
                let ledger = Snapshot::read(&a.ledger()).ok();
                ledger.and_then(|ledger| Some(ledger.gpus.first()?.used)).unwrap_or(0)
            });
            counted |= used > 0;
            assert!(!counted || used >= 64 * MIB, "{used} bytes");
        }
        assert!(program.begun().is_some());
    }
}

#[test]
fn a_container_at_its_own_limit_makes_no_context_out_of_what_its_neighbours_are_promised() {
    if needs_the_simulator() {
        return;
    }
    for (promised, room) in [(15 * GIB + 512 * MIB, false), (15 * GIB, true)] {
        let node = Node::new("16GiB,context=256MiB", Layout::Mounted);
        let a = node.container("a", "limit = \"512MiB\"\n");
        let b = node.container("b", &format!("limit = \"100%\"\nreserve = {promised}\n"));
        let mut first = a.start();
        assert!(first.take(256 * MIB) && !first.take(2 * MIB));
        let second = a.try_start();
        assert_eq!(second.is_some(), room, "{promised}");
        let mut in_b = b.start();
        assert!(in_b.take(promised - 256 * MIB), "{promised}");
    }
}

#[test]
fn what_a_stranger_held_when_a_context_was_made_does_not_stand_in_its_containers_way() {
    if needs_the_simulator() {
        return;
    }
    let node = Node::new("16GiB,context=64MiB", Layout::Mounted);
    let a = node.container("a", "limit = \"4GiB\"\nreserve = \"4GiB\"\n");
    let _b = node.container("b", "limit = \"100%\"\n");
    // Nobody tells of it, so it looks as if the context had taken it.
    let mut stranger = node.outsider();
    assert!(stranger.take(768 * MIB));
    let mut in_a = a.start();
    in_a.begin_take(4 * GIB - 64 * MIB);
    std::thread::sleep(Duration::from_millis(100));
    assert!(!in_a.is_answered());
    stranger.kill();
    assert!(in_a.was_granted());
}
