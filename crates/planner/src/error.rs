//! [`PlannerError`]: why nothing can be planned.

use girih_comm::CommError;
use girih_compute::ComputeError;
use girih_partition::PartitionError;
use girih_trainer::TrainError;

/// Why nothing can be planned; the message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlannerError {
    /// The session is refused.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// Nodes cannot be cut over ranks.
    #[error(transparent)]
    Partition(#[from] PartitionError),
    /// Cards cannot be measured.
    #[error("cannot measure the GPUs: {0}")]
    Measure(String),
}

impl From<ComputeError> for PlannerError {
    fn from(error: ComputeError) -> Self {
        Self::Measure(error.to_string())
    }
}

impl From<CommError> for PlannerError {
    fn from(error: CommError) -> Self {
        Self::Measure(error.to_string())
    }
}
