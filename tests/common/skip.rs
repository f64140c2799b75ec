//! Tests whose outside program is not there: said on the spot, and counted at the end by `zz_skipped`.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use super::target_dir;

/// Says on stderr, past the test runner's capture, what is missing and how to get it, and records it for the count.
/// The calling test returns afterwards. With `CUQUOTA_TEST_REQUIRE=all` it fails here instead.
#[track_caller]
pub fn skip(reason_and_remedy: &str) {
    let what = std::thread::current().name().unwrap_or("a test").to_string();
    let line = format!("skipped: {what}: {}\n", reason_and_remedy.trim().replace('\n', " "));
    if required() {
        panic!("CUQUOTA_TEST_REQUIRE=all, but {line}");
    }
    // One write each, so that lines of tests running side by side stay whole.
    std::io::stderr().write_all(line.as_bytes()).expect("stderr");
    let record = record();
    fs::create_dir_all(record.parent().expect("below target")).expect("a directory for the record");
    let file = File::options().append(true).create(true).open(&record);
    file.and_then(|mut f| f.write_all(line.as_bytes())).expect("the record of skipped tests");
}

/// Whether skipping is not allowed.
fn required() -> bool {
    match std::env::var("CUQUOTA_TEST_REQUIRE").as_deref() {
        Ok("all") => true,
        Ok("") | Err(_) => false,
        Ok(other) => panic!("CUQUOTA_TEST_REQUIRE is {other:?}; want \"all\" or nothing"),
    }
}

/// The record of this run: the test runner is the parent of every test binary, and its start tells runs apart.
pub fn record() -> PathBuf {
    let runner = std::os::unix::process::parent_id();
    let stat = fs::read_to_string(format!("/proc/{runner}/stat")).unwrap_or_default();
    // The command's name may hold blanks; the fields after it are numbers. The twentieth is the start time.
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let started = after_name.split_whitespace().nth(19).unwrap_or("0");
    target_dir().join("tests-skipped").join(format!("{runner}-{started}"))
}
