//! Why one value is refused, before it is known where in which file it stands.

/// What is wrong with a value, and what to write instead.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub remedy: String,
}

impl Refusal {
    pub(super) fn new(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Refusal { message: message.into(), remedy: remedy.into() }
    }
}
