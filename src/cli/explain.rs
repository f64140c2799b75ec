//! `cuquota explain`: what is done about programs that take the whole GPU at start.

use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use cuquota::config::{Growth, Quota, Rule, Source, exact};
use cuquota::growth::{self, SWITCHES, Switch};
use serde_json::{Value, json};

use super::failure::Failure;
use super::{check, out, units};

/// Explain what is done about programs that take the whole GPU at start
///
/// For each rule of the quota file, what its growth means; and the frameworks' own switches, whether they are set for
/// programs started here, and why. Exits with 1 if the file is not valid.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Explain {
    /// The quota file [default: /etc/cuquota/quota.toml, or else what CUQUOTA_CONFIG names]
    file: Option<PathBuf>,

    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  cuquota explain
  cuquota explain quota.toml
  TF_FORCE_GPU_ALLOW_GROWTH=false cuquota explain
  cuquota explain --json | jq '.switches[] | select(.set)'";

impl Explain {
    pub fn execute(self) -> Result<ExitCode, Failure> {
        let file = self.file.map_or_else(|| Source::locate().map(|source| source.quota), Ok);
        let read = file.and_then(|file| Ok((Quota::load(&file)?, file)));
        let (quota, file) = match read {
            Ok(read) => read,
            Err(error) => return check::refuse(&error, self.json),
        };
        let wanted = growth::wants_switches(&quota);
        let environment = started_with();
        let fates: Vec<(&Switch, Fate)> =
            SWITCHES.iter().map(|switch| (switch, Fate::of(switch, wanted, &environment))).collect();
        if self.json {
            out::print_json(&json!({
                "file": file.display().to_string(),
                "rules": check::rules(&quota).map(|(on, rule)| rule_json(&on, rule)).collect::<Vec<_>>(),
                "switches": fates.iter().map(|(switch, fate)| switch_json(switch, fate)).collect::<Vec<_>>(),
            }))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut rows = vec![["ON", "GROWTH", "MEANS"].map(str::to_owned).to_vec()];
        rows.extend(check::rules(&quota).map(|(on, rule)| {
            let growth = rule.map_or("-".to_owned(), |rule| rule.growth.to_string());
            vec![on, growth, meaning(rule)]
        }));
        let mut text = format!("{}\n\n{}\n", file.display(), units::table(&rows, &[]));
        text += match wanted {
            true => {
                "Before a program starts, where it is not set already (for the whole process, whatever the GPU):\n"
            }
            false => "No rule asks for the frameworks' own switches:\n",
        };
        let mut rows = vec![["VARIABLE", "VALUE", "HERE"].map(str::to_owned).to_vec()];
        rows.extend(
            fates
                .iter()
                .map(|(switch, fate)| vec![word(switch.variable), word(switch.value), fate.words(switch)]),
        );
        text += &units::table(&rows, &[]);
        text.push('\n');
        for switch in SWITCHES {
            text += &format!("{} {}\n", switch.framework, switch.why);
        }
        out::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What becomes of a switch in programs started here.
enum Fate {
    /// No rule asks for it.
    NotWanted,
    /// It is set.
    Set,
    /// The environment has it already, with this value; the same one where a program above this one was given it.
    Already(String),
}

impl Fate {
    fn of(switch: &Switch, wanted: bool, environment: &[u8]) -> Fate {
        let name = switch.variable.to_bytes();
        let value = environment
            .split(|byte| *byte == 0)
            .find_map(|entry| entry.strip_prefix(name)?.strip_prefix(b"="))
            .map(|value| String::from_utf8_lossy(value).into_owned());
        match value {
            Some(value) => Fate::Already(value),
            None if wanted => Fate::Set,
            None => Fate::NotWanted,
        }
    }

    fn words(&self, switch: &Switch) -> String {
        match self {
            Fate::NotWanted => "not set".to_owned(),
            Fate::Set => "set".to_owned(),
            Fate::Already(value) if value.as_bytes() == switch.value.to_bytes() => {
                "already so: set by you, or by cuquota for a program above this one".to_owned()
            }
            Fate::Already(value) => format!("left alone: already set by you, to {value:?}"),
        }
    }
}

/// The environment that this process was started with. What the library has set in it since does not count.
fn started_with() -> Vec<u8> {
    std::fs::read("/proc/self/environ").unwrap_or_else(|_| {
        let entry = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            [name.as_bytes(), b"=", value.as_bytes(), b"\0"].concat()
        };
        std::env::vars_os().flat_map(entry).collect()
    })
}

fn meaning(rule: Option<&Rule>) -> String {
    match rule {
        None => "may not be used".to_owned(),
        Some(rule) => match rule.growth {
            Growth::Native => "programs are left alone".to_owned(),
            Growth::Hints => "frameworks are told not to take the whole GPU at start".to_owned(),
            Growth::Lazy => format!(
                "as hints, and allocations from {} on take memory when they are touched",
                exact(rule.lazy_from)
            ),
        },
    }
}

fn rule_json(on: &str, rule: Option<&Rule>) -> Value {
    json!({
        "on": on,
        "growth": rule.map(|rule| rule.growth.to_string()),
        "lazy_from_bytes": rule.filter(|rule| rule.growth == Growth::Lazy).map(|rule| rule.lazy_from),
        "means": meaning(rule),
    })
}

fn switch_json(switch: &Switch, fate: &Fate) -> Value {
    json!({
        "framework": switch.framework,
        "variable": word(switch.variable),
        "value": word(switch.value),
        "why": switch.why,
        "set": matches!(fate, Fate::Set),
        "already": match fate {
            Fate::Already(value) => Some(value),
            _ => None,
        },
    })
}

fn word(text: &CStr) -> String {
    text.to_string_lossy().into_owned()
}
