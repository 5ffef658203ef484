//! [`CommError`]: failures of collective operations.

use std::path::PathBuf;
use std::time::Duration;

/// Reason why a collective operation failed. The message names the rank at fault.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CommError {
    /// Processes do not find each other or do not belong together. No rank has started.
    #[error("ranks cannot start together: {what}")]
    Join {
        /// Fault and remedy.
        what: String,
    },
    /// An environment variable of a launcher is missing or wrong.
    #[error("the environment variable {variable} {what}")]
    Environment {
        /// Name of the variable.
        variable: &'static str,
        /// Fault and remedy.
        what: String,
    },
    /// The file of the secret that ranks share is unusable.
    #[error("the secret of the ranks: {} {what}", path.display())]
    Secret {
        /// Path of the file.
        path: PathBuf,
        /// Fault and remedy.
        what: String,
    },
    /// Another rank has failed.
    #[error("rank {rank} failed: {message}")]
    RankFailed {
        /// Rank that failed first.
        rank: usize,
        /// Message of its error or panic.
        message: String,
    },
    /// A rank did not take part in time.
    #[error(
        "rank {rank} did not take part in {operation} within {seconds:.0} s: it hangs or is slow; see its log, or allow more time",
        seconds = .deadline.as_secs_f64()
    )]
    Late {
        /// Rank that was waited for.
        rank: usize,
        /// Operation that waited.
        operation: &'static str,
        /// Length of the wait.
        deadline: Duration,
    },
    /// Ranks called different operations, or one operation on operands that do not fit.
    #[error(
        "rank {rank} calls {found} where rank {here} calls {expected}: all ranks have to run the same program on the same data"
    )]
    Mismatch {
        /// Rank that reports.
        here: usize,
        /// Call of the reporting rank.
        expected: String,
        /// Rank that differs.
        rank: usize,
        /// Call of the differing rank.
        found: String,
    },
    /// A rank sent a malformed message.
    #[error(
        "rank {rank} sent a malformed message ({operation}): {what}; give all ranks the same program, data and settings"
    )]
    Malformed {
        /// Global rank of the sender.
        rank: usize,
        /// Operation of the message.
        operation: &'static str,
        /// Fault.
        what: String,
    },
    /// The library that moves the bytes has failed or is missing.
    #[error("{operation}: {message}")]
    Library {
        /// Operation that failed.
        operation: &'static str,
        /// Message of the library.
        message: String,
    },
    /// An operand of this rank does not fit the operation.
    #[error("{operation}: {what}")]
    Operand {
        /// Name of the operation.
        operation: &'static str,
        /// Fault of the operand.
        what: String,
    },
}
