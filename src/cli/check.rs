//! `cuquota check`: what a quota file means, or where it is wrong.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use cuquota::config::{GpuEntry, GpuIdentity, Limit, Quota, QuotaError, Rule, Source, exact};
use serde_json::{Value, json};

use super::cards::{self, Card};
use super::failure::Failure;
use super::{out, units};

/// Show what a quota file means, or where it is wrong
///
/// Lists the rules of the file and, where there is a driver, the budget on each GPU of this machine. Exits with 1 if
/// the file is not valid.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Check {
    /// The quota file [default: /etc/cuquota/quota.toml, or else what CUQUOTA_CONFIG names]
    file: Option<PathBuf>,

    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  cuquota check
  cuquota check quota.toml
  cuquota check quota.toml --json | jq .gpus";

impl Check {
    pub fn execute(self) -> Result<ExitCode, Failure> {
        let file = match self.file.map_or_else(|| Source::locate().map(|source| source.quota), Ok) {
            Ok(file) => file,
            Err(error) => return refuse(&error, self.json),
        };
        let quota = match Quota::load(&file) {
            Ok(quota) => quota,
            Err(error) => return refuse(&error, self.json),
        };
        let cards = cards::list(&Vec::new())?;
        if let Ok(cards) = &cards {
            let identities: Vec<GpuIdentity> = cards.iter().map(|card| card.identity).collect();
            if let Err(error) = quota.check_unique(&file, &identities) {
                return refuse(&error, self.json);
            }
        }
        let warnings = warnings(&quota, cards.as_deref().unwrap_or_default());
        if self.json {
            let (gpus, no_gpus) = match &cards {
                Ok(cards) => (cards.iter().map(|card| gpu_json(&quota, card)).collect(), Value::Null),
                Err(reason) => (Value::Null, reason.to_string().into()),
            };
            out::print_json(&json!({
                "file": file.display().to_string(),
                "valid": true,
                "name": quota.name,
                "wait_ms": u64::try_from(quota.wait.as_millis()).unwrap_or(u64::MAX),
                "rules": rules(&quota).map(|(which, rule)| rule_json(&which, rule)).collect::<Vec<_>>(),
                "warnings": warnings,
                "gpus": gpus,
                "no_gpus": no_gpus,
            }))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut text = format!("{} is valid\n", file.display());
        if let Some(name) = &quota.name {
            text += &format!("name: {name}\n");
        }
        text += &match quota.wait.as_millis() {
            0 => "a request that does not fit is refused at once\n".to_owned(),
            ms => format!("a request that does not fit waits up to {ms} ms for a neighbour's memory\n"),
        };
        text += "\n";
        text += &rule_table(&quota);
        for warning in warnings {
            text += &format!("\nwarning: {warning}\n");
        }
        text += "\n";
        text += &match &cards {
            Ok(cards) if cards.is_empty() => "The driver lists no GPU on this machine.\n".to_owned(),
            Ok(cards) => format!("On this machine:\n{}", card_table(&quota, cards)),
            Err(reason) => format!("The GPUs of this machine cannot be listed: {reason}\n"),
        };
        out::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

pub(super) fn refuse(error: &QuotaError, as_json: bool) -> Result<ExitCode, Failure> {
    if as_json {
        let place = error.place.as_ref();
        out::print_json(&json!({
            "file": error.path.display().to_string(),
            "valid": false,
            "error": {
                "line": place.map(|place| place.line),
                "column": place.map(|place| place.column),
                "value": error.value,
                "message": error.message,
                "remedy": error.remedy,
            },
        }))?;
    } else {
        eprint!("{}", error.report());
    }
    Ok(ExitCode::FAILURE)
}

/// Every rule with the GPUs it holds on, in the order in which they are looked through.
pub(super) fn rules(quota: &Quota) -> impl Iterator<Item = (String, Option<&Rule>)> {
    let others = if quota.gpus.is_empty() { "every GPU" } else { "every other GPU" };
    let named = quota.gpus.iter().map(|entry| (entry.selector.to_string(), Some(&entry.rule)));
    named.chain([(others.to_owned(), quota.default.as_ref())])
}

fn rule_table(quota: &Quota) -> String {
    let header = ["ON", "LIMIT", "RESERVE", "GROWTH", "LAZY FROM"].map(str::to_owned).to_vec();
    let row = |(which, rule): (String, Option<&Rule>)| match rule {
        None => vec![which, "none: may not be used".to_owned()],
        Some(rule) => {
            let growth = rule.growth.to_string();
            vec![which, rule.limit.to_string(), rule.reserve.to_string(), growth, exact(rule.lazy_from)]
        }
    };
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(rules(quota).map(row)).collect();
    units::table(&rows, &[])
}

fn card_table(quota: &Quota, cards: &[Card]) -> String {
    let header = ["INDEX", "GPU", "PCI", "CARD", "LIMIT", "RESERVE", "UUID"].map(str::to_owned).to_vec();
    let row = |card: &Card| {
        let (limit, reserve) = match quota.rule_for(&card.identity) {
            None => ("may not be used".to_owned(), "-".to_owned()),
            Some(rule) => (
                rule.limit.bytes(card.total).map_or("unlimited".to_owned(), units::human),
                units::human(rule.reserve_bytes(card.total)),
            ),
        };
        let identity = &card.identity;
        vec![
            identity.pci_index.map_or("-".to_owned(), |index| index.to_string()),
            card.name.clone(),
            identity.pci.map_or("-".to_owned(), |pci| pci.to_string()),
            units::human(card.total),
            limit,
            reserve,
            identity.uuid_text(),
        ]
    };
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(cards.iter().map(row)).collect();
    units::table(&rows, &[3, 4, 5])
}

fn rule_json(which: &str, rule: Option<&Rule>) -> Value {
    json!({
        "on": which,
        "limit": rule.map(|rule| rule.limit.to_string()),
        "limit_bytes": rule.and_then(|rule| match rule.limit {
            Limit::Bytes(bytes) => Some(bytes),
            _ => None,
        }),
        "reserve": rule.map(|rule| rule.reserve.to_string()),
        "growth": rule.map(|rule| rule.growth.to_string()),
        "lazy_from_bytes": rule.map(|rule| rule.lazy_from),
    })
}

fn gpu_json(quota: &Quota, card: &Card) -> Value {
    let rule = quota.rule_for(&card.identity);
    json!({
        "index": card.identity.pci_index,
        "name": card.name,
        "uuid": card.identity.uuid_text(),
        "pci": card.identity.pci.map(|pci| pci.to_string()),
        "card_bytes": card.total,
        "usable": rule.is_some(),
        "limit_bytes": rule.and_then(|rule| rule.limit.bytes(card.total)),
        "reserve_bytes": rule.map(|rule| rule.reserve_bytes(card.total)),
        "growth": rule.map(|rule| rule.growth.to_string()),
    })
}

/// Less than this holds not even one block of the driver.
const SMALLEST_USEFUL: u64 = 2 << 20;

/// What is valid and probably not meant, with the cards of this machine where they are known.
fn warnings(quota: &Quota, cards: &[Card]) -> Vec<String> {
    let tiny = |(which, rule): (String, Option<&Rule>)| match rule?.limit {
        Limit::Bytes(bytes) if (1..SMALLEST_USEFUL).contains(&bytes) => Some(format!(
            "the limit on {which} is {bytes} bytes, less than any program needs: is a unit missing?"
        )),
        _ => None,
    };
    let absent = |entry: &&GpuEntry| !cards.iter().any(|card| entry.selector.matches(&card.identity));
    let absent = quota.gpus.iter().filter(absent).filter(|_| !cards.is_empty()).map(|entry| {
        let (line, gpu) = (entry.line, &entry.selector);
        format!("this machine has no GPU that is {gpu}: the entry on line {line} holds on none")
    });
    let beyond = cards.iter().filter_map(|card| {
        let limit = quota.rule_for(&card.identity)?.limit.bytes(card.total)?;
        let (gpu, more) = (card.identity.uuid_text(), limit > card.total);
        let (limit, total) = (units::human(limit), units::human(card.total));
        more.then(|| format!("{gpu} has {total}: the limit of {limit} leaves programs all of it"))
    });
    rules(quota).filter_map(tiny).chain(absent).chain(beyond).collect()
}
