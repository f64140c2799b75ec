//! The simulated driver that the executable carries.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use cuquota::config::{Size, exact};

use super::failure::{Context, Failure};
use super::sim_version;

/// The two libraries, by the names that programs link to. Programs also open the names without a version.
const LIBRARIES: [(&str, &str, &[u8]); 2] = [
    ("libcuda.so.1", "libcuda.so", include_bytes!(concat!(env!("CUQUOTA_SIM_DIR"), "/libcuda.so.1"))),
    (
        "libnvidia-ml.so.1",
        "libnvidia-ml.so",
        include_bytes!(concat!(env!("CUQUOTA_SIM_DIR"), "/libnvidia-ml.so.1")),
    ),
];

/// The card that `--sim` alone means.
pub const DEFAULT_CARDS: &str = "16GiB";

/// A simulated machine, unpacked and ready to be put before a program.
pub struct Sim {
    libraries: PathBuf,
    cards: PathBuf,
    spec: String,
}

impl Sim {
    /// Unpacks the driver into `dir`, which must be private to this run. `spec` names the cards, which live in
    /// `cards` and are shared with every run that names the same directory.
    pub fn unpack(dir: &Path, cards: PathBuf, spec: &str) -> Result<Self, Failure> {
        let spec = parse(spec)?;
        let libraries = dir.join("driver");
        let fresh = "is there room in the temporary directory? TMPDIR names another";
        std::fs::create_dir(&libraries).context(format_args!("create {}", libraries.display()), fresh)?;
        for (soname, name, bytes) in LIBRARIES {
            let path = libraries.join(soname);
            let bytes = match sim_version::asked(&spec) {
                Some(version) => Cow::Owned(sim_version::as_of(bytes, version)?),
                None => Cow::Borrowed(bytes),
            };
            let written = std::fs::write(&path, &bytes).and_then(|()| symlink(soname, libraries.join(name)));
            written.context(format_args!("write {}", path.display()), fresh)?;
        }
        let created = std::fs::create_dir_all(&cards);
        created
            .context(format_args!("create {}", cards.display()), "name a directory of yours in --sim-dir")?;
        Ok(Sim { libraries, cards, spec })
    }

    /// The variables that put this machine before a program.
    pub fn variables(&self) -> Result<Vec<(&'static str, OsString)>, Failure> {
        let path = super::session::prepend(&self.libraries, "LD_LIBRARY_PATH")?;
        Ok(vec![
            ("LD_LIBRARY_PATH", path),
            ("SIMGPU_SPEC", self.spec.clone().into()),
            ("SIMGPU_DIR", self.cards.clone().into()),
        ])
    }
}

/// Refuses what is no card before the program meets a driver that cannot start, and writes each size exactly.
fn parse(spec: &str) -> Result<String, Failure> {
    let mut cards = 0;
    let mut parts = Vec::new();
    for part in spec.split(',').map(str::trim) {
        if part.contains('=') {
            parts.push(part.to_owned());
            continue;
        }
        cards += 1;
        match Size::parse(part) {
            Ok(Size::Bytes(bytes)) if bytes > 0 => parts.push(exact(bytes)),
            _ => {
                return Err(Failure::new(
                    format_args!("--sim {spec}: \"{part}\" is not the size of a card"),
                    "write sizes with commas between, like --sim 16GiB,24GiB, and -- before the command",
                ));
            }
        }
    }
    if cards == 0 {
        parts.insert(0, DEFAULT_CARDS.to_owned());
    }
    Ok(parts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_sizes_and_the_rest_are_options() {
        assert_eq!(parse("16GiB, 24 GiB").unwrap(), "16GiB,24GiB");
        assert_eq!(parse("1.5GiB,context=0").unwrap(), "1536MiB,context=0");
        assert_eq!(parse("driver=12.9").unwrap(), "16GiB,driver=12.9");
        for spec in ["python", "", "16g", "0", "25%", "16GiB,,8GiB"] {
            assert!(parse(spec).unwrap_err().to_string().contains("--sim"), "{spec}");
        }
    }
}
