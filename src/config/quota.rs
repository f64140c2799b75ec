//! What a quota file says, once it has been found valid.

use std::path::Path;
use std::time::Duration;

use super::error::QuotaError;
use super::gpu::{GpuIdentity, GpuSelector};
use super::size::{Percent, Size};
use super::{file, parse};

/// A valid quota file. Immutable; a changed file is a new `Quota` (see [`super::Watch`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    /// The label of this container in reports.
    pub name: Option<String>,
    /// What holds on every GPU that no entry names; `None` where the file has no top-level `limit`, and then
    /// those GPUs may not be used.
    pub default: Option<Rule>,
    /// The `[[gpu]]` entries in the order of the file, what they leave out filled in from the top level.
    pub gpus: Vec<GpuEntry>,
    /// How long a request may wait for a neighbour's memory before it is refused.
    pub wait: Duration,
}

/// One `[[gpu]]` entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuEntry {
    /// The GPU it names.
    pub selector: GpuSelector,
    /// What holds there.
    pub rule: Rule,
    /// The line of its `id` or `index`, counted from 1.
    pub line: usize,
}

/// What holds on one GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The most that this container may hold.
    pub limit: Limit,
    /// What is kept for this container even while it does not use it.
    pub reserve: Size,
    /// What is done about programs that take the whole card at start.
    pub growth: Growth,
    /// The smallest allocation, in bytes, that [`Growth::Lazy`] backs on touch.
    pub lazy_from: u64,
}

impl Rule {
    /// `lazy_from` where the file does not say.
    pub const DEFAULT_LAZY_FROM: u64 = 256 << 20;

    /// The bytes kept for this container on a card of `physical_total` bytes: never more than the limit or the
    /// card, also where one of the two is a percentage and the file could not be refused for it.
    pub fn reserve_bytes(&self, physical_total: u64) -> u64 {
        let most = self.limit.bytes(physical_total).unwrap_or(physical_total).min(physical_total);
        self.reserve.bytes(physical_total).min(most)
    }
}

/// The most that may be held on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// So many bytes; with 0 nothing may be allocated.
    Bytes(u64),
    /// So much of the card.
    Percent(Percent),
    /// No limit: usage is counted only.
    Unlimited,
}

impl Limit {
    /// The limit in bytes on a card of `physical_total` bytes, which may exceed the card; `None` if unlimited.
    pub fn bytes(self, physical_total: u64) -> Option<u64> {
        match self {
            Limit::Bytes(bytes) => Some(bytes),
            Limit::Percent(percent) => Some(percent.of(physical_total)),
            Limit::Unlimited => None,
        }
    }
}

impl From<Size> for Limit {
    fn from(size: Size) -> Self {
        match size {
            Size::Bytes(bytes) => Limit::Bytes(bytes),
            Size::Percent(percent) => Limit::Percent(percent),
        }
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Limit::Bytes(bytes) => Size::Bytes(*bytes).fmt(f),
            Limit::Percent(percent) => percent.fmt(f),
            Limit::Unlimited => f.write_str("unlimited"),
        }
    }
}

/// What is done about programs that take the whole card at start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Growth {
    /// Nothing: programs are left alone.
    Native,
    /// The frameworks' own switches are set where the user has not set them.
    #[default]
    Hints,
    /// As `Hints`, and large allocations take memory only as they are touched.
    Lazy,
}

impl Growth {
    /// Every growth, by its name in the file.
    pub const NAMES: [(&'static str, Growth); 3] =
        [("native", Growth::Native), ("hints", Growth::Hints), ("lazy", Growth::Lazy)];
}

impl std::fmt::Display for Growth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = Self::NAMES.iter().find(|(_, growth)| growth == self).map_or("native", |(name, _)| name);
        f.write_str(name)
    }
}

impl Quota {
    /// Reads the text of a quota file; `path` is for the error. A leading byte order mark is ignored.
    pub fn parse(text: &str, path: &Path) -> Result<Self, QuotaError> {
        parse::quota(text, path)
    }

    /// Reads the quota file at `path`.
    ///
    /// Fails on anything but a valid quota file of at most [`Quota::MAX_BYTES`]; never blocks on a pipe or a
    /// device.
    pub fn load(path: &Path) -> Result<Self, QuotaError> {
        Quota::parse(&file::read(path)?.text, path)
    }

    /// The largest file that is read.
    pub const MAX_BYTES: u64 = 1 << 20;

    /// What holds on `gpu`: the first entry that matches, else the default, else `None`: the file gives this
    /// GPU no limit, and it may not be used.
    pub fn rule_for(&self, gpu: &GpuIdentity) -> Option<&Rule> {
        self.gpus
            .iter()
            .find(|entry| entry.selector.matches(gpu))
            .map(|entry| &entry.rule)
            .or(self.default.as_ref())
    }

    /// What holds on `gpu`, a card of `physical_total` bytes whose place in bus order is not known but is at least
    /// `least`: the smallest limit among the entries that may be meant, which end at the first one that surely is.
    pub fn strictest_rule_for(&self, gpu: &GpuIdentity, least: u32, physical_total: u64) -> Option<&Rule> {
        let mut strictest = None;
        let bytes = |rule: &Rule| rule.limit.bytes(physical_total).unwrap_or(u64::MAX);
        for entry in &self.gpus {
            let surely = entry.selector.matches(gpu);
            let perhaps = matches!(entry.selector, GpuSelector::Index(index) if index >= least);
            if (surely || perhaps) && strictest.is_none_or(|so_far| bytes(&entry.rule) < bytes(so_far)) {
                strictest = Some(&entry.rule);
            }
            if surely {
                return strictest;
            }
        }
        // None of them may be meant, and then it is the default.
        let default = self.default.as_ref()?;
        Some(strictest.filter(|rule| bytes(rule) < bytes(default)).unwrap_or(default))
    }

    /// Refuses a file in which a beginning of a UUID fits several of the `gpus` of this machine.
    pub fn check_unique(&self, path: &Path, gpus: &[GpuIdentity]) -> Result<(), QuotaError> {
        for entry in self.gpus.iter().filter(|entry| matches!(entry.selector, GpuSelector::Uuid(_))) {
            let fits: Vec<String> =
                gpus.iter().filter(|gpu| entry.selector.matches(gpu)).map(GpuIdentity::uuid_text).collect();
            if let [first, second, ..] = fits.as_slice() {
                return Err(QuotaError {
                    value: Some(format!("\"{}\"", entry.selector)),
                    ..QuotaError::whole(
                        path,
                        format!("the id on line {} fits several GPUs ({first} and {second})", entry.line),
                        "write more of the UUID",
                    )
                });
            }
        }
        Ok(())
    }
}
