//! [`SampleError`]: failure to sample a mini-batch.

/// Failure to sample a mini-batch; the message says what was found, where, and how to correct it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct SampleError {
    message: String,
}

impl SampleError {
    /// Error about a graph, seeds or a setting; `message` says what was found, what was expected and how to correct
    /// it.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}
