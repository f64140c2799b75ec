//! The containers of a whole machine, for `status --node`: what each was promised, and the sums that a scheduler needs.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cuquota::config::{Limit, Quota};
use cuquota::ledger::Snapshot;
use serde_json::{Value, json};

use super::cards::{self, Card};
use super::failure::{Context, Failure};
use super::hook::{NODE, stale};
use super::status::ledgers_in;
use super::units::{human, table};

/// One container as its directory on the machine shows it.
struct Member {
    id: String,
    quota: Result<Quota, String>,
    /// Why its state cannot be read, if so.
    unreadable: Option<String>,
    ledgers: Vec<Snapshot>,
    /// It has ended and its runtime has not said so.
    is_dead: bool,
    /// What its state takes in memory or on the disk.
    state_bytes: u64,
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
        match directory.read_dir() {
            // The first container makes it, and every boot takes it away.
            Err(error) if error.kind() == ErrorKind::NotFound && directory == Path::new(NODE) => {}
            listed => drop(listed.context(
                format_args!("list {}", directory.display()),
                "name the hook's directory: --node DIR",
            )?),
        }
        let dead = stale::find(directory);
        let members = stale::ids(directory).into_iter().map(|id| {
            let is_dead = dead.contains(&id);
            let path = directory.join(&id);
            Member::look(id, is_dead, &path)
        });
        let members = members.collect();
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
            ["CONTAINERS", "PHYSICAL", "RESERVED", "LIMITED", "USED", "GPU"].map(str::to_owned).to_vec(),
        ];
        rows.extend(self.sums().iter().map(|sum| {
            let count = self.members.len().to_string();
            let amounts = [sum.card.total, sum.reserved, sum.limited, sum.used].map(human);
            [vec![count], amounts.to_vec(), vec![sum.card.identity.uuid_text()]].concat()
        }));
        text += &table(&rows, &[0, 1, 2, 3, 4]);
        for member in &self.members {
            let wrong = member.quota.as_ref().err().or(member.unreadable.as_ref());
            if let Some(wrong) = wrong {
                text += &format!("container {}: {wrong}\n", member.id);
            }
            if member.is_dead {
                text += &format!(
                    "container {} has ended without its runtime saying so, and is still counted: `cuquota hook prune`\n",
                    member.id
                );
            }
            if member.state_bytes > MUCH_STATE {
                text += &format!(
                    "container {} has put {} into its state, where {} would do: it may mean to fill the disk\n",
                    member.id,
                    human(member.state_bytes),
                    human(MUCH_STATE)
                );
            }
        }
        text
    }
}

/// More state than a container of many programs has.
const MUCH_STATE: u64 = 16 << 20;
/// Files that are looked at in a container's state.
const MOST_FILES: usize = 10_000;

/// What the files in a directory and below it take; some of it where there are very many.
fn bytes_in(directory: &Path, most: usize) -> u64 {
    let (mut sum, mut left) = (0, most);
    let mut waiting = vec![directory.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in directory.read_dir().into_iter().flatten().flatten() {
            let Some(still) = left.checked_sub(1) else { return sum };
            left = still;
            // Of the entry itself: a link is not followed.
            let Ok(found) = entry.metadata() else { continue };
            sum += found.blocks() * 512;
            if found.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    sum
}

impl Member {
    fn look(id: String, is_dead: bool, directory: &Path) -> Self {
        let quota = Quota::load(&directory.join("etc/quota.toml")).map_err(|error| error.to_string());
        let (mut ledgers, mut unreadable) = (Vec::new(), None);
        for path in ledgers_in(&directory.join("state")) {
            match Snapshot::read(&path) {
                Ok(snapshot) => ledgers.push(snapshot),
                Err(why) => unreadable = Some(why.to_string()),
            }
        }
        let state_bytes = bytes_in(&directory.join("state"), MOST_FILES);
        Member { id, quota, unreadable, ledgers, is_dead, state_bytes }
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
            "stale": self.is_dead,
            "state_bytes": self.state_bytes,
            "error": self.quota.as_ref().err().or(self.unreadable.as_ref()),
        })
    }
}
