//! A file that changes while programs run.

use std::fs;
use std::os::unix::fs::symlink;

use cuquota::config::{Change, Limit, Quota, QuotaError, Watch};

fn limit_of(quota: &Quota) -> Limit {
    quota.default.as_ref().unwrap().limit
}

fn polled(watch: &mut Watch) -> Option<Result<Limit, QuotaError>> {
    match watch.poll() {
        Change::None => None,
        Change::Quota(quota) => Some(Ok(limit_of(&quota))),
        Change::Refused(error) => Some(Err(error)),
    }
}

#[test]
fn a_new_version_is_noticed_and_an_invalid_one_is_answered_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quota.toml");
    fs::write(&path, "limit = 1").unwrap();
    let (mut watch, quota) = Watch::start(&path);
    assert_eq!(limit_of(&quota.unwrap()), Limit::Bytes(1));
    assert_eq!(polled(&mut watch), None);

    // The same size, in all likelihood within the same tick of the file system's clock.
    fs::write(&path, "limit = 2").unwrap();
    assert_eq!(polled(&mut watch), Some(Ok(Limit::Bytes(2))));
    assert_eq!(polled(&mut watch), None);

    fs::write(&path, "limit = -").unwrap();
    assert!(matches!(polled(&mut watch), Some(Err(_))));
    assert_eq!(polled(&mut watch), None);
    fs::write(&path, "limit = \"4g\"").unwrap();
    assert!(matches!(polled(&mut watch), Some(Err(_))), "another invalid version is another answer");
    assert_eq!(polled(&mut watch), None);

    fs::write(&path, "limit = 2").unwrap();
    assert_eq!(polled(&mut watch), Some(Ok(Limit::Bytes(2))), "back to what held, and known to be valid");
}

#[test]
fn a_file_that_goes_away_leaves_the_last_quota() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quota.toml");
    fs::write(&path, "limit = 1").unwrap();
    let (mut watch, quota) = Watch::start(&path);
    quota.unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(polled(&mut watch), None);
    fs::write(&path, "limit = 3").unwrap();
    assert_eq!(polled(&mut watch), Some(Ok(Limit::Bytes(3))));
}

#[test]
fn a_file_that_was_refused_at_the_start_is_taken_once_it_is_corrected() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quota.toml");
    let (mut watch, quota) = Watch::start(&path);
    assert!(quota.unwrap_err().message.contains("missing"));
    assert_eq!(polled(&mut watch), None);
    fs::create_dir(&path).unwrap();
    assert!(polled(&mut watch).unwrap().unwrap_err().message.contains("directory"));
    assert_eq!(polled(&mut watch), None);
    fs::remove_dir(&path).unwrap();
    fs::write(&path, "limit = 1").unwrap();
    assert_eq!(polled(&mut watch), Some(Ok(Limit::Bytes(1))));
}

#[test]
fn a_link_switched_between_two_files_always_reads_as_one_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (name, limit) in [("one", 1), ("two", 2)] {
        fs::create_dir(at(name)).unwrap();
        fs::write(at(name).join("quota.toml"), format!("limit = {limit}\n")).unwrap();
    }
    // As a ConfigMap is mounted: the file is reached through a link to a directory that is replaced whole.
    symlink("one", at("..data")).unwrap();
    symlink("..data/quota.toml", at("quota.toml")).unwrap();
    let (mut watch, quota) = Watch::start(&at("quota.toml"));
    assert_eq!(limit_of(&quota.unwrap()), Limit::Bytes(1));

    for round in 0..10_000 {
        let (name, limit) = if round % 2 == 0 { ("two", 2) } else { ("one", 1) };
        symlink(name, at("..next")).unwrap();
        fs::rename(at("..next"), at("..data")).unwrap();
        assert_eq!(polled(&mut watch), Some(Ok(Limit::Bytes(limit))), "round {round}");
    }
}
