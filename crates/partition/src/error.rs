//! [`PartitionError`]: a grid or plan that is not possible.

/// Error for a refused grid or plan; the message names the cause and the remedy.
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
