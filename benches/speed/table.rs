//! The table that comes out.

use std::fmt;

use crate::duel::Compared;

/// What a number counts.
#[derive(Clone, Copy, PartialEq)]
pub enum Unit {
    Nanoseconds,
    Microseconds,
    Milliseconds,
    Bytes,
    KiB,
    Pointers,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::Nanoseconds => "ns",
            Unit::Microseconds => "us",
            Unit::Milliseconds => "ms",
            Unit::Bytes => "B",
            Unit::KiB => "KiB",
            Unit::Pointers => "pointers",
        }
    }
}

/// One line of the table.
pub struct Row {
    what: String,
    bare: Option<f64>,
    held: Option<f64>,
    added: f64,
    middle_half: Option<(f64, f64)>,
    unit: Unit,
    /// The most that `added` may be; `None` where nothing is claimed.
    target: Option<f64>,
}

impl Row {
    /// From times in nanoseconds.
    pub fn timed(what: impl Into<String>, unit: Unit, target: impl Into<Option<f64>>, took: Compared) -> Row {
        let scale = match unit {
            Unit::Microseconds => 1e-3,
            Unit::Milliseconds => 1e-6,
            _ => 1.0,
        };
        Row {
            what: what.into(),
            bare: Some(took.bare * scale),
            held: Some(took.held * scale),
            added: took.added * scale,
            middle_half: Some((took.middle_half.0 * scale, took.middle_half.1 * scale)),
            unit,
            target: target.into(),
        }
    }

    /// From one number with the library and one without.
    pub fn counted(what: impl Into<String>, unit: Unit, target: f64, bare: Option<f64>, held: f64) -> Row {
        Row {
            what: what.into(),
            bare,
            held: Some(held),
            added: held - bare.unwrap_or(0.0),
            middle_half: None,
            unit,
            target: Some(target),
        }
    }

    fn verdict(&self) -> &'static str {
        match self.target {
            Some(target) if self.added <= target => "met",
            Some(_) => "MISSED",
            None => "",
        }
    }
}

/// The head of the table.
pub fn head() -> String {
    let line = line("", "bare", "cuquota", "ratio", "added", "middle half", "target", "");
    format!("{line}\n{}", "-".repeat(line.len()))
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = if self.unit == Unit::Nanoseconds { 1 } else { 0 };
        let number = |value: f64| format!("{value:.places$}");
        let maybe = |value: Option<f64>| value.map_or(String::new(), number);
        let ratio = match (self.bare, self.held) {
            (Some(bare), Some(held)) if bare > 0.0 => format!("{:.2}", held / bare),
            _ => String::new(),
        };
        let half = self.middle_half.map(|(low, high)| format!("{}..{}", number(low), number(high)));
        let unit = self.unit.name();
        let target = self.target.map_or(String::new(), |target| format!("<= {target} {unit}"));
        let added = format!("{} {unit}", number(self.added));
        f.write_str(&line(
            &self.what,
            &maybe(self.bare),
            &maybe(self.held),
            &ratio,
            &added,
            &half.unwrap_or_default(),
            &target,
            self.verdict(),
        ))
    }
}

#[allow(clippy::too_many_arguments)] // one a column
fn line(
    what: &str,
    bare: &str,
    held: &str,
    ratio: &str,
    added: &str,
    half: &str,
    target: &str,
    verdict: &str,
) -> String {
    format!("{what:<56}{bare:>10}{held:>10}{ratio:>8}{added:>14}{half:>18}{target:>14}  {verdict:<6}")
}
