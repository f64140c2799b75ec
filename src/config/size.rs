//! Sizes: how many bytes a value of the quota file means, and why others are refused.

use super::number::{NumberError, Quantity};
use super::refusal::Refusal;

/// An amount of GPU memory, absolute or as a part of the card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// So many bytes.
    Bytes(u64),
    /// So much of the card's physical memory.
    Percent(Percent),
}

impl Size {
    /// Reads a size as it is written in the quota file, without the quotes: a number, blanks if you like, and a
    /// unit (`B`, `KiB` to `TiB`, `KB` to `TB`, `Ki` to `Ti`, `k` to `T`) or `%`; without a unit it must be a whole number and means bytes. What a decimal leaves
    /// of a byte is dropped.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        parse(text)
    }

    /// The size in bytes on a card of `physical_total` bytes, rounded down. Not capped at the card's size.
    pub fn bytes(self, physical_total: u64) -> u64 {
        match self {
            Size::Bytes(bytes) => bytes,
            Size::Percent(percent) => percent.of(physical_total),
        }
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Size::Bytes(bytes) => exact(*bytes).fmt(f),
            Size::Percent(percent) => percent.fmt(f),
        }
    }
}

/// A part of a card in millionths, from none to all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent {
    millionths: u32,
}

impl Percent {
    const WHOLE: u32 = 1_000_000;

    /// This part of `total` bytes, rounded down.
    pub fn of(self, total: u64) -> u64 {
        let part = u128::from(total) * u128::from(self.millionths) / u128::from(Self::WHOLE);
        u64::try_from(part).unwrap_or(total)
    }
}

impl std::fmt::Display for Percent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, rest) = (self.millionths / 10_000, self.millionths % 10_000);
        let fraction = format!("{rest:04}");
        match fraction.trim_end_matches('0') {
            "" => write!(f, "{whole}%"),
            fraction => write!(f, "{whole}.{fraction}%"),
        }
    }
}

const KI: u64 = 1 << 10;

/// Every unit there is. Case matters: `M` is a megabyte and `m`, in Kubernetes, a thousandth.
const UNITS: [(&str, u64); 17] = [
    ("B", 1),
    ("KiB", KI),
    ("MiB", KI * KI),
    ("GiB", KI * KI * KI),
    ("TiB", KI * KI * KI * KI),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("Ki", KI),
    ("Mi", KI * KI),
    ("Gi", KI * KI * KI),
    ("Ti", KI * KI * KI * KI),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
];

const EXAMPLE: &str = "write a size like \"4GiB\", \"1.5GB\" or \"512Mi\", or an integer of bytes";

pub(super) fn parse(text: &str) -> Result<Size, Refusal> {
    let quantity = Quantity::split(text).map_err(|error| refuse_number(text, &error))?;
    if quantity.unit == "%" {
        return percent(&quantity);
    }
    let multiplier = match quantity.unit {
        "" => 1,
        unit => match UNITS.iter().find(|(name, _)| *name == unit) {
            Some((_, multiplier)) => *multiplier,
            None => return Err(refuse_unit(&quantity)),
        },
    };
    if multiplier == 1 && quantity.has_fraction() {
        return Err(Refusal::new("a fraction of a byte", EXAMPLE));
    }
    quantity.times(multiplier).map(Size::Bytes).ok_or_else(too_large)
}

/// Reads an integer of the quota file, given by its digits and their base, as a number of bytes.
pub(super) fn parse_integer(digits: &str, radix: u32) -> Result<u64, Refusal> {
    if digits.starts_with('-') {
        return Err(Refusal::new("a size cannot be negative", EXAMPLE));
    }
    u64::from_str_radix(digits, radix).map_err(|_| too_large())
}

fn percent(quantity: &Quantity<'_>) -> Result<Size, Refusal> {
    match quantity.times(u64::from(Percent::WHOLE) / 100).and_then(|parts| u32::try_from(parts).ok()) {
        Some(millionths) if millionths <= Percent::WHOLE => Ok(Size::Percent(Percent { millionths })),
        _ => Err(Refusal::new("more than the whole card", "write at most \"100%\"")),
    }
}

fn too_large() -> Refusal {
    Refusal::new("more than 64 bits can count", "write a size that a card can have, like \"16GiB\"")
}

fn refuse_number(text: &str, error: &NumberError) -> Refusal {
    let text = text.trim_ascii();
    match error {
        NumberError::Empty => Refusal::new("no size", EXAMPLE),
        NumberError::Negative => Refusal::new("a size cannot be negative", EXAMPLE),
        NumberError::NoDigits => Refusal::new("not a size: it does not begin with a digit", EXAMPLE),
        NumberError::LeadingZero => Refusal::new(
            "a leading zero, which elsewhere means octal",
            format!("write \"{}\"", text.trim_start_matches('0')),
        ),
        NumberError::Separator => Refusal::new(
            "separators between digits",
            "leave them out, or write an integer without quotes, like 1_024",
        ),
        NumberError::Fraction => Refusal::new("a decimal point needs 1 to 18 digits behind it", EXAMPLE),
    }
}

/// Says what is wrong with the unit; where only 1024 or 1000 is open, asks which of the two was meant.
fn refuse_unit(quantity: &Quantity<'_>) -> Refusal {
    let unit = quantity.unit;
    let message = format!("unknown unit \"{}\"", unit.escape_debug());
    let lower = unit.to_ascii_lowercase();
    let number = quantity.number();
    for prefix in ["K", "M", "G", "T"] {
        let p = prefix.to_ascii_lowercase();
        let spellings = [p.clone(), format!("{p}b"), format!("{p}i"), format!("{p}ib")];
        if spellings.contains(&lower) {
            let aside = if unit == "m" { " (m is a thousandth in Kubernetes)" } else { "" };
            return Refusal::new(
                message + aside,
                format!("{number}{prefix}iB (powers of 1024) or {number}{prefix}B (powers of 1000)?"),
            );
        }
    }
    Refusal::new(
        message,
        "the units are B, KiB MiB GiB TiB, KB MB GB TB, Ki Mi Gi Ti, k M G T, and % of the card",
    )
}

/// `bytes` in the largest binary unit that divides it, without rounding: "4GiB", "1500MiB", "1000B". What it
/// prints reads back as the same size.
pub fn exact(bytes: u64) -> String {
    let mut amount = bytes;
    let mut unit = 0;
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    while amount != 0 && amount.is_multiple_of(KI) && unit + 1 < units.len() {
        amount /= KI;
        unit += 1;
    }
    format!("{amount}{}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_accepted_spelling_is_taken_exactly() {
        let gi = 1u64 << 30;
        for (text, bytes) in [
            ("0", 0),
            ("4294967296", 4 * gi),
            ("4Gi", 4 * gi),
            ("4GiB", 4 * gi),
            ("4 GiB", 4 * gi),
            ("4\t GiB", 4 * gi),
            (" 4Gi\n", 4 * gi),
            ("4G", 4_000_000_000),
            ("4GB", 4_000_000_000),
            ("4G ", 4_000_000_000),
            ("4096M", 4_096_000_000),
            ("4096MiB", 4 * gi),
            ("0.5Gi", gi / 2),
            ("1.5G", 1_500_000_000),
            ("0.1KiB", 102),
            ("0.000000001GiB", 1),
            ("3k", 3_000),
            ("3KB", 3_000),
            ("3Ki", 3_072),
            ("2T", 2_000_000_000_000),
            ("2TiB", 2 << 40),
            ("7B", 7),
            ("0GiB", 0),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse(text), Ok(Size::Bytes(bytes)), "{text:?}");
        }
    }

    #[test]
    fn every_other_spelling_is_refused_with_its_reason() {
        for (text, reason) in [
            ("", "no size"),
            ("  ", "no size"),
            ("-1", "negative"),
            ("-0", "negative"),
            ("+1", "does not begin with a digit"),
            ("08G", "leading zero"),
            ("00", "leading zero"),
            ("1_024", "separators"),
            ("1,024", "separators"),
            ("1.5", "a fraction of a byte"),
            ("1.5B", "a fraction of a byte"),
            ("1.Gi", "decimal point"),
            (".5Gi", "does not begin with a digit"),
            ("1.0000000000000000001Gi", "decimal point"),
            ("1.5.5Gi", "unknown unit \".5Gi\""),
            ("4g", "unknown unit \"g\""),
            ("4K", "unknown unit \"K\""),
            ("4gib", "unknown unit \"gib\""),
            ("0m", "thousandth"),
            ("4Gix", "unknown unit \"Gix\""),
            ("4 Gi B", "unknown unit \"Gi B\""),
            ("4G4", "unknown unit \"G4\""),
            ("1e9", "unknown unit \"e9\""),
            ("0x10", "unknown unit \"x10\""),
            ("4PiB", "unknown unit \"PiB\""),
            ("4Gi\u{a0}", "unknown unit"),
            ("\u{664}Gi", "does not begin with a digit"),
            ("nan", "does not begin with a digit"),
            ("inf", "does not begin with a digit"),
            ("18446744073709551616", "more than 64 bits"),
            ("99999999999999999999999999999999999999999999", "more than 64 bits"),
            ("16777216TiB", "more than 64 bits"),
            ("101%", "whole card"),
            ("-5%", "negative"),
            ("50 % of it", "unknown unit"),
        ] {
            let refusal = parse(text).expect_err(text);
            assert!(refusal.message.contains(reason), "{text:?}: {}", refusal.message);
            assert!(!refusal.remedy.is_empty(), "{text:?} has no remedy");
        }
    }

    #[test]
    fn an_ambiguous_unit_is_answered_with_the_question() {
        let refusal = parse("4g").unwrap_err();
        assert_eq!(refusal.remedy, "4GiB (powers of 1024) or 4GB (powers of 1000)?");
        assert_eq!(parse("1.5 kb").unwrap_err().remedy, "1.5KiB (powers of 1024) or 1.5KB (powers of 1000)?");
    }

    #[test]
    fn a_percentage_is_a_part_of_the_card_rounded_down() {
        let of = |text: &str, total| parse(text).unwrap().bytes(total);
        assert_eq!(of("25%", 16 << 30), 4 << 30);
        assert_eq!(of("12.5 %", 16 << 30), 2 << 30);
        assert_eq!(of("100%", u64::MAX), u64::MAX);
        assert_eq!(of("0%", 16 << 30), 0);
        assert_eq!(of("33.3333%", 100), 33);
        assert_eq!(parse("12.5%").unwrap().to_string(), "12.5%");
        assert_eq!(parse("0.0001%").unwrap().to_string(), "0.0001%");
    }

    #[test]
    fn integers_are_bytes_in_any_base_and_never_wrap() {
        assert_eq!(parse_integer("4294967296", 10), Ok(4 << 30));
        assert_eq!(parse_integer("100000000", 16), Ok(4 << 30));
        assert!(parse_integer("-1", 10).unwrap_err().message.contains("negative"));
        assert!(parse_integer("18446744073709551616", 10).unwrap_err().message.contains("64 bits"));
    }

    #[test]
    fn what_is_printed_reads_back_as_the_same_size() {
        for bytes in [0, 1, 1000, 1024, 1536, 4 << 30, (4 << 30) + 1, 1 << 50, u64::MAX] {
            assert_eq!(parse(&exact(bytes)), Ok(Size::Bytes(bytes)), "{}", exact(bytes));
        }
    }
}
