//! Memory of graphs: taken when a graph is launched, charged by what the driver keeps for graphs.

use crate::harness::{expect, four_gib, one_card};

#[test]
fn graphs_that_are_never_freed_stay_charged_until_they_are_freed_and_trimmed() {
    let mut commands = Vec::new();
    for i in 0..8 {
        commands.push(format!("graph g{i} -> 0"));
        commands.push(format!("graph-alloc g{i} a{i} 64MiB -> 0"));
        commands.push(format!("instantiate e{i} g{i} -> 0"));
    }
    commands.push("used -> 0 0MiB".into());
    commands.extend((0..8).map(|i| format!("launch e{i} -> 0")));
    commands.push("used -> 0 512MiB".into());
    commands.extend((0..8).map(|i| format!("free a{i} -> 0")));
    commands.push("used -> 0 512MiB".into());
    commands.push("trim-graphs -> 0".into());
    commands.push("used -> 0 0MiB".into());
    expect(&four_gib(), &one_card(), &commands.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn a_launch_above_the_budget_is_refused_and_takes_nothing() {
    expect(
        &four_gib(),
        &one_card(),
        &[
            "graph g -> 0",
            "graph-alloc g a 2GiB -> 0",
            "graph-alloc g b 2GiB -> 0",
            "instantiate e g -> 0",
            "launch e -> 2",
            "used -> 0 0MiB",
            "live -> 0 0",
            "graph h -> 0",
            "graph-alloc h c 2GiB -> 0",
            "instantiate f h -> 0",
            "launch f -> 0",
            "used -> 0 2048MiB",
            "alloc d 2GiB -> 2",
            "free c -> 0",
            "alloc d 2GiB -> 0",
            "used -> 0 2048MiB",
        ],
    );
}

#[test]
fn what_a_chain_frees_serves_what_it_allocates_later() {
    expect(
        &four_gib(),
        &one_card(),
        &[
            "graph g -> 0",
            "graph-alloc g a 3GiB -> 0",
            "graph-free g a -> 0",
            "graph-alloc g b 3GiB -> 0",
            "graph-free g b -> 0",
            "instantiate e g -> 0",
            "launch e -> 0",
            "launch e -> 0",
            "used -> 0 3072MiB",
            "trim-graphs -> 0",
            "used -> 0 0MiB",
        ],
    );
}

#[test]
fn branches_may_run_at_the_same_time_and_are_held_to_their_sum() {
    expect(
        &four_gib(),
        &one_card(),
        &[
            "graph g -> 0",
            "graph-alloc-alone g a 3GiB -> 0",
            "graph-free g a -> 0",
            "graph-alloc-alone g b 3GiB -> 0",
            "graph-free g b -> 0",
            "instantiate e g -> 0",
            "launch e -> 2",
            "used -> 0 0MiB",
        ],
    );
}

#[test]
fn memory_of_captures_and_of_graphs_in_graphs_is_found() {
    expect(
        &four_gib(),
        &one_card(),
        &[
            "stream s -> 0",
            "capture s -> 0",
            "alloc-stream a s 1GiB -> 0",
            "info -> 0 free=3796MiB total=4096MiB",
            "end-capture-to g s -> 0",
            "used -> 0 0MiB",
            "instantiate e g -> 0",
            "launch e s -> 0",
            "used -> 0 1024MiB",
            "free-stream a s -> 0",
            "graph outer -> 0",
            "graph-child outer g -> 0",
            "graph-alloc-alone outer b 1GiB -> 0",
            "instantiate f outer -> 0",
            "launch f -> 0",
            "used -> 0 2048MiB",
            "alloc c 2GiB -> 2",
        ],
    );
}

#[test]
fn a_graph_that_frees_what_it_left_is_charged_once() {
    expect(
        &four_gib(),
        &one_card(),
        &[
            "graph g -> 0",
            "graph-alloc g a 3GiB -> 0",
            "instantiate e g 1 -> 0",
            "launch e -> 0",
            "launch e -> 0",
            "used -> 0 3072MiB",
            "destroy-exec e -> 0",
            "reset-primary -> 0",
            "primary -> 0",
            "used -> 0 0MiB",
        ],
    );
}

#[test]
fn what_a_graph_within_a_graph_frees_is_taken_anew_at_each_launch() {
    expect(
        &four_gib(),
        &one_card(),
        &[
            "graph g -> 0",
            "graph-alloc g a 2GiB -> 0",
            "graph child -> 0",
            "graph-free child a -> 0",
            "graph-child g child -> 0",
            "instantiate e g -> 0",
            "launch e -> 0",
            "sync -> 0",
            "trim-graphs -> 0",
            "used -> 0 0MiB",
            "alloc b 3GiB -> 0",
            "launch e -> 2",
            "used -> 0 3072MiB",
        ],
    );
}
