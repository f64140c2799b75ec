//! The quota file: where it lies, what it may say, and whether it has changed.
#![forbid(unsafe_code)]

mod source;

pub use source::StatePlace;
