//! Whatever lies at the path of the quota file.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use cuquota::config::{Quota, QuotaError};

fn loading(path: &Path) -> QuotaError {
    let error = Quota::load(path).expect_err("refused");
    assert!(error.to_string().starts_with(&format!("cuquota: {}", path.display())), "{error}");
    assert!(!error.remedy.is_empty());
    error
}

#[test]
fn whatever_else_lies_at_the_path_is_refused_in_its_own_words() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);

    assert!(loading(&at("missing")).message.contains("missing"));

    fs::create_dir(at("directory")).unwrap();
    assert!(loading(&at("directory")).message.contains("directory"));

    symlink("nowhere", at("dangling")).unwrap();
    assert!(loading(&at("dangling")).message.contains("link to nothing"));

    symlink("loop", at("loop")).unwrap();
    assert!(loading(&at("loop")).message.contains("cannot be read"));

    fs::write(at("empty"), "").unwrap();
    assert!(loading(&at("empty")).message.contains("empty"));
    assert!(loading(&at("empty/below")).message.contains("cannot be read"));

    assert!(loading(Path::new("/dev/null")).message.contains("device"));
    assert!(loading(Path::new("/dev/zero")).message.contains("device"));

    fs::write(at("truncated"), "name = \"trainer\"\nlimit = \"4Gi").unwrap();
    assert_eq!(loading(&at("truncated")).place.unwrap().line, 2);

    fs::write(at("binary"), b"limit = 1\n# \xff\xfe\n").unwrap();
    let error = loading(&at("binary"));
    assert!(error.message.contains("UTF-8"), "{error}");
    assert_eq!(error.place.map(|place| (place.line, place.column)), Some((2, 3)));

    let padding = "#".repeat(Quota::MAX_BYTES as usize);
    fs::write(at("large"), format!("limit = 1\n{}", &padding[10..])).unwrap();
    assert!(Quota::load(&at("large")).is_ok(), "exactly the largest size");
    fs::write(at("larger"), format!("limit = 1\n{}", &padding[9..])).unwrap();
    assert!(loading(&at("larger")).message.contains("1 MiB"));

    let long = PathBuf::from("/".to_owned() + &"x/".repeat(4000));
    assert!(loading(&long).message.contains("cannot be read"));
}

#[test]
fn pipes_and_sockets_are_refused_instead_of_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert!(loading(&pipe).message.contains("pipe"));
    let socket = dir.path().join("socket");
    let _listening = UnixListener::bind(&socket).unwrap();
    assert!(loading(&socket).message.contains("socket"));
}
