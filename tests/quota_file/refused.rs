//! What a quota file may not say, and how that is answered.

use std::path::Path;

use cuquota::config::GpuSelector;

use super::{gpu, limit, parse};

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
        ("limit = 1\nwait = \"1s\"\n", 2, 1, "write it below [when_full]"),
        ("limit = 1\nindex = 0\n", 2, 1, "write it below [[gpu]]"),
        ("[[gpu]]\nindex = 0\nlimit = 1\nname = \"a\"\n", 4, 1, "write it at the top of the file"),
        ("[when_full]\nwait = \"1s\"\nlimit = 1\n", 3, 1, "write it at the top of the file"),
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
fn a_beginning_that_fits_two_gpus_is_refused_once_they_are_known() {
    let quota = parse("[[gpu]]\nid = \"GPU-8\"\nlimit = 1\n").unwrap();
    let path = Path::new("quota.toml");
    assert_eq!(quota.check_unique(path, &[gpu(0x8f, 0), gpu(0x9f, 1)]), Ok(()));
    let error = quota.check_unique(path, &[gpu(0x8f, 0), gpu(0x8e, 1)]).unwrap_err();
    assert!(error.to_string().contains("line 2") && error.to_string().contains("GPU-8e000000"), "{error}");
    assert_eq!(quota.gpus[0].selector, GpuSelector::Uuid("GPU-8".into()));
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    for open in ["[", "{a="] {
        let text = format!("limit = {}", open.repeat(300_000));
        assert!(parse(&text).is_err());
    }
    assert!(parse(&format!("{}limit = 1", "a.".repeat(200_000))).is_err());
}
