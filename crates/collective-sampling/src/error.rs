//! [`CollectiveError`]: why ranks could not sample together.

use girih_comm::CommError;
use girih_sampling::SampleError;

/// Why ranks could not sample together; the message says what was found, on which rank, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollectiveError {
    /// An exchange failed, or another rank did.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// Seeds or settings that cannot be sampled with.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// Ranks do not hold what they should, or say what makes no sense.
    #[error("{0}")]
    Layout(String),
}

impl CollectiveError {
    pub(crate) fn layout(message: impl Into<String>) -> Self {
        Self::Layout(message.into())
    }
}
