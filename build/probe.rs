//! Builds the plug-in that `cuquota doctor` opens, linked against the driver, for the command line to carry.

use std::path::Path;

const SOURCE: &str = "shim/probe_plugin.c";

/// Tells cargo where it is (`CUQUOTA_PROBE_PLUGIN`). The simulated driver, in `out`, stands in for the real one in the
/// link, as the vendor's stub would: only its name is remembered.
pub fn build(out: &Path) {
    println!("cargo::rerun-if-changed={SOURCE}");
    let plugin = out.join("probe_plugin.so");
    let mut cc = cc::Build::new().cargo_metadata(false).get_compiler().to_command();
    cc.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden"]);
    cc.arg(SOURCE).arg("-o").arg(&plugin).arg("-L").arg(out.join("sim"));
    cc.args(["-Wl,--no-as-needed", "-l:libcuda.so.1", "-ldl", "-Wl,--build-id=none"]);
    let output = cc.output().unwrap_or_else(|error| panic!("the plug-in needs a C compiler: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cannot build {SOURCE}:\n{said}");
    println!("cargo::rustc-env=CUQUOTA_PROBE_PLUGIN={}", plugin.display());
}
