//! Builds what cargo does not: the library's exports, and the simulated driver.

#[macro_use]
#[path = "src/api.rs"]
mod api;
#[path = "build/exports.rs"]
mod exports;
#[path = "build/probe.rs"]
mod probe;
#[path = "build/sim.rs"]
mod sim;

fn main() {
    let out = std::path::PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    exports::build(&out);
    exports::link_unwinder(&out);
    sim::build();
    probe::build(&out);
}
