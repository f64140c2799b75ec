//! `ulimit` for GPU memory: a preload library that stands between any program and the NVIDIA driver and
//! holds all processes of a container together to the budget in a mounted file.
//!
//! `ARCHITECTURE.md` is the map; this list is the way of a request, outermost first.

#[macro_use]
pub mod api;
pub mod abi;
pub mod hook;

pub mod resolve;

pub mod entry;

pub mod gate;
pub mod policy;

pub mod process;

pub mod config;
pub mod driver;
pub mod ledger;
pub mod log;
pub mod sys;
