//! [`CollectiveError`]: failures of sampling by several ranks.

use girih_comm::CommError;
use girih_sampling::SampleError;

/// Reason why ranks could not sample together. The message names the fault, the rank and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollectiveError {
    /// An exchange or another rank failed.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// Invalid seeds or settings.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// A rank holds the wrong data, or sends inconsistent data.
    #[error("{0}")]
    Layout(String),
}

impl CollectiveError {
    pub(crate) fn layout(message: impl Into<String>) -> Self {
        Self::Layout(message.into())
    }
}
