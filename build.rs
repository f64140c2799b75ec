//! Builds what cargo does not: the library's exports.

#[macro_use]
#[path = "src/api.rs"]
mod api;
#[path = "build/exports.rs"]
mod exports;

fn main() {
    let out = std::path::PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    exports::build(&out);
    exports::link_unwinder(&out);
}
