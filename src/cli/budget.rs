//! A budget given by flags, as the quota file that it stands for.

use std::path::{Path, PathBuf};

use clap::Args;
use cuquota::config::{Growth, Quota};

use super::failure::Failure;

/// The flags that describe a budget.
#[derive(Args, Default)]
pub struct Budget {
    /// The most that may be held on each GPU: 4GiB, 1.5GB, 512Mi, 25% of the card, or unlimited (count only)
    #[arg(long, value_name = "SIZE", conflicts_with = "quota", allow_hyphen_values = true)]
    limit: Option<String>,

    /// The limit on one GPU, by UUID or its beginning, PCI bus id, or index in PCI bus order; may be repeated
    #[arg(long, value_name = "ID=SIZE", conflicts_with = "quota")]
    gpu: Vec<String>,

    /// What is done about programs that take the whole card at start: native (nothing), hints, lazy
    #[arg(long, value_name = "GROWTH", conflicts_with = "quota")]
    growth: Option<String>,

    /// Memory kept for this budget even while it is not used
    #[arg(long, value_name = "SIZE", conflicts_with = "quota", allow_hyphen_values = true)]
    reserve: Option<String>,

    /// A label for reports
    #[arg(long, value_name = "NAME", conflicts_with = "quota")]
    name: Option<String>,

    /// A quota file, in place of all of these
    #[arg(long, value_name = "FILE")]
    pub quota: Option<PathBuf>,
}

impl Budget {
    /// Whether nothing was said.
    pub fn is_empty(&self) -> bool {
        self.flags().is_empty() && self.quota.is_none()
    }

    /// The text of the quota file that the flags stand for. An error names the flag.
    pub fn to_toml(&self) -> Result<String, Failure> {
        if self.limit.is_none() && self.gpu.is_empty() {
            return Err(Failure::new(
                "no limit was given",
                "say --limit 4GiB (or 25% of the card, or unlimited), --gpu ID=SIZE, or --quota FILE",
            ));
        }
        let flags = self.flags();
        let lines: Vec<&str> = flags.iter().flat_map(|flag| flag.lines.iter().map(String::as_str)).collect();
        let text = lines.join("\n") + "\n";
        match Quota::parse(&text, Path::new("flags")) {
            Ok(_) => Ok(text),
            Err(error) => {
                let line = error.place.as_ref().map_or(1, |place| place.line);
                let (mut end, mut blamed, mut message) = (0, "the flags", error.message);
                for flag in &flags {
                    let lines = end + 1..=end + flag.lines.len();
                    end += flag.lines.len();
                    if lines.contains(&line) {
                        blamed = &flag.words;
                    }
                    // The user knows flags and no lines.
                    for line in lines {
                        message =
                            message.replace(&format!("on line {line} "), &format!("in {} ", flag.words));
                    }
                }
                Err(Failure::new(format_args!("{blamed}: {message}"), error.remedy))
            }
        }
    }

    fn flags(&self) -> Vec<Flag> {
        let simple = [
            ("limit", &self.limit),
            ("growth", &self.growth),
            ("reserve", &self.reserve),
            ("name", &self.name),
        ];
        let mut flags: Vec<Flag> = simple
            .into_iter()
            .filter_map(|(key, value)| {
                let value = value.as_ref()?;
                let lines = vec![format!("{key} = {}", quoted(value))];
                Some(Flag { words: format!("--{key} {value}"), lines })
            })
            .collect();
        flags.extend(self.gpu.iter().map(|given| {
            // Without a "=" the size is missing, and is refused as such.
            let (id, size) = given.split_once('=').unwrap_or((given, ""));
            let by_index = !id.is_empty() && id.len() <= 4 && id.bytes().all(|b| b.is_ascii_digit());
            let selector = if by_index { format!("index = {id}") } else { format!("id = {}", quoted(id)) };
            let lines = vec!["[[gpu]]".to_owned(), selector, format!("limit = {}", quoted(size))];
            Flag { words: format!("--gpu {given}"), lines }
        }));
        flags
    }
}

/// One flag as it was given, and the lines of the quota file that it becomes.
struct Flag {
    words: String,
    lines: Vec<String>,
}

/// A string of the quota file. What JSON escapes, TOML reads.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// For whoever sets a budget from inside, like the demonstration.
pub fn simple(name: &str, limit: &str) -> Result<String, Failure> {
    let growth = Some(Growth::Native.to_string());
    Budget { limit: Some(limit.to_owned()), name: Some(name.to_owned()), growth, ..Budget::default() }
        .to_toml()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(limit: &str, gpu: &[&str]) -> Budget {
        let gpu = gpu.iter().map(|s| (*s).to_owned()).collect();
        Budget { limit: (!limit.is_empty()).then(|| limit.to_owned()), gpu, ..Budget::default() }
    }

    #[test]
    fn flags_become_the_quota_file_that_says_the_same() {
        let flags = Budget {
            name: Some("a \"b\"\\c".into()),
            growth: Some("lazy".into()),
            reserve: Some("1GiB".into()),
            ..budget("4GiB", &["0=8GiB", "GPU-8f4c=unlimited", "01:00.0=25%"])
        };
        let quota = Quota::parse(&flags.to_toml().unwrap(), Path::new("x")).unwrap();
        assert_eq!(quota.name.as_deref(), Some("a \"b\"\\c"));
        assert_eq!(quota.default.as_ref().unwrap().limit.bytes(1 << 40), Some(4 << 30));
        let entries: Vec<String> =
            quota.gpus.iter().map(|entry| format!("{}={}", entry.selector, entry.rule.limit)).collect();
        assert_eq!(entries, ["index 0=8GiB", "GPU-8f4c=unlimited", "0000:01:00.0=25%"]);
        assert!(quota.gpus.iter().all(|entry| entry.rule.growth == Growth::Lazy));
    }

    #[test]
    fn an_error_names_the_flag_and_the_remedy() {
        for (flags, words) in [
            (budget("4g", &[]), ["--limit 4g: unknown unit", "4GiB (powers of 1024) or 4GB"]),
            (budget("4GiB", &["0=1GiB", "1=2g"]), ["--gpu 1=2g: unknown unit", "2GiB"]),
            (
                budget("4GiB", &["0=1GiB", "0=2GiB"]),
                ["--gpu 0=2GiB: this GPU", "an entry in --gpu 0=1GiB already"],
            ),
            (budget("4GiB", &["GPU-8f4c"]), ["--gpu GPU-8f4c: no size", "4GiB"]),
            (budget("4GiB", &["RTX=1GiB"]), ["--gpu RTX=1GiB: neither a UUID", "nvidia-smi -L"]),
            (budget("", &[]), ["no limit was given", "--limit 4GiB"]),
            (Budget { growth: Some("fast".into()), ..budget("1", &[]) }, ["--growth fast", "\"lazy\""]),
            (Budget { reserve: Some("2".into()), ..budget("1", &[]) }, ["--reserve 2", "lower the reserve"]),
            (Budget { name: Some("a\nb".into()), ..budget("1", &[]) }, ["--name a", "one line"]),
        ] {
            let error = flags.to_toml().unwrap_err().to_string();
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
    }
}
