//! [`CliError`]: an error of a library, with advice where there is some.

use std::path::Path;

use girih_comm::CommError;
use girih_compress::CompressError;
use girih_datasets::DatasetError;
use girih_graph_format::FormatError;
use girih_partition::PartitionError;
use girih_pipeline::{StageError, StartError};
use girih_reorder::ReorderError;
use girih_sampling::SampleError;
use girih_tiers::TierError;
use girih_trainer::TrainError;
use miette::Diagnostic;

/// Why a command failed: the libraries' message, and what to do where the message does not say it.
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
    /// The configuration file does not say what it must.
    #[error("{path}: {message}")]
    #[diagnostic(help("every key is listed in docs/configuration.md; `girih train --out DIR` writes a complete file"))]
    Config {
        /// The file.
        path: String,
        /// What is wrong, with line and column.
        message: String,
    },
    /// The command line asks for what cannot be.
    #[error("{0}")]
    Usage(String),
    /// Something else, said in full.
    #[error("{0}")]
    Other(String),
}

impl CliError {
    /// The command line is wrong, not the data.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Usage(_) => true,
            Self::Dataset(error) => error.is_spec(),
            Self::Comm(CommError::Environment { .. } | CommError::Secret { .. }) => true,
            _ => false,
        }
    }

    /// The rank that failed, of several, if it is known.
    pub fn failed_rank(&self) -> Option<usize> {
        match self {
            Self::Train(error) => error.failed_rank(),
            _ => None,
        }
    }

    /// An error of the operating system about a file.
    pub fn io(path: &Path, error: std::io::Error) -> Self {
        FormatError::io(error).at(path).into()
    }
}
