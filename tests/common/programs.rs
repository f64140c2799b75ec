//! The C programs and plug-ins of `tests/c`, built when they are first needed.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use super::{compiler, sim_dir, target_dir};

/// A program that opens the driver itself: `tests/c/NAME.c`, compiled without linking any driver library.
pub fn c_program(name: &str) -> PathBuf {
    c_build(name, &[])
}

/// A program linked against `libcuda.so.1`, as those are whose compiler found the driver's stub.
pub fn c_program_linked(name: &str) -> PathBuf {
    c_build(name, &["-Wl,--no-as-needed", "-lcuda"])
}

/// A plug-in: `tests/c/NAME.c` as a shared library.
pub fn c_library(name: &str) -> PathBuf {
    c_build(name, &["-shared", "-fPIC"])
}

/// Compiles `tests/c/NAME.c` with these flags on top.
pub fn c_build(name: &str, flags: &[&str]) -> PathBuf {
    c_build_in("tests/c", name, flags)
}

/// Compiles `FOLDER/NAME.c` with these flags on top, unless a build newer than all sources is there. Tests run in
/// parallel, also in several processes: whoever comes first builds, under a lock.
pub fn c_build_in(folder: &str, name: &str, flags: &[&str]) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = root.join(folder).join(name).with_extension("c");
    let out = target_dir().join("tests-c");
    fs::create_dir_all(&out).expect("a directory for test programs");
    let mut hash = DefaultHasher::new();
    (flags, sim_dir()).hash(&mut hash);
    let built = out.join(format!("{name}-{:016x}", hash.finish()));

    let _lock = lock(&out.join("lock"));
    let newest = [folder, "tests/c", "tests/sim"].iter().map(|dir| newest_source(&root.join(dir))).max();
    if modified(&built).is_some_and(|at| Some(at) > newest) {
        return built;
    }
    let fresh = built.with_extension("new");
    let mut cc = Command::new(compiler());
    cc.args(["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]);
    cc.arg("-I").arg(root.join("tests/sim")).arg("-I").arg(root.join("tests/c"));
    cc.arg(&source).arg("-o").arg(&fresh).arg("-L").arg(sim_dir()).args(flags).arg("-ldl").arg("-lm");
    let output = cc.output().unwrap_or_else(|e| panic!("the C harness needs a C compiler: {e}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cannot compile {}:\n{said}", source.display());
    fs::rename(&fresh, &built).expect("the program in place");
    built
}

/// Holds a lock on the file for as long as the value lives.
pub fn lock(path: &Path) -> File {
    let file = File::options().create(true).truncate(false).write(true).open(path);
    let file = file.unwrap_or_else(|e| panic!("cannot open {}: {e}", path.display()));
    file.lock().unwrap_or_else(|e| panic!("cannot lock {}: {e}", path.display()));
    file
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|m| m.modified()).ok()
}

/// When a source or header below the directory last changed.
fn newest_source(dir: &Path) -> SystemTime {
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("cannot list {}: {e}", dir.display()));
    let times = entries.flatten().map(|entry| entry.path()).filter_map(|path| {
        let source = path.extension().is_some_and(|x| x == "c" || x == "h");
        if path.is_dir() { Some(newest_source(&path)) } else { modified(&path).filter(|_| source) }
    });
    times.max().unwrap_or(SystemTime::UNIX_EPOCH)
}
