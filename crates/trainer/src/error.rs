//! [`TrainError`]: error of training, with a remedy.

use std::path::{Path, PathBuf};

use girih_comm::CommError;
use girih_compress::CompressError;
use girih_compute::ComputeError;
use girih_datasets::DatasetError;
use girih_features::TierError;
use girih_graph_format::FormatError;
use girih_partition::PartitionError;
use girih_sampling::SampleError;

/// Error that refuses or ends a run. The message says what is wrong and what helps.
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
    #[error(transparent)]
    Compress(CompressError),
    #[error(transparent)]
    Comm(CommError),
    #[error(transparent)]
    Partition(PartitionError),
    #[error(transparent)]
    Sample(SampleError),
    #[error(transparent)]
    Tier(TierError),
    #[error("{0}")]
    Invalid(String),
    #[error("{path}: {what}", path = .path.display())]
    Checkpoint { path: PathBuf, what: String },
    #[error("epoch {epoch} of run {run}: {source}; {}", kept_in_words(kept.as_ref()))]
    Epoch { run: u64, epoch: u64, source: ComputeError, kept: Option<(PathBuf, u64)> },
    #[error("rank {rank}: {message}")]
    Rank { rank: usize, message: String },
}

impl TrainError {
    /// An unsuitable setting or data set.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self(Box::new(Kind::Invalid(message.into())))
    }

    /// Adds to an error about data the part that it is about, such as a batch.
    #[must_use]
    pub(crate) fn inside(self, part: &str) -> Self {
        match *self.0 {
            Kind::Invalid(message) => Self::invalid(format!("inside {part}: {message}")),
            other => Self(Box::new(other)),
        }
    }

    /// Whether the backend failed, rather than a setting or data being unsuitable.
    #[must_use]
    pub fn is_of_backend(&self) -> bool {
        matches!(*self.0, Kind::Compute(_) | Kind::Epoch { .. })
    }

    /// The failed rank, if it is known.
    #[must_use]
    pub fn failed_rank(&self) -> Option<usize> {
        match *self.0 {
            Kind::Rank { rank, .. } => Some(rank),
            _ => None,
        }
    }

    /// The failure of a rank.
    pub fn rank(rank: usize, message: impl Into<String>) -> Self {
        Self(Box::new(Kind::Rank { rank, message: message.into() }))
    }

    /// Adds epoch and run to a failure of the backend, and the kept checkpoint with its epoch. Other errors stay
    /// unchanged.
    #[must_use]
    pub fn in_epoch(self, run: u64, epoch: u64, kept: Option<(PathBuf, u64)>) -> Self {
        match *self.0 {
            Kind::Compute(source) => Self(Box::new(Kind::Epoch { run, epoch, source, kept })),
            other => Self(Box::new(other)),
        }
    }

    /// A checkpoint that cannot be used.
    pub fn checkpoint(path: &Path, what: impl Into<String>) -> Self {
        Self(Box::new(Kind::Checkpoint { path: path.to_owned(), what: what.into() }))
    }
}

/// Text about the checkpoint that a failed run leaves.
fn kept_in_words(kept: Option<&(PathBuf, u64)>) -> String {
    match kept {
        Some((path, epoch)) => {
            format!("its checkpoint of epoch {epoch} is kept, and --resume continues from it: {}", path.display())
        }
        None => "it has no checkpoint yet".to_owned(),
    }
}

impl From<ComputeError> for TrainError {
    fn from(error: ComputeError) -> Self {
        Self(Box::new(Kind::Compute(error)))
    }
}

impl From<CompressError> for TrainError {
    fn from(error: CompressError) -> Self {
        Self(Box::new(Kind::Compress(error)))
    }
}

impl From<CommError> for TrainError {
    fn from(error: CommError) -> Self {
        Self(Box::new(Kind::Comm(error)))
    }
}

impl From<PartitionError> for TrainError {
    fn from(error: PartitionError) -> Self {
        Self(Box::new(Kind::Partition(error)))
    }
}

impl From<SampleError> for TrainError {
    fn from(error: SampleError) -> Self {
        Self(Box::new(Kind::Sample(error)))
    }
}

impl From<DatasetError> for TrainError {
    fn from(error: DatasetError) -> Self {
        Self(Box::new(Kind::Dataset(error)))
    }
}

impl From<TierError> for TrainError {
    fn from(error: TierError) -> Self {
        Self(Box::new(Kind::Tier(error)))
    }
}

impl From<FormatError> for TrainError {
    fn from(error: FormatError) -> Self {
        Self(Box::new(Kind::Format(error)))
    }
}
