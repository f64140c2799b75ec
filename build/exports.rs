//! Makes the names of the table public in the preload library, and in it alone.
//!
//! The code defines `cuquota_entry_NAME` for every hook, hidden. Only the link of the cdylib defines `NAME` as
//! another name of it, by `--defsym`, and exports it by a version script of its own. That script stands beside the
//! one rustc writes, which GNU ld refuses and lld, Rust's default on x86-64 Linux, merges.

use std::path::Path;

/// Functions of the loader that are hooked too.
const LOOK_UPS: [&str; 4] = ["dlsym", "dlvsym", "dlopen", "dlmopen"];

macro_rules! names {
    ($($name:ident = $base:literal @ $since:literal $stream:ident
       fn($($arg:ident: $ty:ty),*) via $family:ident :: $handler:ident : $effect:literal;)*) => {
        /// The exported names of the table.
        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}
hooked_functions!(names);

/// Tells cargo how to link the library.
pub fn build(out: &Path) {
    println!("cargo::rerun-if-changed=src/api.rs");
    let names = || LOOK_UPS.iter().chain(NAMES);
    let mut script = String::from("{\n  global:\n");
    for name in names() {
        script += &format!("    {name};\n");
        println!("cargo::rustc-cdylib-link-arg=-Wl,--defsym={name}=cuquota_entry_{name}");
    }
    script += "};\n";
    let path = out.join("exports.map");
    std::fs::write(&path, script).expect("the build directory can be written");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={}", path.display());
    // Runs before the program's own code.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-init=cuquota_entry_start");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuquota.so");
    // Functions that are the same instructions are there once: what every program of a container maps is to be small.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--icf=all");
}

/// Links the unwinder in, rather than needing `libgcc_s.so.1` at run time: an image without it would have every
/// program die at start. rustc asks for `-lgcc_s`; a linker script of that name stands in for it.
pub fn link_unwinder(out: &Path) {
    let directory = out.join("unwinder");
    std::fs::create_dir_all(&directory).expect("the build directory can be written");
    std::fs::write(directory.join("libgcc_s.so"), "INPUT(-lgcc_eh -lgcc)\n")
        .expect("the build directory can be written");
    let compiler = cc::Build::new().get_compiler();
    let found = compiler.to_command().arg("-print-file-name=libgcc_eh.a").output();
    // A compiler that has it prints a path, another only the name.
    if found.is_ok_and(|output| output.stdout.contains(&b'/')) {
        println!("cargo::rustc-link-search=native={}", directory.display());
    }
}
