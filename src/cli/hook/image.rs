//! Whether the programs of an image can load the preload library. One that cannot would run without any limit, or not
//! at all.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use object::LittleEndian;
use object::elf::{EM_AARCH64, EM_X86_64, FileHeader64, PT_INTERP};
use object::read::elf::{FileHeader, ProgramHeader};

use super::bundle::Bundle;
use super::rootfs::Rootfs;
use crate::cli::failure::{Context, Failure};

type Elf = FileHeader64<LittleEndian>;

/// Refuses an image whose C library is not glibc, is too old for the library, or is for another machine.
pub fn check(rootfs: &Rootfs, library: &Path, bundle: &Bundle) -> Result<(), Failure> {
    let bytes = std::fs::read(library).context(format_args!("read {}", library.display()), REINSTALL)?;
    let needs = Needs::of(&bytes)
        .ok_or_else(|| Failure::new(format_args!("{} is damaged", library.display()), REINSTALL))?;
    let refuse = |why: String| {
        Failure::new(
            format_args!("container {} cannot be held to its budget: {why}", bundle.id),
            "use an image with glibc (Debian, Ubuntu, Red Hat and most others) that is new enough, or start this one \
             without a budget",
        )
    };
    if let Some(musl) = musl_program(rootfs, bundle) {
        return Err(refuse(format!("{musl} is a program for musl, which cannot load the preload library")));
    }
    let (loader, directories) = needs.machine.layout();
    if !rootfs.has(Path::new(loader)) {
        return Err(refuse(match musl_loader(rootfs) {
            Some(musl) => {
                format!("the image's C library is musl ({musl}), which cannot load the preload library")
            }
            None => format!("the image has no {loader}, so its programs would not load the preload library"),
        }));
    }
    for directory in directories {
        let path = PathBuf::from(directory).join("libc.so.6");
        let Some(libc) = rootfs.read(&path)? else { continue };
        let Some(defined) = versions_defined(&libc, needs.machine) else { continue };
        let missing = needs.versions.difference(&defined).max_by_key(|version| number(version));
        return match missing {
            None => Ok(()),
            Some(missing) => {
                let newest = defined.iter().max_by_key(|version| number(version)).map_or("?", |v| v.as_str());
                Err(refuse(format!(
                    "the preload library needs {missing}, and the image's {} goes up to {newest}",
                    path.display()
                )))
            }
        };
    }
    let why = match musl_loader(rootfs) {
        Some(musl) => {
            format!("the image's C library is musl ({musl}), which cannot load the preload library")
        }
        None => "the image has no libc.so.6 where glibc keeps it".to_owned(),
    };
    Err(refuse(why))
}

const REINSTALL: &str = "install cuquota again";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Machine {
    X86,
    Arm,
}

impl Machine {
    fn of(elf: &Elf) -> Option<Machine> {
        match elf.e_machine.get(LittleEndian) {
            EM_X86_64 => Some(Machine::X86),
            EM_AARCH64 => Some(Machine::Arm),
            _ => None,
        }
    }

    /// Its loader, which every program names, and the directories where distributions keep its glibc.
    fn layout(self) -> (&'static str, [&'static str; 6]) {
        match self {
            Machine::X86 => (
                "/lib64/ld-linux-x86-64.so.2",
                [
                    "/lib/x86_64-linux-gnu",
                    "/usr/lib/x86_64-linux-gnu",
                    "/lib64",
                    "/usr/lib64",
                    "/lib",
                    "/usr/lib",
                ],
            ),
            Machine::Arm => (
                "/lib/ld-linux-aarch64.so.1",
                [
                    "/lib/aarch64-linux-gnu",
                    "/usr/lib/aarch64-linux-gnu",
                    "/lib64",
                    "/usr/lib64",
                    "/lib",
                    "/usr/lib",
                ],
            ),
        }
    }
}

/// What the library asks of a C library.
struct Needs {
    machine: Machine,
    versions: BTreeSet<String>,
}

impl Needs {
    fn of(bytes: &[u8]) -> Option<Needs> {
        let elf = Elf::parse(bytes).ok()?;
        let sections = elf.sections(LittleEndian, bytes).ok()?;
        let mut versions = BTreeSet::new();
        if let Some((mut needed, link)) = sections.gnu_verneed(LittleEndian, bytes).ok()? {
            let names = sections.strings(LittleEndian, bytes, link).ok()?;
            while let Some((_, mut auxiliary)) = needed.next().ok()? {
                while let Some(version) = auxiliary.next().ok()? {
                    let name = String::from_utf8_lossy(version.name(LittleEndian, names).ok()?).into_owned();
                    if name.starts_with("GLIBC_") {
                        versions.insert(name);
                    }
                }
            }
        }
        Some(Needs { machine: Machine::of(elf)?, versions })
    }
}

/// The versions that a C library offers; `None` if it is none for this machine.
fn versions_defined(bytes: &[u8], machine: Machine) -> Option<BTreeSet<String>> {
    let elf = Elf::parse(bytes).ok().filter(|elf| Machine::of(elf) == Some(machine))?;
    let sections = elf.sections(LittleEndian, bytes).ok()?;
    let (mut defined, link) = sections.gnu_verdef(LittleEndian, bytes).ok()??;
    let names = sections.strings(LittleEndian, bytes, link).ok()?;
    let mut versions = BTreeSet::new();
    while let Some((_, mut auxiliary)) = defined.next().ok()? {
        if let Some(version) = auxiliary.next().ok()? {
            let name = String::from_utf8_lossy(version.name(LittleEndian, names).ok()?).into_owned();
            // GLIBC_PRIVATE and GLIBC_ABI_* say nothing about age.
            if number(&name).is_some() {
                versions.insert(name);
            }
        }
    }
    Some(versions)
}

/// `GLIBC_2.34` as something that orders by age.
fn number(version: &str) -> Option<Vec<u32>> {
    version.strip_prefix("GLIBC_")?.split('.').map(|part| part.parse().ok()).collect()
}

/// The loader of musl, if the image has one.
fn musl_loader(rootfs: &Rootfs) -> Option<String> {
    let musl = rootfs.list(Path::new("/lib")).into_iter().find(|name| name.starts_with("ld-musl-"));
    musl.map(|name| format!("/lib/{name}"))
}

/// The program that the container starts with, if it is one for musl. An image may hold both libraries.
fn musl_program(rootfs: &Rootfs, bundle: &Bundle) -> Option<String> {
    let (program, directories) = bundle.program()?;
    let candidates: Vec<PathBuf> = if program.contains('/') {
        vec![Path::new("/").join(&program)]
    } else {
        directories.iter().map(|directory| Path::new(directory).join(&program)).collect()
    };
    let found = candidates.into_iter().find(|path| rootfs.has(path))?;
    let bytes = rootfs.read(&found).ok()??;
    let interpreter = interpreter(&bytes)?;
    interpreter.contains("ld-musl").then(|| found.display().to_string())
}

/// The loader that a program names.
fn interpreter(bytes: &[u8]) -> Option<String> {
    let elf = Elf::parse(bytes).ok()?;
    let segments = elf.program_headers(LittleEndian, bytes).ok()?;
    let names = segments.iter().find(|segment| segment.p_type(LittleEndian) == PT_INTERP)?;
    let name = names.data(LittleEndian, bytes).ok()?;
    Some(String::from_utf8_lossy(name).trim_end_matches('\0').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_order_by_age_and_only_those_of_glibc_count() {
        assert!(number("GLIBC_2.4") < number("GLIBC_2.17"));
        assert!(number("GLIBC_2.2.5") < number("GLIBC_2.3"));
        assert_eq!(number("GLIBC_PRIVATE"), None);
        assert_eq!(number("GLIBC_ABI_DT_RELR"), None);
    }

    #[test]
    fn this_program_names_a_loader_that_is_not_musl_s() {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        assert!(interpreter(&bytes).unwrap().contains("ld-linux"));
        assert_eq!(interpreter(b"#!/bin/sh"), None);
    }
}
