//! The quota file: where it lies, what it may say, and whether it has changed.
//!
//! [`Source::locate`] finds it, [`Watch::start`] reads it and notices new versions, and [`Quota::rule_for`]
//! answers what holds on a GPU. Everything that is not exactly understood is a [`QuotaError`] that says where
//! and what to write instead. Nothing here prints, and nothing is remembered outside the values returned.
#![forbid(unsafe_code)]

mod error;
mod file;
mod gpu;
mod number;
mod parse;
mod quota;
mod refusal;
mod size;
mod source;
mod wait;
mod watch;

pub use error::{Place, QuotaError};
pub use gpu::{GpuIdentity, GpuSelector, PciAddress};
pub use quota::{GpuEntry, Growth, Limit, Quota, Rule};
pub use refusal::Refusal;
pub use size::{Percent, Size, exact};
pub use source::{Source, StatePlace};
pub use watch::{Change, Watch};
