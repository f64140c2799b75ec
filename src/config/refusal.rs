//! Why one value is refused, before it is known where in which file it stands.

/// What is wrong with a value, and what to write instead.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub message: String,
    pub remedy: String,
}

impl Refusal {
    pub fn new(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Refusal { message: message.into(), remedy: remedy.into() }
    }
}
