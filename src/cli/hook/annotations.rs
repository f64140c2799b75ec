//! The budget that a container asks for: its annotations, and behind them the flags of the hook.

use std::path::Path;

use clap::Args;
use cuquota::config::{Quota, Source};

use super::bundle::Bundle;
use crate::cli::failure::Failure;

/// What every annotation of ours begins with.
const PREFIX: &str = "cuquota.dev/";
/// The keys of the quota file that an annotation or a flag may set.
const KEYS: [&str; 4] = ["limit", "reserve", "growth", "name"];
/// How much of a container's id names it where nothing else does.
const SHORT_ID: usize = 12;

/// A budget in flags; a CDI device carries its own so.
#[derive(Args, Default)]
pub struct Given {
    /// The most that the container may hold on each GPU, where no annotation says
    #[arg(long, value_name = "SIZE")]
    pub limit: Option<String>,

    /// Memory kept for the container even while it is not used, where no annotation says
    #[arg(long, value_name = "SIZE")]
    pub reserve: Option<String>,

    /// What is done about programs that take the whole card at start, where no annotation says
    #[arg(long, value_name = "GROWTH")]
    pub growth: Option<String>,
}

/// One setting, and how it was given.
struct Setting {
    key: &'static str,
    value: String,
    words: String,
}

impl Given {
    /// The text of the quota file that the container asks for. `None` where nothing was said and the runtime mounts
    /// a quota file; an error where there is neither, or a value is wrong.
    pub fn quota(&self, bundle: &Bundle) -> Result<Option<String>, Failure> {
        let annotated = annotated(bundle)?;
        let mounted =
            bundle.mounts_at(Source::GOVERNING) || bundle.mounts_at(super::directory_of(Source::GOVERNING));
        if annotated.is_empty() && mounted {
            return Ok(None);
        }
        let mut settings = annotated;
        for (key, value) in [("limit", &self.limit), ("reserve", &self.reserve), ("growth", &self.growth)] {
            if let Some(value) = value
                && !settings.iter().any(|setting| setting.key == key)
            {
                settings.push(Setting { key, value: value.clone(), words: format!("--{key} {value}") });
            }
        }
        if !settings.iter().any(|setting| setting.key == "limit") {
            return Err(Failure::new(
                format_args!("container {} has no limit", bundle.id),
                format_args!(
                    "annotate it with {PREFIX}limit=4GiB, mount a quota file at {}, or give the hook --limit",
                    Source::GOVERNING
                ),
            ));
        }
        if !settings.iter().any(|setting| setting.key == "name") {
            let name = bundle.id.chars().take(SHORT_ID).collect();
            settings.push(Setting { key: "name", value: name, words: "the container's id".to_owned() });
        }
        text(&settings).map(Some)
    }

    /// The text of a quota file of these settings alone, for a CDI device. An error names `whose` they are.
    pub fn to_toml(&self, whose: &str) -> Result<String, Failure> {
        let given = [("limit", &self.limit), ("reserve", &self.reserve), ("growth", &self.growth)];
        let settings = given.into_iter().filter_map(|(key, value)| {
            let value = value.clone()?;
            Some(Setting { key, words: format!("{whose}: {key} = {value}"), value })
        });
        text(&settings.collect::<Vec<_>>())
    }
}

/// The settings in the annotations. One that begins as ours do and is not known is refused: a mistyped limit must not
/// read as none.
fn annotated(bundle: &Bundle) -> Result<Vec<Setting>, Failure> {
    let mut settings = Vec::new();
    for (name, value) in &bundle.annotations {
        let Some(key) = name.strip_prefix(PREFIX) else { continue };
        let Some(key) = KEYS.into_iter().find(|known| *known == key) else {
            return Err(Failure::new(
                format_args!("annotation {name}: there is no such setting"),
                format_args!("{PREFIX} goes before limit, reserve, growth or name"),
            ));
        };
        settings.push(Setting { key, value: value.clone(), words: format!("annotation {name}={value}") });
    }
    Ok(settings)
}

/// A line a setting; an error names the setting as it was given.
fn text(settings: &[Setting]) -> Result<String, Failure> {
    // What JSON escapes, TOML reads.
    let line = |setting: &Setting| {
        format!("{} = {}\n", setting.key, serde_json::Value::from(setting.value.as_str()))
    };
    let text: String = settings.iter().map(line).collect();
    match Quota::parse(&text, Path::new("settings")) {
        Ok(_) => Ok(text),
        Err(error) => {
            let line = error.place.as_ref().map_or(1, |place| place.line);
            let words = settings.get(line.saturating_sub(1)).map_or("the settings", |s| s.words.as_str());
            Err(Failure::new(format_args!("{words}: {}", error.message), error.remedy))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(annotations: &[(&str, &str)], mounts: &str) -> Bundle {
        let annotations: serde_json::Map<String, serde_json::Value> =
            annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).into())).collect();
        let state =
            serde_json::json!({ "id": "0123456789abcdef", "bundle": "/b", "annotations": annotations });
        Bundle::parse(&state.to_string(), &format!(r#"{{"root":{{"path":"r"}},"mounts":{mounts}}}"#)).unwrap()
    }

    fn limit(text: &str) -> String {
        Quota::parse(text, Path::new("x")).unwrap().default.unwrap().limit.to_string()
    }

    #[test]
    fn annotations_win_over_flags_setting_by_setting() {
        let flags = Given { limit: Some("4GiB".into()), reserve: Some("1GiB".into()), growth: None };
        let bundle = bundle(&[("cuquota.dev/limit", "8GiB"), ("io.kubernetes.pod", "x")], "[]");
        let quota = Quota::parse(&flags.quota(&bundle).unwrap().unwrap(), Path::new("x")).unwrap();
        let rule = quota.default.unwrap();
        assert_eq!(rule.limit.bytes(1 << 40), Some(8 << 30));
        assert_eq!(rule.reserve_bytes(1 << 40), 1 << 30);
        assert_eq!(quota.name.as_deref(), Some("0123456789ab"));
    }

    #[test]
    fn a_mounted_quota_file_stays_unless_an_annotation_says_otherwise() {
        for destination in ["/etc/cuquota", "/etc/cuquota/quota.toml", "/etc/cuquota/"] {
            let mounts = format!(r#"[{{"destination":"{destination}"}}]"#);
            let flags = Given { limit: Some("4GiB".into()), ..Given::default() };
            assert!(flags.quota(&bundle(&[], &mounts)).unwrap().is_none());
            let annotated = flags.quota(&bundle(&[("cuquota.dev/limit", "1GiB")], &mounts));
            assert_eq!(limit(&annotated.unwrap().unwrap()), "1GiB");
        }
    }

    #[test]
    fn what_is_wrong_is_refused_by_the_name_it_was_given_under() {
        let refused = |annotations: &[(&str, &str)]| {
            Given::default().quota(&bundle(annotations, "[]")).unwrap_err().to_string()
        };
        assert!(refused(&[]).contains("has no limit"));
        assert!(refused(&[("cuquota.dev/limt", "4GiB")]).contains("annotation cuquota.dev/limt"));
        assert!(refused(&[("cuquota.dev/reserve", "4GiB")]).contains("has no limit"));
        let wrong = refused(&[("cuquota.dev/growth", "lazy"), ("cuquota.dev/limit", "4g")]);
        assert!(wrong.contains("annotation cuquota.dev/limit=4g"), "{wrong}");
        assert!(wrong.contains("4GiB"), "{wrong}");
    }
}
