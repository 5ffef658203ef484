//! [`PartitionError`]: why ranks cannot share the work as asked.

/// Why a grid or a plan was refused; the message says what was found and what to do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct PartitionError {
    message: String,
}

impl PartitionError {
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}
