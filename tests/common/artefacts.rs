//! What has been built, and for which kind of machine: the one that tests, or one that it emulates.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The kind of machine whose programs are tested, such as `aarch64`, if it is not this one: they are what
/// `./release MACHINE` built. The kernel must know an emulator for them, see packaging/emulate.
fn emulated() -> Option<String> {
    std::env::var("CUQUOTA_TEST_MACHINE").ok()
}

/// Where `./release` puts what it builds for that machine.
fn released(machine: &str) -> PathBuf {
    target_dir().join(format!("release-build/{machine}-unknown-linux-gnu/release"))
}

/// Where cargo puts what it builds; everything that the tests keep between runs lies below it.
pub fn target_dir() -> PathBuf {
    let profile = Path::new(env!("CARGO_BIN_EXE_cuquota")).parent().expect("the command lies in a directory");
    profile.parent().expect("target/PROFILE").to_path_buf()
}

/// The built command.
pub fn cuquota() -> PathBuf {
    match emulated() {
        Some(machine) => released(&machine).join("cuquota"),
        None => PathBuf::from(env!("CARGO_BIN_EXE_cuquota")),
    }
}

/// The built preload library. `cargo build` leaves it beside the command, `cargo test` alone in `deps`.
pub fn preload() -> PathBuf {
    let beside = cuquota().with_file_name("libcuquota.so");
    let in_deps = cuquota().with_file_name("deps").join("libcuquota.so");
    newest([beside, in_deps]).unwrap_or_else(|| panic!("libcuquota.so is not beside {}", cuquota().display()))
}

/// The directory of the simulated `libcuda.so.1` and `libnvidia-ml.so.1`.
pub fn sim_dir() -> PathBuf {
    let Some(machine) = emulated() else { return PathBuf::from(env!("CUQUOTA_SIM_DIR")) };
    let builds = released(&machine).join("build");
    let entries = fs::read_dir(&builds).unwrap_or_else(|e| panic!("cannot list {}: {e}", builds.display()));
    let built = newest(entries.flatten().map(|entry| entry.path().join("out/sim")));
    built.unwrap_or_else(|| panic!("no simulated driver below {}", builds.display()))
}

/// The C compiler for programs that are tested.
pub fn compiler() -> OsString {
    let named = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    emulated().map_or(named, |machine| format!("{machine}-linux-gnu-gcc").into())
}

/// Of those that are there, the one that was changed last.
fn newest(paths: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
    let changed = |path: &PathBuf| fs::metadata(path).and_then(|meta| meta.modified()).ok();
    let there = paths.into_iter().filter_map(|path| Some((changed(&path)?, path)));
    there.max_by_key(|(at, _): &(SystemTime, PathBuf)| *at).map(|(_, path)| path)
}
