//! `ulimit` for GPU memory: a preload library that stands between any program and the NVIDIA driver and
//! holds all processes of a container together to the budget in a mounted file.
//!
//! `ARCHITECTURE.md` is the map; this list is the way of a request, outermost first.

pub mod config;
pub mod ledger;
pub mod sys;
