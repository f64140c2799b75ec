//! A small Debian root made of this machine's own packages, so that images need no registry.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::programs::lock;
use crate::common::target_dir;

/// What the root holds, and whatever these depend on.
const PACKAGES: [&str; 15] = [
    "base-files",
    "bash",
    "coreutils",
    "dash",
    "diffutils",
    "findutils",
    "grep",
    "hostname",
    "libc-bin",
    "libc6",
    "libpam-runtime",
    "login",
    "passwd",
    "sed",
    "util-linux",
];

/// What a compiler needs on top.
const COMPILER: [&str; 4] = ["binutils", "gcc", "libc6-dev", "tar"];

/// A user who is not root.
pub const USER: &str = "worker";

/// The directory of the root, made once. The error says what is missing.
pub fn rootfs() -> Result<PathBuf, String> {
    root("base", &PACKAGES)
}

/// The same with a C compiler.
pub fn with_compiler() -> Result<PathBuf, String> {
    root("compiler", &[PACKAGES.as_slice(), &COMPILER].concat())
}

fn root(name: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let dir = target_dir().join("tests-containers");
    fs::create_dir_all(&dir).expect("a directory for images");
    let _lock = lock(&dir.join("lock"));
    let made = dir.join(name);
    if made.exists() {
        return Ok(made);
    }
    let fresh = made.with_extension("new");
    if fresh.exists() {
        fs::remove_dir_all(&fresh).expect("what an interrupted run left to go");
    }
    fs::create_dir(&fresh).expect("a directory for the root");
    fill(&fresh, packages)?;
    fs::rename(&fresh, &made).expect("the root in place");
    Ok(made)
}

fn fill(root: &Path, packages: &[&str]) -> Result<(), String> {
    let mut paths = BTreeSet::new();
    for name in ["bin", "sbin", "lib", "lib32", "lib64", "libx32"] {
        if Path::new("/").join(name).is_symlink() {
            paths.insert(name.to_string());
        }
    }
    let mut listed = text(Command::new("dpkg-query").arg("-L").args(closure(packages)?))?;
    listed.push_str("/etc/pam.d/common-auth\n/etc/pam.d/common-account\n/etc/pam.d/common-password\n");
    listed
        .push_str("/etc/pam.d/common-session\n/etc/pam.d/common-session-noninteractive\n/etc/pam.d/other\n");
    let unwanted =
        ["/usr/share/doc", "/usr/share/man", "/usr/share/locale", "/usr/share/info", "/usr/share/zoneinfo"];
    for path in listed.lines().filter(|path| !unwanted.iter().any(|start| path.starts_with(start))) {
        // A package may say /bin/sh where /bin is a link: the archive must hold one path for each file.
        let path = Path::new(path);
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { continue };
        let Ok(parent) = parent.canonicalize() else { continue };
        let path = parent.join(name);
        if path.symlink_metadata().is_ok_and(|found| !found.is_dir()) {
            paths.insert(path.strip_prefix("/").expect("canonical").display().to_string());
        }
    }
    let list = root.with_extension("list");
    fs::write(&list, paths.into_iter().collect::<Vec<_>>().join("\n")).expect("a list of files");
    let copy = "tar -C / --create --files-from \"$0\" | tar -C \"$1\" --extract --preserve-permissions";
    text(Command::new("sh").args(["-ec", copy]).arg(&list).arg(root))?;
    for dir in [
        "dev",
        "etc",
        "home",
        "proc",
        "root",
        "run",
        "sys",
        "tmp",
        "usr/local/bin",
        "usr/local/lib",
        "var/tmp",
    ] {
        fs::create_dir_all(root.join(dir)).expect("a directory of the root");
    }
    let file = |name: &str, text: &str| fs::write(root.join(name), text).expect("a file of the root");
    file("etc/passwd", &format!("root:x:0:0::/root:/bin/bash\n{USER}:x:1000:1000::/tmp:/bin/bash\n"));
    file("etc/group", &format!("root:x:0:\n{USER}:x:1000:\n"));
    file("etc/shadow", &format!("root:*:19000:0:99999:7:::\n{USER}:*:19000:0:99999:7:::\n"));
    if root.join("usr/bin/gcc").is_symlink() {
        // Debian chooses this one when the package is installed.
        std::os::unix::fs::symlink("gcc", root.join("usr/bin/cc")).expect("the compiler's other name");
    }
    text(Command::new("chmod").arg("1777").arg(root.join("tmp")).arg(root.join("var/tmp")))?;
    Ok(())
}

/// The packages, and all installed ones that they depend on.
fn closure(packages: &[&str]) -> Result<BTreeSet<String>, String> {
    let format = "${Package}\t${Pre-Depends}, ${Depends}\t${Provides}\n";
    let all = text(Command::new("dpkg-query").args(["-W", "-f", format]))?;
    let mut depends: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in all.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, needs, _] = fields.as_slice() else { continue };
        // Alternatives are all taken, where they are installed.
        let names =
            needs.split([',', '|']).filter_map(|need| need.split([' ', ':', '(']).find(|w| !w.is_empty()));
        depends.insert(name, names.collect());
    }
    let (mut found, mut queue) = (BTreeSet::new(), packages.to_vec());
    while let Some(name) = queue.pop() {
        // perl and debconf are for installing, not for running.
        if name.starts_with("perl") || name.starts_with("debconf") || !depends.contains_key(name) {
            continue;
        }
        if found.insert(name.to_string()) {
            queue.extend(&depends[name]);
        }
    }
    Ok(found)
}

/// What a tool prints; the error is what it complained about, or that it is not there.
pub fn text(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| format!("{program}: {e}"))?;
    if !output.status.success() {
        return Err(format!(
            "{program}: {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
