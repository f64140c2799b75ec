//! The containers of a whole machine, for `status --node`: what each was promised, and the sums that a scheduler needs.

use std::path::Path;

use cuquota::config::{Limit, Quota};
use cuquota::ledger::Snapshot;
use serde_json::{Value, json};

use super::cards::{self, Card};
use super::failure::{Context, Failure};
use super::status::ledgers_in;
use super::units::{human, table};

/// One container as its directory on the machine shows it.
struct Member {
    id: String,
    quota: Result<Quota, String>,
    /// Why its state cannot be read, if so.
    unreadable: Option<String>,
    ledgers: Vec<Snapshot>,
}

/// All containers below one directory, and the machine's GPUs.
pub struct Node {
    members: Vec<Member>,
    cards: Vec<Card>,
    /// Why the machine's GPUs are not known, if so.
    no_cards: Option<String>,
}

/// One GPU, summed over all containers. Amounts are bytes.
struct Sum<'a> {
    card: &'a Card,
    reserved: u64,
    limited: u64,
    used: u64,
}

impl Node {
    /// Looks at every container that the hook has put below `directory`.
    pub fn look(directory: &Path) -> Result<Self, Failure> {
        let listed = directory
            .read_dir()
            .context(format_args!("list {}", directory.display()), "name the hook's directory: --node DIR")?;
        let mut members: Vec<Member> = listed
            .flatten()
            .filter(|entry| entry.path().is_dir())
            .map(|entry| Member::look(entry.file_name().to_string_lossy().into_owned(), &entry.path()))
            .collect();
        members.sort_by(|a, b| a.id.cmp(&b.id));
        let (cards, no_cards) = match cards::list(&Vec::new())? {
            Ok(cards) => (cards, None),
            Err(why) => (Vec::new(), Some(why.to_string())),
        };
        Ok(Node { members, cards, no_cards })
    }

    /// Whether all that is there could be read.
    pub fn is_whole(&self) -> bool {
        self.no_cards.is_none()
            && self.members.iter().all(|member| member.quota.is_ok() && member.unreadable.is_none())
    }

    fn sums(&self) -> Vec<Sum<'_>> {
        let sum = |card| {
            let of = |part: fn(&Member, &Card) -> u64| {
                self.members.iter().fold(0_u64, |sum, member| sum.saturating_add(part(member, card)))
            };
            Sum { card, reserved: of(Member::reserved), limited: of(Member::limited), used: of(Member::used) }
        };
        self.cards.iter().map(sum).collect()
    }

    pub fn json(&self) -> Value {
        let gpus: Vec<Value> = self
            .sums()
            .iter()
            .map(|sum| {
                json!({
                    "uuid": sum.card.identity.uuid_text(),
                    "name": sum.card.name,
                    "physical_bytes": sum.card.total,
                    "reserved_bytes": sum.reserved,
                    "limited_bytes": sum.limited,
                    "used_bytes": sum.used,
                })
            })
            .collect();
        let containers: Vec<Value> = self.members.iter().map(|member| member.json(&self.cards)).collect();
        json!({ "gpus": gpus, "containers": containers, "driver_error": self.no_cards })
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        if let Some(why) = &self.no_cards {
            text += &format!("The GPUs of this machine are not known: {why}\n");
        }
        let mut rows = vec![
            ["GPU", "CONTAINERS", "PHYSICAL", "RESERVED", "LIMITED", "USED"].map(str::to_owned).to_vec(),
        ];
        rows.extend(self.sums().iter().map(|sum| {
            let count = self.members.len().to_string();
            let amounts = [sum.card.total, sum.reserved, sum.limited, sum.used].map(human);
            [vec![sum.card.identity.uuid_text(), count], amounts.to_vec()].concat()
        }));
        text += &table(&rows, &[1, 2, 3, 4, 5]);
        for member in &self.members {
            let wrong = member.quota.as_ref().err().or(member.unreadable.as_ref());
            if let Some(wrong) = wrong {
                text += &format!("container {}: {wrong}\n", member.id);
            }
        }
        text
    }
}

impl Member {
    fn look(id: String, directory: &Path) -> Self {
        let quota = Quota::load(&directory.join("etc/quota.toml")).map_err(|error| error.to_string());
        let (mut ledgers, mut unreadable) = (Vec::new(), None);
        for path in ledgers_in(&directory.join("state")) {
            match Snapshot::read(&path) {
                Ok(snapshot) => ledgers.push(snapshot),
                Err(why) => unreadable = Some(why.to_string()),
            }
        }
        Member { id, quota, unreadable, ledgers }
    }

    fn reserved(&self, card: &Card) -> u64 {
        let rule = self.quota.as_ref().ok().and_then(|quota| quota.rule_for(&card.identity));
        rule.map_or(0, |rule| rule.reserve_bytes(card.total))
    }

    /// The most that it may hold: never more than there is. Without a rule for the card it may hold nothing.
    fn limited(&self, card: &Card) -> u64 {
        let rule = self.quota.as_ref().ok().and_then(|quota| quota.rule_for(&card.identity));
        rule.map_or(0, |rule| rule.limit.bytes(card.total).map_or(card.total, |limit| limit.min(card.total)))
    }

    fn used(&self, card: &Card) -> u64 {
        let states = self.ledgers.iter().flat_map(|ledger| &ledger.gpus);
        states.filter(|gpu| gpu.uuid == card.identity.uuid).fold(0, |sum, gpu| sum.saturating_add(gpu.used))
    }

    fn json(&self, cards: &[Card]) -> Value {
        let gpus: Vec<Value> = cards
            .iter()
            .map(|card| {
                let rule = self.quota.as_ref().ok().and_then(|quota| quota.rule_for(&card.identity));
                json!({
                    "uuid": card.identity.uuid_text(),
                    "reserved_bytes": self.reserved(card),
                    "limited_bytes": self.limited(card),
                    "unlimited": rule.is_some_and(|rule| rule.limit == Limit::Unlimited),
                    "used_bytes": self.used(card),
                })
            })
            .collect();
        json!({
            "id": self.id,
            "name": self.quota.as_ref().ok().and_then(|quota| quota.name.clone()),
            "gpus": gpus,
            "error": self.quota.as_ref().err().or(self.unreadable.as_ref()),
        })
    }
}
