//! [`CliError`]: errors of the libraries, with advice where possible.

use std::path::Path;

use girih_comm::CommError;
use girih_compress::CompressError;
use girih_datasets::DatasetError;
use girih_features::TierError;
use girih_graph_format::FormatError;
use girih_partition::PartitionError;
use girih_pipeline::{StageError, StartError};
use girih_reorder::ReorderError;
use girih_sampling::SampleError;
use girih_trainer::TrainError;
use miette::Diagnostic;

/// Reason why a command failed: the library's message, with a remedy if the message has none.
#[derive(Debug, thiserror::Error, Diagnostic)]
pub enum CliError {
    /// Data could not be read or generated.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// A file could not be read or written.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// Features could not be compressed or read back.
    #[error(transparent)]
    Compress(#[from] CompressError),
    /// Training could not start or go on.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// Nodes cannot be ordered as asked.
    #[error(transparent)]
    Reorder(#[from] ReorderError),
    /// Processes cannot work together.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// Ranks cannot share the work as asked.
    #[error(transparent)]
    Partition(#[from] PartitionError),
    /// Mini-batches cannot be made as asked.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// Topology or features fit nowhere.
    #[error(transparent)]
    Tier(#[from] TierError),
    /// A thread that makes mini-batches failed.
    #[error(transparent)]
    Stage(#[from] StageError<SampleError>),
    /// No thread could be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The configuration file is invalid.
    #[error("{path}: {message}")]
    #[diagnostic(help("every key is listed in docs/configuration.md; `girih train --out DIR` writes a complete file"))]
    Config {
        /// Path of the file.
        path: String,
        /// Description of the error, with line and column.
        message: String,
    },
    /// The command line requests something impossible.
    #[error("{0}")]
    Usage(String),
    /// Any other error, described in full.
    #[error("{0}")]
    Other(String),
}

impl CliError {
    /// Whether the command line is wrong, not the data.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Usage(_) => true,
            Self::Dataset(error) => error.is_spec(),
            Self::Comm(CommError::Environment { .. } | CommError::Secret { .. }) => true,
            _ => false,
        }
    }

    /// Rank that failed, if known.
    pub fn failed_rank(&self) -> Option<usize> {
        match self {
            Self::Train(error) => error.failed_rank(),
            _ => None,
        }
    }

    /// Error of the operating system about a file.
    pub fn io(path: &Path, error: std::io::Error) -> Self {
        FormatError::io(error).at(path).into()
    }
}
