//! The command-line companion of the preload library.
fn main() {}
