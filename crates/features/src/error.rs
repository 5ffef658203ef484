//! [`TierError`]: a placement that is not possible.

/// Error for a refused placement; the message names the cause, the needed memory and the remedy.
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
