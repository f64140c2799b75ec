//! What is right and wrong with the installation, and the remedies.

use std::path::Path;

use cuquota::config::{Quota, QuotaError, Source};
use serde_json::{Value, json};

/// One thing that was looked at.
pub struct Finding {
    /// What was found.
    pub what: String,
    /// What to do about it, where something is wrong.
    pub remedy: Option<String>,
    /// Whether it lets programs escape, or keeps them from the GPU.
    pub is_problem: bool,
}

impl Finding {
    /// All is well.
    pub fn fine(what: impl Into<String>) -> Finding {
        Finding { what: what.into(), remedy: None, is_problem: false }
    }

    /// Not as tight as it could be, which may be meant.
    pub fn note(what: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { what: what.into(), remedy: Some(remedy.into()), is_problem: false }
    }

    /// Something is wrong.
    pub fn problem(what: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { what: what.into(), remedy: Some(remedy.into()), is_problem: true }
    }

    /// How it begins on a terminal.
    pub fn mark(&self) -> &'static str {
        match (self.is_problem, &self.remedy) {
            (true, _) => "WRONG",
            (false, Some(_)) => "note",
            (false, None) => "ok",
        }
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        json!({ "finding": self.what, "remedy": self.remedy, "problem": self.is_problem })
    }
}

const PRELOAD_FILE: &str = "/etc/ld.so.preload";

/// Whether the loader preloads the library into everything, by its file.
pub fn preloaded_everywhere() -> bool {
    listed_in_file().iter().any(|path| is_library(path))
}

fn listed_in_file() -> Vec<String> {
    let text = std::fs::read_to_string(PRELOAD_FILE).unwrap_or_default();
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    lines.flat_map(|line| line.split([' ', '\t', ':'])).filter(|p| !p.is_empty()).map(str::to_owned).collect()
}

fn is_library(path: &str) -> bool {
    Path::new(path).file_name().is_some_and(|name| name.to_string_lossy().contains("libcuquota"))
}

/// How the library gets into programs; `loaded` is whether it got into the probe.
pub fn preload(loaded: bool) -> Vec<Finding> {
    let variable = std::env::var("LD_PRELOAD").unwrap_or_default();
    let by_variable = variable.split([' ', ':']).filter(|path| !path.is_empty()).map(str::to_owned);
    let named: Vec<(&str, String)> = listed_in_file()
        .into_iter()
        .map(|path| (PRELOAD_FILE, path))
        .chain(by_variable.map(|path| ("LD_PRELOAD", path)))
        .filter(|(_, path)| is_library(path))
        .collect();
    let mut findings: Vec<Finding> = named.iter().filter_map(|(place, path)| unusable(place, path)).collect();
    match named.first() {
        None if !loaded => findings.push(Finding::problem(
            format!(
                "the library is not preloaded: neither LD_PRELOAD nor {PRELOAD_FILE} names libcuquota.so"
            ),
            format!("put its path into {PRELOAD_FILE}, or run the program by `cuquota run`"),
        )),
        Some((place, path)) if !loaded && findings.is_empty() => findings.push(Finding::problem(
            format!("{place} names {path}, and yet it is not in the programs that are started here"),
            "the loader's own message says why: run `LD_DEBUG=files /bin/true 2>&1 | grep -i cuquota`",
        )),
        _ if loaded && preloaded_everywhere() => {
            findings.push(Finding::fine(format!(
                "the library is preloaded into every program by {PRELOAD_FILE}"
            )));
        }
        _ if loaded => findings.push(Finding::note(
            "the library is preloaded by LD_PRELOAD alone: a program can leave it out",
            format!("to hold greedy programs as well, put its path into {PRELOAD_FILE}"),
        )),
        _ => {}
    }
    findings
}

/// Why the loader cannot preload that file.
fn unusable(place: &str, path: &str) -> Option<Finding> {
    use std::io::ErrorKind;
    if !path.contains('/') {
        // The loader looks for it in its own directories.
        return None;
    }
    match std::fs::File::open(path) {
        Ok(_) => None,
        Err(error) if error.kind() == ErrorKind::NotFound => Some(Finding::problem(
            format!("{place} names {path}, which is not there: programs run without a limit"),
            "mount the library at that path",
        )),
        Err(error) => Some(Finding::problem(
            format!(
                "{place} names {path}, which this user cannot read ({error}): programs run without a limit"
            ),
            "make the file readable and its directories searchable for everybody (chmod a+rX)",
        )),
    }
}

/// A level of the log that there is not: the library must not complain about it, and says nothing at all.
pub fn log() -> Option<Finding> {
    let level = std::env::var("CUQUOTA_LOG").ok().filter(|level| !level.is_empty())?;
    let known = ["error", "warn", "info", "debug"].contains(&level.as_str());
    (!known).then(|| {
        Finding::note(
            format!("CUQUOTA_LOG is {level:?}, which is no level, so nothing is logged"),
            "set it to error, warn, info or debug",
        )
    })
}

/// The quota file, and whether it can be replaced.
pub fn quota() -> Finding {
    let wrong = |error: &QuotaError| {
        let place = error.place.as_ref().map(|place| format!(":{}:{}", place.line, place.column));
        let file = error.path.display();
        let what = format!("the quota is refused: {file}{}: {}", place.unwrap_or_default(), error.message);
        Finding::problem(what, error.remedy.clone())
    };
    let source = match Source::locate() {
        Ok(source) => source,
        Err(error) => return wrong(&error),
    };
    match Quota::load(&source.quota) {
        Err(error) => wrong(&error),
        Ok(_) => {
            let file = source.quota.display();
            match Source::is_governed() {
                true => Finding::fine(format!("{file} governs, whatever the environment says")),
                false => Finding::note(
                    format!("{file} is named by {}: a program can name another", Source::CONFIG_VARIABLE),
                    format!("to hold greedy programs as well, mount it at {}", Source::GOVERNING),
                ),
            }
        }
    }
}
