//! What the runtime says about a container: its state, and the configuration in its bundle.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::cli::failure::{Context, Failure};

/// A container as its runtime describes it.
pub struct Bundle {
    /// Its id, which is fit for the name of a file.
    pub id: String,
    /// Its annotations: those of its configuration, and of its state where both have one.
    pub annotations: BTreeMap<String, String>,
    directory: PathBuf,
    /// Null once the bundle is gone, as it may be at poststop.
    config: Value,
}

impl Bundle {
    /// Reads the state that a runtime writes to its hooks' standard input, and the configuration it names.
    pub fn from_state(mut input: impl Read) -> Result<Self, Failure> {
        let mut state = String::new();
        input.read_to_string(&mut state).context("read the container's state", RUNTIME)?;
        let directory = text(&json("the container's state", &state)?, "/bundle").unwrap_or_default();
        let path = Path::new(&directory).join("config.json");
        match std::fs::read_to_string(&path) {
            Ok(config) => Self::parse(&state, &config),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Self::parse(&state, "null"),
            Err(error) => Err(error).context(format_args!("read {}", path.display()), "run the hook as root"),
        }
    }

    /// The same from texts.
    pub fn parse(state: &str, config: &str) -> Result<Self, Failure> {
        let state = json("the container's state", state)?;
        let config = json("the bundle's config.json", config)?;
        let id = text(&state, "/id").unwrap_or_default();
        let letter = |c: char| c.is_ascii_alphanumeric() || "_-+.".contains(c);
        if id.is_empty() || id.starts_with('.') || id.len() > 200 || !id.chars().all(letter) {
            return Err(Failure::new(format_args!("the container's state has the id {id:?}"), RUNTIME));
        }
        let mut annotations = BTreeMap::new();
        for source in [&config, &state] {
            let listed = source.get("annotations").and_then(Value::as_object);
            let texts = listed.into_iter().flatten();
            annotations
                .extend(texts.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))));
        }
        let directory = text(&state, "/bundle").unwrap_or_default().into();
        Ok(Bundle { id, annotations, directory, config })
    }

    /// The directory that becomes the container's `/`.
    pub fn rootfs(&self) -> Result<PathBuf, Failure> {
        let root = text(&self.config, "/root/path").ok_or_else(|| {
            Failure::new(
                format_args!("{}/config.json names no root file system", self.directory.display()),
                RUNTIME,
            )
        })?;
        Ok(self.directory.join(root))
    }

    /// Whether the runtime itself mounts something at exactly this path.
    pub fn mounts_at(&self, path: impl AsRef<Path>) -> bool {
        let mounts = self.config.get("mounts").and_then(Value::as_array);
        // Comparing paths by component, so that a slash at the end does not matter.
        mounts
            .into_iter()
            .flatten()
            .filter_map(|mount| text(mount, "/destination"))
            .any(|at| Path::new(&at) == path.as_ref())
    }

    /// The program that the container starts with, and where it is looked for.
    pub fn program(&self) -> Option<(String, Vec<String>)> {
        let program = text(&self.config, "/process/args/0")?;
        let env = self.config.pointer("/process/env").and_then(Value::as_array);
        let path = env.into_iter().flatten().filter_map(Value::as_str).find_map(|v| v.strip_prefix("PATH="));
        let directories = path.unwrap_or("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        Some((program, directories.split(':').map(str::to_owned).collect()))
    }
}

const RUNTIME: &str =
    "this command is called by a container runtime, which writes the container's state as JSON to it";

fn json(what: &str, text: &str) -> Result<Value, Failure> {
    serde_json::from_str(text)
        .map_err(|error| Failure::new(format_args!("{what} is not JSON: {error}"), RUNTIME))
}

fn text(value: &Value, pointer: &str) -> Option<String> {
    value.pointer(pointer).and_then(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_is_no_file_name_is_refused() {
        for id in ["", ".", "..", "a/b", "../x", "a b"] {
            let state = serde_json::json!({ "id": id, "bundle": "/b" }).to_string();
            assert!(Bundle::parse(&state, "null").is_err(), "{id:?}");
        }
        assert!(Bundle::parse("", "null").is_err());
        assert!(Bundle::parse(r#"{"id":"a_b-c.1","bundle":"/b"}"#, "null").is_ok());
    }

    #[test]
    fn the_root_may_be_named_from_the_bundle() {
        let of = |root: &str| {
            let config = serde_json::json!({ "root": { "path": root } }).to_string();
            Bundle::parse(r#"{"id":"a","bundle":"/b"}"#, &config).unwrap().rootfs().unwrap()
        };
        assert_eq!(of("rootfs"), Path::new("/b/rootfs"));
        assert_eq!(of("/r"), Path::new("/r"));
    }
}
