//! How long a request may wait for a neighbour's memory.

use std::time::Duration;

use super::number::Quantity;
use super::refusal::Refusal;

/// A caller that waits longer than this is taken to hang.
const LONGEST: Duration = Duration::from_secs(3600);

const EXAMPLE: &str = "write a time like \"250ms\", \"5s\" or \"1m\"; \"0s\" does not wait";

/// Reads a time: a number and `ms`, `s` or `m`; a bare `0` needs no unit.
pub(super) fn parse(text: &str) -> Result<Duration, Refusal> {
    let quantity = Quantity::split(text).map_err(|_| Refusal::new("not a time", EXAMPLE))?;
    let nanoseconds = match quantity.unit {
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "" if quantity.times(1) == Some(0) => 1,
        "" => return Err(Refusal::new("a time without a unit", EXAMPLE)),
        unit => return Err(Refusal::new(format!("unknown unit \"{}\"", unit.escape_debug()), EXAMPLE)),
    };
    match quantity.times(nanoseconds).map(Duration::from_nanos) {
        Some(wait) if wait <= LONGEST => Ok(wait),
        _ => Err(Refusal::new("longer than an hour", "write at most \"60m\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        for (text, milliseconds) in [
            ("0s", 0),
            ("0", 0),
            ("250ms", 250),
            ("5s", 5_000),
            ("1.5 s", 1_500),
            ("1m", 60_000),
            ("60m", 3_600_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(milliseconds)), "{text:?}");
        }
        for (text, reason) in [
            ("", "not a time"),
            ("5", "without a unit"),
            ("-1s", "not a time"),
            ("5 sec", "unknown unit"),
            ("1h", "unknown unit"),
            ("61m", "longer"),
            ("99999999999999999999s", "longer"),
        ] {
            let refusal = parse(text).expect_err(text);
            assert!(refusal.message.contains(reason), "{text:?}: {}", refusal.message);
        }
    }
}
