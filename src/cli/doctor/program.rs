//! Would a program be held at all? The loader preloads nothing into a static program, nor a library of glibc's into a
//! program of musl's.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::findings::Finding;

/// What is wrong with holding `command`, the program of a command line. `everywhere`: the library is preloaded by
/// `/etc/ld.so.preload`, which set-user-ID programs do not shake off.
pub fn examine(command: &Path, everywhere: bool) -> Vec<Finding> {
    let Some(path) = resolve(command) else {
        if is_path(command) && command.exists() {
            return vec![Finding::problem(
                format!("{} cannot be executed", command.display()),
                "make it executable (chmod +x), or name the program that runs it",
            )];
        }
        return vec![Finding::problem(
            format!("{} is not found", command.display()),
            "name a program that is in PATH, or its path",
        )];
    };
    let mut findings = Vec::new();
    let mut file = path;
    // A script is run by its interpreter, which may be a script itself, to the kernel's own limit.
    for _ in 0..5 {
        match Kind::of(&file) {
            Ok(Kind::Script(interpreter)) => file = interpreter,
            Ok(kind) => {
                findings.extend(judge(&file, &kind, everywhere));
                break;
            }
            Err(error) => {
                findings.push(Finding::problem(
                    format!("{} cannot be read: {error}", file.display()),
                    "ask as a user who may read it",
                ));
                break;
            }
        }
    }
    findings
}

fn judge(file: &Path, kind: &Kind, everywhere: bool) -> Option<Finding> {
    let name = file.display();
    let raised = file.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o6000 != 0);
    match kind {
        Kind::Static => Some(Finding::problem(
            format!("{name} is statically linked: no library can be preloaded into it"),
            "build it with dynamic linking, or do not give it the GPU",
        )),
        Kind::Dynamic(loader) if loader.contains("ld-musl") => Some(Finding::problem(
            format!(
                "{name} is linked against musl ({loader}): a preloaded library of glibc's keeps it from starting"
            ),
            "use an image with glibc; NVIDIA's driver libraries need it as well",
        )),
        Kind::Foreign => Some(Finding::problem(
            format!("{name} is built for another machine or word size than this library"),
            "use a 64-bit program of this machine",
        )),
        Kind::Dynamic(_) if raised && !everywhere => Some(Finding::problem(
            format!("{name} is set-user-ID or set-group-ID: such programs drop LD_PRELOAD"),
            "put the library's path into /etc/ld.so.preload",
        )),
        Kind::Other => Some(Finding::problem(
            format!("{name} is neither a program nor a script"),
            "name the program that runs it",
        )),
        Kind::Dynamic(_) => Some(Finding::fine(format!("{name} is dynamically linked"))),
        Kind::Script(_) => None,
    }
}

enum Kind {
    Script(PathBuf),
    Static,
    /// With its loader's path.
    Dynamic(String),
    Foreign,
    Other,
}

impl Kind {
    fn of(path: &Path) -> std::io::Result<Kind> {
        // All that is looked at lies at the beginning, but for the loader's name, which may lie anywhere.
        let mut bytes = Vec::new();
        File::open(path)?.take(64 << 20).read_to_end(&mut bytes)?;
        Ok(Self::of_bytes(&bytes))
    }

    fn of_bytes(bytes: &[u8]) -> Kind {
        if let Some(line) = bytes.strip_prefix(b"#!") {
            let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
            let line = String::from_utf8_lossy(line);
            let mut words = line.split_whitespace();
            return match (words.next(), words.next()) {
                // `env` runs what it finds in PATH.
                (Some(env), Some(program)) if env.ends_with("/env") && !program.starts_with('-') => {
                    Kind::Script(resolve(Path::new(program)).unwrap_or_else(|| env.into()))
                }
                (Some(interpreter), _) => Kind::Script(interpreter.into()),
                (None, _) => Kind::Other,
            };
        }
        if !bytes.starts_with(b"\x7fELF") {
            return Kind::Other;
        }
        const CLASS_64: u8 = 2;
        let machine = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
        if bytes.get(4) != Some(&CLASS_64) || number(bytes, 18, 2) != Some(machine) {
            return Kind::Foreign;
        }
        match loader(bytes) {
            Some(loader) => Kind::Dynamic(loader),
            None => Kind::Static,
        }
    }
}

/// The path in `PT_INTERP`, where there is one.
fn loader(bytes: &[u8]) -> Option<String> {
    const PT_INTERP: u64 = 3;
    let (start, size, count) = (number(bytes, 32, 8)?, number(bytes, 54, 2)?, number(bytes, 56, 2)?);
    let header = |index| start.checked_add(size * index).and_then(|at| usize::try_from(at).ok());
    let at = (0..count).filter_map(header).find(|&at| number(bytes, at, 4) == Some(PT_INTERP))?;
    let (from, length) = (number(bytes, at + 8, 8)? as usize, number(bytes, at + 32, 8)? as usize);
    let text = bytes.get(from..from.checked_add(length)?)?;
    Some(String::from_utf8_lossy(text).trim_end_matches('\0').to_owned())
}

/// A little-endian number in a file.
pub fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(length)?)?;
    Some(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

/// Whether it names a file, rather than something to look for in `PATH`.
fn is_path(command: &Path) -> bool {
    command.as_os_str().to_string_lossy().contains('/')
}

/// Where the shell would find it.
fn resolve(command: &Path) -> Option<PathBuf> {
    let runs =
        |path: &PathBuf| path.metadata().is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0);
    if is_path(command) {
        return Some(command.to_owned()).filter(runs);
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(command)).find(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_apart_by_what_the_kernel_looks_at() {
        let this = std::fs::read("/proc/self/exe").unwrap();
        assert!(matches!(Kind::of_bytes(&this), Kind::Dynamic(loader) if loader.starts_with("/lib")));
        assert!(
            matches!(Kind::of_bytes(b"#!/bin/sh -e\n"), Kind::Script(path) if path == Path::new("/bin/sh"))
        );
        assert!(matches!(Kind::of_bytes(b"hello"), Kind::Other));
        // Without its program headers it has no loader.
        let mut bytes = this[..64].to_vec();
        bytes[56..58].fill(0);
        assert!(matches!(Kind::of_bytes(&bytes), Kind::Static));
        bytes[18] = 0x03;
        assert!(matches!(Kind::of_bytes(&bytes), Kind::Foreign));
        assert!(matches!(Kind::of_bytes(b"\x7fELF"), Kind::Foreign), "cut short");
    }
}
