//! The simulated driver's `cuGetProcAddress`: by name, version and stream flag, in both signatures.

mod common;

use common::programs::c_program;
use common::{Machine, Run};

const FOUND: &str = "0 0";
const UNKNOWN: &str = "500 1 null";
const TOO_OLD: &str = "500 2 null";

/// What the driver answers to each question, code and status and names.
fn answers(spec: &str, questions: &[&str]) -> Vec<String> {
    let run =
        Run::new(c_program("procaddr")).args(questions.iter().copied()).on(&Machine::new(spec)).finish();
    let out = run.success().stdout;
    assert!(out.contains("null status 0\nnull pointer 1 1\nnull name 1\n"), "{out}");
    // What it hands out works when called, an inner address too.
    assert!(out.contains("driver version 0 1"), "{out}");
    let lines = out.lines().take(questions.len());
    lines.map(|line| line.split_once(' ').expect("an answer after the question").1.to_string()).collect()
}

fn check(spec: &str, table: &[(&str, &str)]) {
    let questions: Vec<_> = table.iter().map(|row| row.0).collect();
    for ((question, want), got) in table.iter().zip(answers(spec, &questions)) {
        assert_eq!(&got, want, "{question} on {spec}");
    }
}

#[test]
fn a_base_name_means_the_newest_variant_of_the_version_asked() {
    check(
        "16GiB",
        &[
            ("cuMemGetInfo@2000", "0 0 cuMemGetInfo"),
            ("cuMemGetInfo@3020", "0 0 cuMemGetInfo_v2"),
            ("cuMemAlloc@2000", "0 0 cuMemAlloc"),
            ("cuMemAlloc@3010", "0 0 cuMemAlloc"),
            ("cuMemAlloc@13000", "0 0 cuMemAlloc_v2"),
            ("cuCtxCreate@3020", "0 0 cuCtxCreate_v2"),
            ("cuCtxCreate@11040", "0 0 cuCtxCreate_v3"),
            ("cuCtxCreate@12050", "0 0 cuCtxCreate_v4"),
            ("cuCtxCreate@13000", "0 0 cuCtxCreate_v4"),
            ("cuDevicePrimaryCtxRelease@7000", "0 0 cuDevicePrimaryCtxRelease"),
            ("cuDevicePrimaryCtxRelease@11000", "0 0 cuDevicePrimaryCtxRelease_v2"),
            ("4:cuMemGetInfo@3020", "0 -1 cuMemGetInfo_v2"),
        ],
    );
}

#[test]
fn the_stream_flag_asks_for_the_per_thread_variant() {
    check(
        "16GiB",
        &[
            ("cuMemAllocAsync@11020:0", "0 0 cuMemAllocAsync"),
            ("cuMemAllocAsync@11020:1", "0 0 cuMemAllocAsync"),
            ("cuMemAllocAsync@11020:2", "0 0 cuMemAllocAsync_ptsz"),
            ("cuMemcpyHtoD@12000:2", "0 0 cuMemcpyHtoD_v2_ptds"),
            ("cuMemPrefetchAsync@8000:2", "0 0 cuMemPrefetchAsync_ptsz"),
            ("cuMemPrefetchAsync@12020:2", "0 0 cuMemPrefetchAsync_v2_ptsz"),
            ("cuMemAlloc@12000:2", "0 0 cuMemAlloc_v2"),
            ("cuMemAlloc@12000:3", "1 -1 untouched"),
            ("cuMemAlloc@12000:4", "1 -1 untouched"),
        ],
    );
}

#[test]
fn it_is_asked_for_itself() {
    check(
        "16GiB",
        &[
            ("cuGetProcAddress@11030", "0 0 cuGetProcAddress"),
            ("cuGetProcAddress@12000", "0 0 cuGetProcAddress_v2"),
            ("4:cuGetProcAddress@11030", "0 -1 cuGetProcAddress"),
            ("cuGetProcAddress@11020", TOO_OLD),
        ],
    );
}

#[test]
fn the_status_tells_an_unknown_name_from_a_low_version() {
    check(
        "16GiB",
        &[
            ("cuNoSuchThing@13000", UNKNOWN),
            ("cuMemAlloc_v2@13000", UNKNOWN),
            ("@0", UNKNOWN),
            ("cuMemAllocAsync@2000", TOO_OLD),
            ("cuInit@0", TOO_OLD),
            ("4:cuNoSuchThing@13000", "500 -1 null"),
        ],
    );
}

#[test]
fn an_older_driver_knows_no_newer_names() {
    check(
        "16GiB,driver=12.4",
        &[
            ("cuCtxCreate@13000", "0 0 cuCtxCreate_v3"),
            ("cuStreamGetCtx@13000", "0 0 cuStreamGetCtx"),
            ("cuLogsCurrent@13000", UNKNOWN),
            ("cuCheckpointProcessLock@12080", UNKNOWN),
        ],
    );
}

#[test]
fn inner_addresses_equal_no_export() {
    for answer in
        answers("16GiB,procaddr=inner", &["cuInit@2000", "cuMemAlloc@3020", "cuMemAllocAsync@11020:2"])
    {
        assert_eq!(answer, format!("{FOUND} none"));
    }
}
