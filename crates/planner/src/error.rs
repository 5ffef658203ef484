//! [`PlannerError`]: errors of planning.

use girih_comm::CommError;
use girih_compute::ComputeError;
use girih_partition::PartitionError;
use girih_trainer::TrainError;

/// Error of planning; the message names the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlannerError {
    /// The trainer refuses the session.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// The nodes cannot be partitioned over the ranks.
    #[error(transparent)]
    Partition(#[from] PartitionError),
    /// The GPUs cannot be measured.
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
