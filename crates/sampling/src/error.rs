//! [`SampleError`]: why a mini-batch could not be had.

/// Why a mini-batch could not be sampled; the message says what was found, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct SampleError {
    message: String,
}

impl SampleError {
    /// An error about a graph, seeds or a setting; `message` says what was found, what was expected and what to do.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}
