//! What must be asked of the kernel and the loader, each fact behind a safe function.

pub mod clock;
pub mod driver_client;
pub(crate) mod environment;
pub mod file;
pub mod fork;
pub mod identity;
pub(crate) mod image;
pub mod lock;
pub mod mapping;
pub mod mark;
pub(crate) mod names;
pub mod nvml_client;
pub(crate) mod object;
pub(crate) mod output;
mod privilege;
pub mod probe;
pub(crate) mod random;
mod signals;

pub use privilege::runs_with_raised_privilege;
pub use signals::{forward_to_child, wait_for_child};
