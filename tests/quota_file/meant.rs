//! What a quota file may say, and what it means.

use std::time::Duration;

use cuquota::config::{Growth, Limit};

use super::{GI, gpu, limit, parse};

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
