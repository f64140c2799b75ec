//! Programs that take the whole card at start: what is done about them, by their own switches and by memory that
//! exists when it is touched.

#[path = "../common/mod.rs"]
mod common;

mod crowds;
mod explain;
mod hints;
mod lazy;
mod patterns;
mod program;
mod together;
