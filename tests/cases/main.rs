//! What went wrong for others who shared GPUs, and what a program sees here instead: real processes that drive real
//! allocations, on the bare driver and under the library.

#[path = "../common/mod.rs"]
mod common;
mod harness;

mod accounting;
mod contexts;
mod graphs;
mod green;
mod lifecycle;
mod managed;
mod memory_info;
mod modules;
mod multicast;
mod nvml;
mod over_budget;
mod pools;
mod processes;
mod routes;
mod shared;
mod sparse;
mod transparency;
mod virtual_memory;
