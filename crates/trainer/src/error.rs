//! [`TrainError`]: why training could not start or go on.

use std::path::{Path, PathBuf};

use girih_compute::ComputeError;
use girih_datasets::DatasetError;
use girih_graph_format::FormatError;

/// Why a run was refused or failed; the message says what was found and what to do.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct TrainError(Box<Kind>);

#[derive(Debug, thiserror::Error)]
enum Kind {
    #[error(transparent)]
    Compute(ComputeError),
    #[error(transparent)]
    Dataset(DatasetError),
    #[error(transparent)]
    Format(FormatError),
    #[error("{0}")]
    Invalid(String),
    #[error("{path}: {what}", path = .path.display())]
    Checkpoint { path: PathBuf, what: String },
}

impl TrainError {
    /// A setting or a data set that training cannot work with.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self(Box::new(Kind::Invalid(message.into())))
    }

    /// A checkpoint that cannot be used.
    pub fn checkpoint(path: &Path, what: impl Into<String>) -> Self {
        Self(Box::new(Kind::Checkpoint { path: path.to_owned(), what: what.into() }))
    }
}

impl From<ComputeError> for TrainError {
    fn from(error: ComputeError) -> Self {
        Self(Box::new(Kind::Compute(error)))
    }
}

impl From<DatasetError> for TrainError {
    fn from(error: DatasetError) -> Self {
        Self(Box::new(Kind::Dataset(error)))
    }
}

impl From<FormatError> for TrainError {
    fn from(error: FormatError) -> Self {
        Self(Box::new(Kind::Format(error)))
    }
}
