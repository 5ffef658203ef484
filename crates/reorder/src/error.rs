//! [`ReorderError`]: why a graph could not be ordered.

/// Why a graph could not be ordered; the message says what was found and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ReorderError {
    message: String,
}

impl ReorderError {
    /// An error about a graph or a setting; `message` says what was found, what was expected and what to do.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}
