//! The one way a number with a unit is read: `digits [. digits] [blanks] unit`, in ASCII, and nothing else.

/// A decimal number, and the unit that follows it, as they stand in the text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Quantity<'a> {
    whole: &'a str,
    fraction: Option<&'a str>,
    /// What follows the number, blanks removed; may be empty.
    pub unit: &'a str,
}

/// Why a text is not a [`Quantity`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NumberError {
    /// Nothing but blanks.
    Empty,
    /// It starts with `-`.
    Negative,
    /// It does not start with a digit.
    NoDigits,
    /// `08`: elsewhere that is octal.
    LeadingZero,
    /// `1_024`, `1,024`.
    Separator,
    /// `4.` without a digit behind it, or more digits than can be multiplied exactly.
    Fraction,
}

/// More digits than this behind the point are refused rather than rounded before the multiplication.
const MAX_FRACTION: usize = 18;

impl<'a> Quantity<'a> {
    /// Splits `text` into number and unit. Which units there are is the caller's business.
    pub fn split(text: &'a str) -> Result<Self, NumberError> {
        let text = text.trim_ascii();
        match text.as_bytes().first() {
            None => return Err(NumberError::Empty),
            Some(b'-') => return Err(NumberError::Negative),
            Some(_) => {}
        }
        let (whole, rest) = digits(text);
        if whole.is_empty() {
            return Err(NumberError::NoDigits);
        }
        if whole.len() > 1 && whole.starts_with('0') {
            return Err(NumberError::LeadingZero);
        }
        let (fraction, rest) = match rest.strip_prefix('.') {
            None => (None, rest),
            Some(rest) => match digits(rest) {
                ("", _) => return Err(NumberError::Fraction),
                (fraction, _) if fraction.len() > MAX_FRACTION => return Err(NumberError::Fraction),
                (fraction, rest) => (Some(fraction), rest),
            },
        };
        if rest.starts_with(['_', ',', '\'']) {
            return Err(NumberError::Separator);
        }
        Ok(Quantity { whole, fraction, unit: rest.trim_ascii_start() })
    }

    /// Whether it was written with a decimal point.
    pub fn has_fraction(&self) -> bool {
        self.fraction.is_some()
    }

    /// The number as it was written, without the unit.
    pub fn number(&self) -> String {
        match self.fraction {
            None => self.whole.to_owned(),
            Some(fraction) => format!("{}.{fraction}", self.whole),
        }
    }

    /// The number times `multiplier`, exactly, rounded down to a whole number; `None` where that exceeds
    /// 64 bits.
    pub fn times(&self, multiplier: u64) -> Option<u64> {
        let multiplier = u128::from(multiplier);
        let whole = u128::from(self.whole.parse::<u64>().ok()?) * multiplier;
        let fraction = match self.fraction {
            None => 0,
            // At most 10^18 * 2^64: below 2^128.
            Some(fraction) => {
                fraction.parse::<u128>().ok()? * multiplier / 10u128.pow(fraction.len().try_into().ok()?)
            }
        };
        u64::try_from(whole.checked_add(fraction)?).ok()
    }
}

/// The leading ASCII digits of `text`, and the rest.
fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}
