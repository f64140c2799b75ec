//! Where the preload library is.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::failure::{Context, Failure};

const NAME: &str = "libcuquota.so";

/// Finds the preload library: `named` if given, else beside this executable, else in `../lib/cuquota/` from
/// there. The path is absolute.
pub fn find(named: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = named {
        let found = path.canonicalize();
        let found = found.context(format_args!("find the library {}", path.display()), "see --preload")?;
        return if found.is_file() {
            Ok(found)
        } else {
            Err(Failure::new(
                format_args!("{} is not a library", path.display()),
                "name libcuquota.so in --preload",
            ))
        };
    }
    let executable =
        std::env::current_exe().context("find this executable", "name the library in --preload")?;
    let beside = executable.parent().unwrap_or(Path::new("/"));
    search(beside).ok_or_else(|| {
        Failure::new(
            format_args!("{NAME} is neither in {0} nor in {0}/../lib/cuquota", beside.display()),
            "put it there, or name it in --preload PATH (`cargo build --release` makes target/release/libcuquota.so)",
        )
    })
}

fn search(beside: &Path) -> Option<PathBuf> {
    // Cargo leaves the library in deps/ when it builds no more than the executable, and beside it otherwise: the
    // newer one belongs to this executable.
    let built = [beside.join(NAME), beside.join("deps").join(NAME)];
    let built = built.into_iter().filter_map(|path| Some((modified(&path)?, path))).max();
    let path = match built {
        Some((_, path)) => path,
        None => Some(beside.join("../lib/cuquota").join(NAME)).filter(|path| path.is_file())?,
    };
    path.canonicalize().ok()
}

fn modified(path: &Path) -> Option<SystemTime> {
    let metadata = path.metadata().ok()?;
    metadata.is_file().then(|| metadata.modified().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_found_beside_the_executable_and_then_in_lib() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (bin, lib) = (root.join("bin"), root.join("lib/cuquota"));
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::create_dir_all(&lib).unwrap();
        assert_eq!(search(&bin), None);
        std::fs::write(lib.join(NAME), "").unwrap();
        assert_eq!(search(&bin), Some(lib.join(NAME)));
        std::fs::create_dir(bin.join(NAME)).unwrap();
        assert_eq!(search(&bin), Some(lib.join(NAME)), "a directory is no library");
        std::fs::remove_dir(bin.join(NAME)).unwrap();
        std::fs::write(bin.join(NAME), "").unwrap();
        assert_eq!(search(&bin), Some(bin.join(NAME)));
    }
}
