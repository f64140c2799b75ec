//! From the text of a quota file to a [`Quota`], or to the first error with its place.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Place, QuotaError};
use super::gpu::GpuSelector;
use super::quota::{GpuEntry, Growth, Limit, Quota, Rule};
use super::refusal::Refusal;
use super::size::{self, Size};
use super::wait;

/// The keys that may stand at the top, in `[[gpu]]` and in `[when_full]`.
const TOP: &[&str] = &["name", "limit", "reserve", "growth", "lazy_from", "gpu", "when_full"];
const GPU: &[&str] = &["id", "index", "limit", "reserve", "growth", "lazy_from"];
const WHEN_FULL: &[&str] = &["wait"];

/// Where each of these may stand, in the words of a remedy.
const PLACES: [(&[&str], &str); 3] = [
    (TOP, "at the top of the file, above every [[gpu]] and [when_full]"),
    (GPU, "below [[gpu]]"),
    (WHEN_FULL, "below [when_full]"),
];

const A_LIMIT: &str = "write limit = \"4GiB\" in it (or \"25%\" of the card, or \"unlimited\")";

/// The longest name, in bytes.
const NAME_MAX: usize = 128;

pub(super) fn quota(text: &str, path: &Path) -> Result<Quota, QuotaError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        return Err(QuotaError::whole(path, "the quota file is empty", A_LIMIT));
    }
    let file = File { text, path };
    let document = DeTable::parse(text).map_err(|error| file.syntax(&error))?;
    file.quota(document.get_ref())
}

/// The file being read: where errors are placed.
struct File<'a> {
    text: &'a str,
    path: &'a Path,
}

/// The settings that may stand at the top and in each entry; `None` where this one does not.
struct Settings<'a> {
    limit: Option<(Limit, &'a Value<'a>)>,
    reserve: Option<(Size, &'a Value<'a>)>,
    growth: Option<Growth>,
    lazy_from: Option<u64>,
}

type Value<'a> = Spanned<DeValue<'a>>;

impl File<'_> {
    fn quota(&self, top: &DeTable<'_>) -> Result<Quota, QuotaError> {
        self.known_keys(top, TOP, "the quota file")?;
        let name = top.get("name").map(|value| self.name(value)).transpose()?;
        let settings = self.settings(top)?;
        let default = self.rule(&settings, &settings)?;
        let gpus = match top.get("gpu") {
            None => Vec::new(),
            Some(value) => self.gpus(value, &settings)?,
        };
        let wait = match top.get("when_full") {
            None => Duration::ZERO,
            Some(value) => self.when_full(value)?,
        };
        if default.is_none() && gpus.is_empty() {
            return Err(QuotaError::whole(self.path, "the quota file sets no limit", A_LIMIT));
        }
        Ok(Quota { name, default, gpus, wait })
    }

    fn name(&self, value: &Value<'_>) -> Result<String, QuotaError> {
        let name = self.string(value, "name", "a string, like \"team-a/trainer\"")?;
        if name.trim().is_empty() || name.len() > NAME_MAX || name.chars().any(char::is_control) {
            return Err(self.refuse(
                value.span(),
                Refusal::new("not a usable name", format!("write 1 to {NAME_MAX} bytes on one line")),
            ));
        }
        Ok(name.to_owned())
    }

    fn settings<'a>(&self, table: &'a DeTable<'a>) -> Result<Settings<'a>, QuotaError> {
        let limit = table.get("limit").map(|value| Ok((self.limit(value)?, value))).transpose()?;
        let reserve =
            table.get("reserve").map(|value| Ok((self.size(value, "reserve")?, value))).transpose()?;
        let growth = table.get("growth").map(|value| self.growth(value)).transpose()?;
        let lazy_from = table.get("lazy_from").map(|value| self.lazy_from(value)).transpose()?;
        Ok(Settings { limit, reserve, growth, lazy_from })
    }

    /// What `own` settings say, the rest filled in from the top of the file; `None` where neither has a limit.
    fn rule(&self, own: &Settings<'_>, top: &Settings<'_>) -> Result<Option<Rule>, QuotaError> {
        let Some((limit, limit_at)) = own.limit.as_ref().or(top.limit.as_ref()) else { return Ok(None) };
        let reserve = own.reserve.as_ref().or(top.reserve.as_ref());
        if let Some((reserve, reserve_at)) = reserve
            && exceeds(*reserve, *limit)
        {
            // Blame what the entry itself says: an inherited value is right where it stands.
            let at = if own.reserve.is_some() { reserve_at } else { limit_at };
            let message = format!("reserve ({reserve}) is more than the limit ({limit})");
            return Err(self.refuse(at.span(), Refusal::new(message, "raise the limit or lower the reserve")));
        }
        Ok(Some(Rule {
            limit: *limit,
            reserve: reserve.map_or(Size::Bytes(0), |(reserve, _)| *reserve),
            growth: own.growth.or(top.growth).unwrap_or_default(),
            lazy_from: own.lazy_from.or(top.lazy_from).unwrap_or(Rule::DEFAULT_LAZY_FROM),
        }))
    }

    fn limit(&self, value: &Value<'_>) -> Result<Limit, QuotaError> {
        match value.get_ref().as_str().map(str::trim_ascii) {
            Some("unlimited") => Ok(Limit::Unlimited),
            Some(text) if text.eq_ignore_ascii_case("unlimited") => {
                Err(self
                    .refuse(value.span(), Refusal::new("not a size", "write \"unlimited\" in lower case")))
            }
            _ => self.size(value, "limit").map(Limit::from),
        }
    }

    fn lazy_from(&self, value: &Value<'_>) -> Result<u64, QuotaError> {
        match self.size(value, "lazy_from")? {
            Size::Bytes(bytes) => Ok(bytes),
            Size::Percent(_) => Err(self.refuse(
                value.span(),
                Refusal::new("lazy_from cannot be a percentage", "write a size, like \"256MiB\""),
            )),
        }
    }

    fn size(&self, value: &Value<'_>, key: &str) -> Result<Size, QuotaError> {
        let size = match value.get_ref() {
            DeValue::String(text) => size::parse(text),
            DeValue::Integer(integer) => {
                size::parse_integer(integer.as_str(), integer.radix()).map(Size::Bytes)
            }
            other => Err(Refusal::new(
                format!("{key} must be a size, not {}", kind(other)),
                "write a string with a unit, like \"4GiB\", or an integer of bytes",
            )),
        };
        size.map_err(|refusal| self.refuse(value.span(), refusal))
    }

    fn growth(&self, value: &Value<'_>) -> Result<Growth, QuotaError> {
        const EXPECTED: &str = "\"native\", \"hints\" or \"lazy\"";
        let text = self.string(value, "growth", EXPECTED)?;
        match Growth::NAMES.iter().find(|(name, _)| *name == text) {
            Some((_, growth)) => Ok(*growth),
            None => {
                let refusal = Refusal::new("unknown growth", format!("write {EXPECTED}"));
                Err(self.refuse(value.span(), refusal))
            }
        }
    }

    fn gpus(&self, value: &Value<'_>, top: &Settings<'_>) -> Result<Vec<GpuEntry>, QuotaError> {
        const EXPECTED: &str = "write [[gpu]], in double brackets, above the keys of each GPU";
        let wrong = |span, what: &DeValue<'_>| {
            let message = format!("gpu must be a list of entries, not {}", kind(what));
            self.refuse(span, Refusal::new(message, EXPECTED))
        };
        let DeValue::Array(array) = value.get_ref() else {
            return Err(wrong(value.span(), value.get_ref()));
        };
        let mut entries: Vec<GpuEntry> = Vec::new();
        for value in array.iter() {
            let DeValue::Table(table) = value.get_ref() else {
                return Err(wrong(value.span(), value.get_ref()));
            };
            self.known_keys(table, GPU, "[[gpu]]")?;
            let (selector, at) = self.selector(table, value.span())?;
            if let Some(first) = entries.iter().find(|entry| entry.selector == selector) {
                let message = format!("this GPU has an entry on line {} already", first.line);
                return Err(self.refuse(at, Refusal::new(message, "remove one of the two")));
            }
            let Some(rule) = self.rule(&self.settings(table)?, top)? else {
                let remedy = "write limit = \"4GiB\" in it, or at the top of the file for all GPUs";
                return Err(self.refuse(at, Refusal::new("no limit for this GPU", remedy)));
            };
            let line = Place::of(self.text, at).line;
            entries.push(GpuEntry { selector, rule, line });
        }
        Ok(entries)
    }

    /// The GPU that an entry names, and where it does so.
    fn selector(
        &self,
        table: &DeTable<'_>,
        entry: Range<usize>,
    ) -> Result<(GpuSelector, Range<usize>), QuotaError> {
        match (table.get("id"), table.get("index")) {
            (Some(id), None) => {
                let text = self.string(id, "id", "a string, like \"GPU-8f4c\"")?;
                let selector =
                    GpuSelector::parse_id(text).map_err(|refusal| self.refuse(id.span(), refusal))?;
                Ok((selector, id.span()))
            }
            (None, Some(index)) => {
                let number = match index.get_ref() {
                    DeValue::Integer(number) => u32::from_str_radix(number.as_str(), number.radix()).ok(),
                    _ => None,
                };
                let refusal =
                    || Refusal::new("not an index", "write the GPU's place in PCI bus order: 0, 1, …");
                let number = number.ok_or_else(|| self.refuse(index.span(), refusal()))?;
                Ok((GpuSelector::Index(number), index.span()))
            }
            (Some(_), Some(index)) => Err(self.refuse(
                index.span(),
                Refusal::new(
                    "an entry names its GPU by id or by index, not by both",
                    "remove one of the two",
                ),
            )),
            (None, None) => Err(self.refuse(
                entry,
                Refusal::new("the entry names no GPU", "write id = \"GPU-…\" or index = 0 in it"),
            )),
        }
    }

    fn when_full(&self, value: &Value<'_>) -> Result<Duration, QuotaError> {
        let DeValue::Table(table) = value.get_ref() else {
            let message = format!("when_full must be a table, not {}", kind(value.get_ref()));
            return Err(
                self.refuse(value.span(), Refusal::new(message, "write [when_full], then wait = \"0s\""))
            );
        };
        self.known_keys(table, WHEN_FULL, "[when_full]")?;
        let Some(value) = table.get("wait") else { return Ok(Duration::ZERO) };
        let wait = match value.get_ref() {
            DeValue::String(text) => wait::parse(text),
            DeValue::Integer(integer) => wait::parse(integer.as_str()),
            other => Err(Refusal::new(
                format!("wait must be a time, not {}", kind(other)),
                "write a time like \"250ms\", \"5s\" or \"1m\"",
            )),
        };
        wait.map_err(|refusal| self.refuse(value.span(), refusal))
    }

    fn string<'v>(&self, value: &'v Value<'_>, key: &str, expected: &str) -> Result<&'v str, QuotaError> {
        value.get_ref().as_str().ok_or_else(|| {
            let message = format!("{key} must be a string, not {}", kind(value.get_ref()));
            self.refuse(value.span(), Refusal::new(message, format!("write {expected}")))
        })
    }

    /// Refuses the first key, in the order of the file, that `table` may not have.
    fn known_keys(&self, table: &DeTable<'_>, known: &[&str], place: &str) -> Result<(), QuotaError> {
        let unknown = table.keys().filter(|key| !known.contains(&key.get_ref().as_ref()));
        let Some(key) = unknown.min_by_key(|key| key.span().start) else { return Ok(()) };
        let message = format!("{place} has no key \"{}\"", key.get_ref());
        // In TOML a key belongs to the table above it, however far up that is.
        let elsewhere = PLACES.iter().find(|(keys, _)| keys.contains(&key.get_ref().as_ref()));
        let remedy = match (elsewhere, known.iter().find(|name| alike(name, key.get_ref()))) {
            (Some((_, place)), _) => format!("write it {place}"),
            (None, Some(name)) => format!("did you mean {name}?"),
            (None, None) => format!("its keys are {}", known.join(", ")),
        };
        Err(self.refuse(key.span(), Refusal::new(message, remedy)))
    }

    fn refuse(&self, span: Range<usize>, refusal: Refusal) -> QuotaError {
        QuotaError {
            path: self.path.to_owned(),
            value: self.text.get(span.clone()).map(|value| value.trim().to_owned()),
            place: Some(Box::new(Place::of(self.text, span))),
            message: refusal.message,
            remedy: refusal.remedy,
        }
    }

    /// What the TOML parser refuses.
    fn syntax(&self, error: &toml::de::Error) -> QuotaError {
        let span = error.span().unwrap_or(0..0);
        let mut place = Place::of(self.text, span.clone());
        let named = self.text.get(span).map(str::trim).filter(|value| !value.is_empty());
        // Where the parser's span is empty, the value is all of the line.
        let mut value = named.unwrap_or(place.source.trim()).to_owned();
        let mut message = format!("not valid TOML: {}", error.message());
        let mut remedy = "correct the TOML: keys are written name = \"value\", one a line".to_owned();
        if error.message() == "duplicate key" {
            (message, remedy) = ("this key was set before".into(), "keep one of the two".into());
        } else if let Some((column, bare)) = bare_value(&place) {
            (message, remedy) = match size::parse(bare) {
                Ok(_) => ("a value with a unit without quotes".into(), format!("write \"{bare}\"")),
                Err(refusal) => (refusal.message, format!("{} (in quotes)", refusal.remedy)),
            };
            value = bare.to_owned();
            (place.column, place.width) = (column, value.chars().count());
        }
        QuotaError {
            path: self.path.to_owned(),
            value: (!value.is_empty()).then_some(value),
            place: Some(Box::new(place)),
            message,
            remedy,
        }
    }
}

/// The number with letters, and its column, that stands without quotes behind the `=` of the offending line.
fn bare_value(place: &Place) -> Option<(usize, &str)> {
    let (key, rest) = place.source.split_once('=')?;
    let value = rest.split('#').next().unwrap_or_default().trim();
    let column = key.chars().count() + 2 + rest.chars().take_while(|c| c.is_whitespace()).count();
    let numeric = value.starts_with(|c: char| c.is_ascii_digit());
    let plain = !value.contains(['"', '\'', '[', ']', '{', '}', ',']);
    (numeric && plain && place.column >= column).then_some((column, value))
}

/// Whether the two can be compared without a card, and the reserve is the larger.
fn exceeds(reserve: Size, limit: Limit) -> bool {
    match (reserve, limit) {
        (Size::Bytes(reserve), Limit::Bytes(limit)) => reserve > limit,
        (Size::Percent(reserve), Limit::Percent(limit)) => reserve > limit,
        _ => false,
    }
}

/// What a value is, in the words of an error.
fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(number) if number.as_str().contains("nan") => "NaN",
        DeValue::Float(number) if number.as_str().contains("inf") => "infinity",
        DeValue::Float(_) => "a floating-point number",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// Whether one was probably written for the other: at most two letters differ, case aside.
fn alike(one: &str, other: &str) -> bool {
    let (one, other) = (one.to_ascii_lowercase(), other.to_ascii_lowercase());
    if other.len() > one.len() + 2 || one.len() > other.len() + 2 {
        return false;
    }
    let mut above: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.bytes().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.bytes().enumerate() {
            row.push((above[j] + usize::from(a != b)).min(above[j + 1] + 1).min(row[j] + 1));
        }
        above = row;
    }
    above[other.len()] <= one.len().min(other.len()).div_ceil(3).min(2)
}
