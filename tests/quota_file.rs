//! The quota file, as everyone who writes one meets it: every value is taken exactly or refused with its place.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cuquota::config::{
    Change, GpuIdentity, GpuSelector, Growth, Limit, PciAddress, Quota, QuotaError, Watch,
};

const GI: u64 = 1 << 30;

fn parse(text: &str) -> Result<Quota, QuotaError> {
    Quota::parse(text, Path::new("quota.toml"))
}

/// The top-level limit that `limit = value` sets.
fn limit(value: &str) -> Result<Limit, QuotaError> {
    parse(&format!("# c\nlimit = {value}\n")).map(|quota| quota.default.expect("a default rule").limit)
}

fn gpu(first: u8, index: u32) -> GpuIdentity {
    let pci = PciAddress { domain: 0, bus: index as u8 + 1, device: 0 };
    let mut uuid = [0; 16];
    uuid[0] = first;
    GpuIdentity { uuid, mig: false, pci: Some(pci), pci_index: Some(index) }
}

#[test]
fn a_limit_is_taken_exactly() {
    for (value, bytes) in [
        ("4294967296", 4 * GI),
        ("4_294_967_296", 4 * GI),
        ("0x1_0000_0000", 4 * GI),
        ("1_024", 1024),
        ("+7", 7),
        ("0", 0),
        ("\"0\"", 0),
        ("\"4294967296\"", 4 * GI),
        ("\"4Gi\"", 4 * GI),
        ("\"4GiB\"", 4 * GI),
        ("\"4 GiB\"", 4 * GI),
        ("\" 4Gi\\n\"", 4 * GI),
        ("'4Gi'", 4 * GI),
        ("\"4G\"", 4_000_000_000),
        ("\"4G \"", 4_000_000_000),
        ("\"4GB\"", 4_000_000_000),
        ("\"4096M\"", 4_096_000_000),
        ("\"1.5G\"", 1_500_000_000),
        ("\"0.5Gi\"", GI / 2),
        ("18446744073709551615", u64::MAX),
    ] {
        assert_eq!(limit(value), Ok(Limit::Bytes(bytes)), "{value}");
    }
    assert_eq!(limit("\"unlimited\""), Ok(Limit::Unlimited));
    assert_eq!(limit("\"50%\"").unwrap().bytes(16 * GI), Some(8 * GI));
    assert_eq!(limit("\"unlimited\"").unwrap().bytes(16 * GI), None);
}

#[test]
fn every_other_limit_is_refused_with_line_column_value_and_remedy() {
    for (value, reason) in [
        ("\"\"", "no size"),
        ("-1", "negative"),
        ("-0", "negative"),
        ("\"-1\"", "negative"),
        ("-9223372036854775808", "negative"),
        ("\"1_024\"", "separators"),
        ("\"08G\"", "octal"),
        ("\"0m\"", "unknown unit \"m\""),
        ("\"4g\"", "unknown unit \"g\""),
        ("\"4Gix\"", "unknown unit \"Gix\""),
        ("\"4 G B\"", "unknown unit \"G B\""),
        ("18446744073709551616", "64 bits"),
        ("999999999999999999999999999999", "64 bits"),
        ("\"99999999TiB\"", "64 bits"),
        ("1e30", "not a floating-point number"),
        ("4.0", "not a floating-point number"),
        ("nan", "not NaN"),
        ("-nan", "not NaN"),
        ("inf", "not infinity"),
        ("true", "not a boolean"),
        ("[4]", "not a list"),
        ("{}", "not a table"),
        ("1979-05-27", "not a date"),
        ("\"101%\"", "whole card"),
        ("\"-1%\"", "negative"),
        ("\"Unlimited\"", "not a size"),
        ("\"infinite\"", "does not begin with a digit"),
    ] {
        let error = limit(value).expect_err(value);
        let place = error.place.as_ref().expect("a place");
        assert_eq!((place.line, place.column), (2, 9), "{value}: {error}");
        assert_eq!(error.value.as_deref(), Some(value));
        assert_eq!(place.width, value.chars().count(), "{value}");
        assert!(error.message.contains(reason), "{value}: {error}");
        assert!(!error.remedy.is_empty(), "{value}");
        let line = error.to_string();
        assert!(line.starts_with(&format!("cuquota: quota.toml:2:9: {value}: ")), "{line}");
        assert_eq!(line.lines().count(), 1);
    }
}

#[test]
fn what_is_not_toml_is_refused_where_it_stands() {
    for (text, line, column, value) in [
        ("limit = 4g\n", 1, 9, "4g"),
        ("limit = 08\n", 1, 9, "08"),
        ("limit =\n", 1, 8, "limit ="),
        ("limit\n", 1, 6, "limit"),
        ("# c\nlimit = \"4GiB\n", 2, 14, "limit = \"4GiB"),
        ("limit = \"4GiB\"\nlimit = \"8GiB\"\n", 2, 1, "limit"),
        ("[when_full]\nwait = \"0s\"\n[when_full]\n", 3, 2, "when_full"),
        ("limit = \"4GiB\" \"5GiB\"\n", 1, 16, "limit = \"4GiB\" \"5GiB\""),
        ("limit = \"4\\qGiB\"\n", 1, 12, ""),
        ("limit = \u{0}\n", 1, 9, ""),
        ("[[gpu\n", 1, 6, "[[gpu"),
    ] {
        let error = parse(text).expect_err(text);
        let place = error.place.as_ref().expect("a place");
        assert_eq!((place.line, place.column), (line, column), "{text:?}: {error}");
        if !value.is_empty() {
            assert_eq!(error.value.as_deref(), Some(value), "{text:?}: {error}");
        }
        assert_eq!(error.to_string().lines().count(), 1);
        assert!(!error.remedy.is_empty());
    }
    for (text, remedy) in [
        ("limit = 4GiB # four\n", "write \"4GiB\""),
        ("limit = 25%\n", "write \"25%\""),
        ("limit =  4 g\n", "4GiB (powers of 1024) or 4GB (powers of 1000)? (in quotes)"),
    ] {
        let error = parse(text).expect_err(text);
        assert_eq!(error.remedy, remedy, "{text:?}: {error}");
        assert!(text.contains(error.value.as_deref().expect("a value")), "{error}");
    }
    let error = parse("limit = 1\nlimit = 2\n").unwrap_err();
    assert!(error.message.contains("set before"), "{error}");
}

#[test]
fn unknown_keys_are_refused_with_the_one_that_was_meant() {
    for (text, line, column, remedy) in [
        ("limit = 1\nLimit = 2\n", 2, 1, "did you mean limit?"),
        ("limits = 1\n", 1, 1, "did you mean limit?"),
        ("limit = 1\nmemory = 2\n", 2, 1, "its keys are name, limit"),
        ("limit = 1\nzzz = 1\naaa = 2\n", 2, 1, "its keys are"),
        ("limit = 1\n[[gpu]]\nidx = 0\n", 3, 1, "did you mean id?"),
        ("limit = 1\n[when_full]\nwaits = \"1s\"\n", 3, 1, "did you mean wait?"),
        ("limit = 1\n[gpus]\n", 2, 2, "did you mean gpu?"),
        ("limit.max = 1\n", 1, 1, "write a string with a unit"),
    ] {
        let error = parse(text).expect_err(text);
        let place = error.place.as_ref().expect("a place");
        assert_eq!((place.line, place.column), (line, column), "{text:?}: {error}");
        assert!(error.remedy.contains(remedy), "{text:?}: {error}");
    }
}

#[test]
fn every_other_key_is_refused_with_its_place() {
    for (text, line, reason) in [
        ("limit = 1\nreserve = 2\n", 2, "reserve (2B) is more than the limit (1B)"),
        ("limit = \"10%\"\nreserve = \"20%\"\n", 2, "reserve (20%) is more than the limit (10%)"),
        ("limit = 9\nreserve = 5\n[[gpu]]\nindex = 0\nlimit = 1\n", 5, "more than the limit"),
        ("limit = 1\nreserve = \"unlimited\"\n", 2, "does not begin with a digit"),
        ("limit = 1\ngrowth = \"Lazy\"\n", 2, "unknown growth"),
        ("limit = 1\ngrowth = 1\n", 2, "must be a string"),
        ("limit = 1\nlazy_from = \"5%\"\n", 2, "percentage"),
        ("limit = 1\nlazy_from = -1\n", 2, "negative"),
        ("limit = 1\nname = 5\n", 2, "must be a string"),
        ("limit = 1\nname = \"\"\n", 2, "not a usable name"),
        ("limit = 1\nname = \"a\\nb\"\n", 2, "not a usable name"),
        ("limit = 1\nwhen_full = 5\n", 2, "must be a table"),
        ("limit = 1\n[when_full]\nwait = 5\n", 3, "without a unit"),
        ("limit = 1\n[when_full]\nwait = -5\n", 3, "not a time"),
        ("limit = 1\n[when_full]\nwait = 0.5\n", 3, "must be a time"),
        ("limit = 1\n[when_full]\nwait = \"2h\"\n", 3, "unknown unit"),
        ("limit = 1\n[gpu]\nid = \"GPU-1\"\n", 2, "must be a list"),
        ("limit = 1\ngpu = [1]\n", 2, "must be a list"),
        ("limit = 1\n[[gpu]]\nlimit = 1\n", 2, "names no GPU"),
        ("limit = 1\n[[gpu]]\nid = \"GPU-1\"\nindex = 1\n", 4, "not by both"),
        ("limit = 1\n[[gpu]]\nid = 0\n", 3, "must be a string"),
        ("limit = 1\n[[gpu]]\nid = \"RTX\"\n", 3, "neither a UUID nor a PCI bus id"),
        ("limit = 1\n[[gpu]]\nindex = -1\n", 3, "not an index"),
        ("limit = 1\n[[gpu]]\nindex = \"0\"\n", 3, "not an index"),
        ("[[gpu]]\nindex = 0\n", 2, "no limit for this GPU"),
        ("limit = 1\n[[gpu]]\nindex = 0\n[[gpu]]\nindex = 0\n", 5, "an entry on line 3 already"),
        ("limit = 1\n[[gpu]]\nid = \"GPU-AB\"\n[[gpu]]\nid = \"gpu-ab\"\n", 5, "an entry on line 3 already"),
    ] {
        let error = parse(text).expect_err(text);
        assert_eq!(error.place.as_ref().map(|place| place.line), Some(line), "{text:?}: {error}");
        assert!(error.message.contains(reason), "{text:?}: {error}");
        assert!(!error.remedy.is_empty() && error.value.is_some(), "{text:?}");
    }
}

#[test]
fn a_file_that_limits_nothing_is_refused() {
    for text in
        ["", " \n\t\n", "\u{feff}", "# only a comment\n", "name = \"x\"\n", "[when_full]\nwait = \"1s\"\n"]
    {
        let error = parse(text).expect_err(text);
        assert!(error.remedy.contains("limit = \"4GiB\""), "{text:?}: {error}");
    }
}

#[test]
fn the_example_of_the_manual_means_what_it_says() {
    let quota = parse(
        r#"
name   = "team-a/trainer"
limit  = "4GiB"
growth = "hints"
lazy_from = "128MiB"

[[gpu]]
id      = "GPU-8f"
limit   = "8GiB"
reserve = "2GiB"
growth  = "lazy"

[[gpu]]
index = 2

[[gpu]]
id = "0000:05:00.0"
limit = "unlimited"
lazy_from = "1GiB"

[when_full]
wait = "250ms"
"#,
    )
    .unwrap();
    assert_eq!(quota.name.as_deref(), Some("team-a/trainer"));
    assert_eq!(quota.wait, Duration::from_millis(250));

    let named = quota.rule_for(&gpu(0x8f, 0)).unwrap();
    assert_eq!((named.limit, named.growth), (Limit::Bytes(8 * GI), Growth::Lazy));
    assert_eq!((named.reserve_bytes(16 * GI), named.reserve_bytes(GI)), (2 * GI, GI));
    assert_eq!(named.lazy_from, 128 << 20);

    let inherits = quota.rule_for(&gpu(1, 2)).unwrap();
    assert_eq!((inherits.limit, inherits.growth), (Limit::Bytes(4 * GI), Growth::Hints));

    let by_bus = quota.rule_for(&gpu(1, 4)).unwrap();
    assert_eq!((by_bus.limit, by_bus.lazy_from), (Limit::Unlimited, GI));

    assert_eq!(quota.rule_for(&gpu(1, 7)), quota.default.as_ref());
    assert_eq!(quota.default.as_ref().unwrap().reserve_bytes(16 * GI), 0);
}

#[test]
fn the_first_entry_that_matches_wins() {
    let quota = parse(
        "[[gpu]]\nid = \"GPU-8\"\nlimit = 1\n[[gpu]]\nid = \"GPU-8f\"\nlimit = 2\n[[gpu]]\nindex = 0\nlimit = 3\n",
    )
    .unwrap();
    assert_eq!(quota.rule_for(&gpu(0x8f, 0)).unwrap().limit, Limit::Bytes(1));
    assert_eq!(quota.rule_for(&gpu(0x9f, 0)).unwrap().limit, Limit::Bytes(3));
}

#[test]
fn a_gpu_without_an_entry_has_no_rule_where_there_is_no_default() {
    let quota = parse("[[gpu]]\nindex = 0\nlimit = 1\n").unwrap();
    assert_eq!(quota.rule_for(&gpu(1, 0)).map(|rule| rule.limit), Some(Limit::Bytes(1)));
    assert_eq!(quota.rule_for(&gpu(1, 1)), None);
}

#[test]
fn defaults_are_hints_no_reserve_no_wait() {
    let quota = parse("limit = 1").unwrap();
    let rule = quota.default.unwrap();
    assert_eq!((rule.growth, rule.lazy_from, rule.reserve_bytes(GI)), (Growth::Hints, 256 << 20, 0));
    assert_eq!((quota.wait, quota.name), (Duration::ZERO, None));
}

#[test]
fn a_beginning_that_fits_two_gpus_is_refused_once_they_are_known() {
    let quota = parse("[[gpu]]\nid = \"GPU-8\"\nlimit = 1\n").unwrap();
    let path = Path::new("quota.toml");
    assert_eq!(quota.check_unique(path, &[gpu(0x8f, 0), gpu(0x9f, 1)]), Ok(()));
    let error = quota.check_unique(path, &[gpu(0x8f, 0), gpu(0x8e, 1)]).unwrap_err();
    assert!(error.to_string().contains("line 2") && error.to_string().contains("GPU-8e000000"), "{error}");
    assert_eq!(quota.gpus[0].selector, GpuSelector::Uuid("GPU-8".into()));
}

#[test]
fn carriage_returns_and_a_byte_order_mark_change_nothing() {
    let expected = parse("name = \"a\"\nlimit = \"4GiB\"\n").unwrap();
    assert_eq!(parse("\u{feff}name = \"a\"\r\nlimit = \"4GiB\"\r\n").unwrap(), expected);
    assert_eq!(parse("name = \"a\"\nlimit = \"4GiB\"").unwrap(), expected, "without a final line end");
    let error = parse("\u{feff}limit = \"4g\"\r\n").unwrap_err();
    assert_eq!(
        error.place.map(|place| (place.line, place.column, place.source)),
        Some((1, 9, "limit = \"4g\"".into()))
    );
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    for open in ["[", "{a="] {
        let text = format!("limit = {}", open.repeat(300_000));
        assert!(parse(&text).is_err());
    }
    assert!(parse(&format!("{}limit = 1", "a.".repeat(200_000))).is_err());
}

fn loading(path: &Path) -> QuotaError {
    let error = Quota::load(path).expect_err("refused");
    assert!(error.to_string().starts_with(&format!("cuquota: {}", path.display())), "{error}");
    assert!(!error.remedy.is_empty());
    error
}

#[test]
fn whatever_else_lies_at_the_path_is_refused_in_its_own_words() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);

    assert!(loading(&at("missing")).message.contains("missing"));

    fs::create_dir(at("directory")).unwrap();
    assert!(loading(&at("directory")).message.contains("directory"));

    symlink("nowhere", at("dangling")).unwrap();
    assert!(loading(&at("dangling")).message.contains("link to nothing"));

    symlink("loop", at("loop")).unwrap();
    assert!(loading(&at("loop")).message.contains("cannot be read"));

    fs::write(at("empty"), "").unwrap();
    assert!(loading(&at("empty")).message.contains("empty"));
    assert!(loading(&at("empty/below")).message.contains("cannot be read"));

    assert!(loading(Path::new("/dev/null")).message.contains("device"));
    assert!(loading(Path::new("/dev/zero")).message.contains("device"));

    fs::write(at("truncated"), "name = \"trainer\"\nlimit = \"4Gi").unwrap();
    assert_eq!(loading(&at("truncated")).place.unwrap().line, 2);

    fs::write(at("binary"), b"limit = 1\n# \xff\xfe\n").unwrap();
    let error = loading(&at("binary"));
    assert!(error.message.contains("UTF-8"), "{error}");
    assert_eq!(error.place.map(|place| (place.line, place.column)), Some((2, 3)));

    let padding = "#".repeat(Quota::MAX_BYTES as usize);
    fs::write(at("large"), format!("limit = 1\n{}", &padding[10..])).unwrap();
    assert!(Quota::load(&at("large")).is_ok(), "exactly the largest size");
    fs::write(at("larger"), format!("limit = 1\n{}", &padding[9..])).unwrap();
    assert!(loading(&at("larger")).message.contains("1 MiB"));

    let long = PathBuf::from("/".to_owned() + &"x/".repeat(4000));
    assert!(loading(&long).message.contains("cannot be read"));
}

#[test]
fn a_pipe_is_refused_instead_of_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert!(loading(&pipe).message.contains("pipe"));
}

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
