//! Containers that must not start, because nothing would hold them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::base::text;
use crate::common::{Finished, Run, cuquota, temp_dir};
use crate::engine::{Engine, Want};
use crate::{host, limited, remembered};

/// A root that has a loader and a C library as the closure makes them.
fn image(make: impl Fn(&Path)) -> tempfile::TempDir {
    let dir = temp_dir("image");
    for name in [
        "bin",
        "dev",
        "etc",
        "lib",
        "lib64",
        "lib/x86_64-linux-gnu",
        "proc",
        "run",
        "sys",
        "tmp",
        "usr/local",
    ] {
        fs::create_dir_all(dir.path().join(name)).expect("a directory");
    }
    make(dir.path());
    dir
}

/// Runs the hook as a runtime does.
fn hook(image: &Path, limit: &str) -> Finished {
    let bundle = temp_dir("bundle");
    let config = json!({ "root": { "path": image }, "process": { "args": ["sh"], "env": ["PATH=/bin"] } });
    fs::write(bundle.path().join("config.json"), config.to_string()).expect("a bundle");
    let state = json!({
        "ociVersion": "1.0.2", "id": "c1", "status": "creating", "bundle": bundle.path(),
        "annotations": { "cuquota.dev/limit": limit },
    });
    let node = bundle.path().join("node");
    let hook = Run::new(cuquota()).args(["hook", "createContainer", "--node"]).arg(&node);
    let finished = hook.input(state.to_string()).finish();
    assert!(!node.exists(), "a refused container leaves nothing");
    finished
}

fn glibc_loader(root: &Path) {
    fs::write(root.join("lib64/ld-linux-x86-64.so.2"), "").expect("a loader");
}

/// A C library whose newest version is `GLIBC_newest`.
fn glibc(root: &Path, newest: &str) {
    glibc_loader(root);
    let (source, map) = (root.join("tmp/libc.c"), root.join("tmp/libc.map"));
    fs::write(&source, "int one = 1, two = 2;\n").expect("a source");
    fs::write(&map, format!("GLIBC_2.2.5 {{ global: one; }};\nGLIBC_{newest} {{ global: two; }};\n"))
        .expect("a map");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-nostdlib", "-fPIC", "-Wl,-soname,libc.so.6", "-Wl,--version-script"])
        .arg(map)
        .arg(source);
    text(cc.arg("-o").arg(root.join("lib/x86_64-linux-gnu/libc.so.6"))).expect("a C compiler");
}

#[track_caller]
fn refused(finished: &Finished, words: &[&str]) {
    assert_eq!(finished.code(), 125, "{finished}");
    for words in words {
        assert!(finished.stderr.contains(words), "{words:?} in {finished}");
    }
    assert!(finished.stderr.lines().count() == 2, "what, and what to do: {finished}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_c_library_that_cannot_load_the_preload_library_is_refused_and_named() {
    let musl = image(|root| fs::write(root.join("lib/ld-musl-x86_64.so.1"), "").expect("a loader"));
    refused(&hook(musl.path(), "4GiB"), &["container c1 cannot be held", "musl", "glibc"]);

    let old = image(|root| glibc(root, "2.16"));
    refused(&hook(old.path(), "4GiB"), &["needs GLIBC_", "libc.so.6 goes up to GLIBC_2.16"]);

    let none = image(|_| {});
    refused(&hook(none.path(), "4GiB"), &["no /lib64/ld-linux-x86-64.so.2"]);

    // A stand-in for glibc's loader on a musl system, as gcompat brings it.
    let posing = image(|root| {
        glibc_loader(root);
        fs::write(root.join("lib/ld-musl-x86_64.so.1"), "").expect("a loader");
    });
    refused(&hook(posing.path(), "4GiB"), &["musl"]);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_limit_that_is_not_understood_is_refused() {
    let image = image(|root| glibc(root, "2.36"));
    refused(&hook(image.path(), "4g"), &["annotation cuquota.dev/limit=4g", "4GiB"]);
}

/// A musl program and its loader, from Debian's musl-tools.
fn musl_program(root: &Path) -> Result<(), String> {
    let (source, out) = (root.join("tmp/hello.c"), root.join("bin/hello"));
    fs::write(&source, "#include <stdio.h>\nint main(void) { puts(\"ran\"); }\n").expect("a source");
    text(Command::new("musl-gcc").arg(source).arg("-o").arg(out))
        .map_err(|e| format!("{e} (Debian: musl-tools)"))?;
    let loader = fs::canonicalize("/lib/ld-musl-x86_64.so.1")
        .map_err(|e| format!("musl's loader: {e} (Debian: musl)"))?;
    fs::copy(loader, root.join("lib/ld-musl-x86_64.so.1")).expect("a loader");
    Ok(())
}

#[test]
#[cfg(target_arch = "x86_64")]
fn runc_does_not_start_a_container_of_musl_under_a_limit() {
    let Some(host) = host(Engine::Runc) else { return };
    let made = std::cell::RefCell::new(Ok(()));
    let image = image(|root| *made.borrow_mut() = musl_program(root));
    if let Err(missing) = made.into_inner() {
        return crate::skip(&missing);
    }
    let rootfs: Option<PathBuf> = Some(image.path().to_path_buf());
    let free = host.container(Want { rootfs: rootfs.clone(), ..Want::default() });
    assert_eq!(free.run(&["/bin/hello"]).finish().success().stdout, "ran\n", "without a limit it runs");
    let held = host.container(Want { rootfs, ..limited("4GiB") });
    let finished = held.run(&["/bin/hello"]).finish();
    assert!(!finished.status.success() && !finished.stdout.contains("ran"), "{finished}");
    assert!(finished.stderr.contains("musl, which cannot load the preload library"), "{finished}");
    assert!(remembered(&host).is_empty());
}
