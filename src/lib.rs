//! `ulimit` for GPU memory: a preload library that stands between any program and the NVIDIA driver and
//! holds all processes of a container together to the budget in a mounted file.
//!
//! `ARCHITECTURE.md` is the map; this list is the way of a request, outermost first.

#[macro_use]
pub mod api;
pub mod hook;

mod abi;
mod entry;
mod resolve;

mod gate;
mod policy;

mod process;

pub mod config;
mod driver;
pub mod growth;
pub mod ledger;
mod log;
pub mod sys;
