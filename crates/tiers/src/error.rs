//! [`TierError`]: why there is no plan.

/// Why a placement was refused; the message says what was found, what it needs and what to do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct TierError {
    message: String,
}

impl TierError {
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}
