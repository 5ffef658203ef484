//! [`ReorderError`]: a graph that could not be ordered.

/// Error of an order; the message names the cause and the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ReorderError {
    message: String,
}

impl ReorderError {
    /// Error about a graph or a setting; `message` names the value, the expected value and the remedy.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}
