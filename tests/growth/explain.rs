//! `cuquota explain`.

use serde_json::Value;

use crate::common::{Container, Finished, Run, cuquota};

const TENSORFLOW: &str = "TF_FORCE_GPU_ALLOW_GROWTH";

fn explain(quota: &str) -> (Container, Run) {
    let container = Container::new(quota);
    let names = [TENSORFLOW, "XLA_PYTHON_CLIENT_PREALLOCATE", "FLAGS_allocator_strategy"];
    let run = names.iter().fold(Run::new(cuquota()), |run, name| run.without_env(name));
    let run = run.arg("explain").arg(container.quota_file());
    (container, run)
}

fn json(finished: Finished) -> Value {
    serde_json::from_str(&finished.success().stdout).expect("JSON")
}

#[test]
fn every_rule_and_every_switch_is_explained() {
    let quota = "limit = \"4GiB\"\n[[gpu]]\nindex = 1\ngrowth = \"lazy\"\nlazy_from = \"1GiB\"\n\
                 [[gpu]]\nindex = 2\ngrowth = \"native\"\n";
    let (_container, run) = explain(quota);
    let said = run.finish().success().stdout;
    for words in [
        "lazy    as hints, and allocations from 1GiB on",
        "native  programs are left alone",
        "every other GPU  hints   frameworks are told",
        "TF_FORCE_GPU_ALLOW_GROWTH      true         set\n",
        "TensorFlow takes nearly all free memory",
    ] {
        assert!(said.contains(words), "no {words:?} in\n{said}");
    }
}

#[test]
fn what_the_user_has_set_is_said_to_be_left_alone() {
    let (_container, run) = explain("limit = \"4GiB\"\n");
    let said = run.env(TENSORFLOW, "false").finish().success().stdout;
    assert!(said.contains("left alone: already set by you, to \"false\""), "{said}");
    let (_container, run) = explain("limit = \"4GiB\"\n");
    let answer = json(run.arg("--json").env(TENSORFLOW, "false").finish());
    assert_eq!(answer["switches"][0]["already"], "false");
    assert_eq!((&answer["switches"][0]["set"], &answer["switches"][1]["set"]), (&false.into(), &true.into()));
}

#[test]
fn it_is_right_inside_a_container_where_its_own_environment_was_changed() {
    let (container, run) = explain("limit = \"4GiB\"\n");
    let answer = json(run.arg("--json").within(&container).finish());
    assert_eq!(answer["switches"][0]["set"], true, "{answer}");
}

#[test]
fn native_asks_for_nothing() {
    let (_container, run) = explain("limit = \"4GiB\"\ngrowth = \"native\"\n");
    let said = run.finish().success().stdout;
    assert!(said.contains("No rule asks") && said.contains("not set"), "{said}");
}

#[test]
fn an_invalid_file_is_shown_with_the_place_and_exit_code_1() {
    let (_container, run) = explain("growth = \"fast\"\n");
    let finished = run.finish();
    assert_eq!(finished.code(), 1);
    assert!(finished.stderr.contains("unknown growth") && finished.stderr.contains("^^^"), "{finished}");
}
