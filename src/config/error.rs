//! What is wrong with a quota file, where, and what to do about it.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A place in the text of a quota file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// How many characters of that line are meant, at least 1.
    pub width: usize,
    /// The line itself, without its end.
    pub source: String,
}

impl Place {
    /// The place of the bytes `span` of `text`. A span across lines is cut at the end of its first.
    pub(super) fn of(text: &str, span: Range<usize>) -> Self {
        let start = floor_char_boundary(text, span.start);
        let end = floor_char_boundary(text, span.end).max(start);
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let source = text[line_start..line_end].trim_end_matches('\r');
        Place {
            line: text[..line_start].matches('\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            width: text[start..end.min(line_start + source.len()).max(start)].chars().count().max(1),
            source: source.to_owned(),
        }
    }
}

fn floor_char_boundary(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Why a quota file is refused. `Display` is the one line for a log; [`QuotaError::report`] is for a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaError {
    /// The file in question.
    pub path: PathBuf,
    /// Where in it; `None` where the file as a whole is meant.
    pub place: Option<Box<Place>>,
    /// The value as it stands in the file, where one is to blame.
    pub value: Option<String>,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

impl QuotaError {
    /// The file as a whole cannot be used.
    pub(super) fn whole(path: &Path, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (message, remedy) = (message.into(), remedy.into());
        QuotaError { path: path.to_owned(), place: None, value: None, message, remedy }
    }

    /// Several lines for a terminal: the error, the line it is in with carets under the value, and the remedy.
    /// Ends with a newline.
    pub fn report(&self) -> String {
        let mut report = format!("error: {}\n", printable(&self.message));
        let path = printable(&self.path.to_string_lossy());
        match &self.place {
            None => report += &format!(" --> {path}\n"),
            Some(place) => {
                let number = place.line.to_string();
                let margin = " ".repeat(number.len());
                let (source, column) = window(place);
                // A tab is as wide above as below, whatever the terminal makes of it.
                let lead: String =
                    source.chars().take(column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
                let room = source.chars().count().saturating_sub(column - 1).max(1);
                let carets = "^".repeat(place.width.min(room));
                let source = source.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c });
                let source: String = source.collect();
                report += &format!("{margin}--> {path}:{}:{}\n", place.line, place.column);
                report += &format!("{margin} |\n{number} | {source}\n{margin} | {lead}{carets}\n");
            }
        }
        report + &format!("help: {}\n", printable(&self.remedy))
    }
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cuquota: {}", printable(&self.path.to_string_lossy()))?;
        if let Some(place) = &self.place {
            write!(f, ":{}:{}", place.line, place.column)?;
        }
        if let Some(value) = &self.value {
            write!(f, ": {}", printable(&shortened(value, 80)))?;
        }
        write!(f, ": {}; {}", printable(&self.message), printable(&self.remedy))
    }
}

impl std::error::Error for QuotaError {}

/// `text` without anything that would end the line or steer a terminal.
fn printable(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

/// As much of the line as fits a terminal, and the column in that.
fn window(place: &Place) -> (String, usize) {
    const BEFORE: usize = 60;
    const WIDE: usize = 100;
    if place.source.chars().count() <= WIDE {
        return (place.source.clone(), place.column);
    }
    let skipped = place.column.saturating_sub(BEFORE + 1);
    let part: String = place.source.chars().skip(skipped).take(WIDE).collect();
    (part, place.column - skipped)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str, span: Range<usize>) -> QuotaError {
        QuotaError {
            path: "/etc/cuquota/quota.toml".into(),
            value: Some(text[span.clone()].to_owned()),
            place: Some(Box::new(Place::of(text, span))),
            message: "unknown unit \"g\"".into(),
            remedy: "4GiB or 4GB?".into(),
        }
    }

    #[test]
    fn the_one_line_says_file_line_column_value_and_remedy() {
        let error = error("name = \"a\"\r\nlimit = \"4g\"\r\n", 20..24);
        assert_eq!(
            error.to_string(),
            "cuquota: /etc/cuquota/quota.toml:2:9: \"4g\": unknown unit \"g\"; 4GiB or 4GB?"
        );
    }

    #[test]
    fn the_carets_stand_under_the_value() {
        let error = error("# ü\n\tlimit = \"4g\"  # mine\n", 14..18);
        assert_eq!(
            error.report(),
            "error: unknown unit \"g\"\n --> /etc/cuquota/quota.toml:2:10\n  |\n\
             2 | \tlimit = \"4g\"  # mine\n  | \t        ^^^^\nhelp: 4GiB or 4GB?\n"
        );
    }

    #[test]
    fn nothing_in_a_value_ends_the_line_or_runs_on_for_ever() {
        let text = format!("limit = '''\n\u{1b}[2J{}'''", "x".repeat(5000));
        let error = error(&text, 8..text.len());
        let line = error.to_string();
        assert!(!line.contains('\n') && !line.contains('\u{1b}') && line.len() < 400, "{line}");
        assert!(error.report().lines().all(|line| line.len() < 200));
    }

    #[test]
    fn places_outside_the_text_or_inside_a_character_do_no_harm() {
        for (text, span) in [("", 0..0), ("ü", 1..1), ("ab\n", 3..9), ("é\né", 100..200), ("a\r\n", 1..3)]
        {
            let place = Place::of(text, span);
            assert!(place.line >= 1 && place.column >= 1 && place.width >= 1);
        }
    }
}
