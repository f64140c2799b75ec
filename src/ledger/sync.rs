//! The atomics that [`protocol`](super::protocol) is written with.
//!
//! The protocol names them through its parent module so that the models in `tests/models` can compile
//! the very same source against loom's atomics.

pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
