//! [`CommError`]: why ranks could not go on together.

use std::path::PathBuf;
use std::time::Duration;

/// Why a collective operation failed; the message names the rank that is to blame.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CommError {
    /// Processes that do not find each other, or do not belong together; no rank has started.
    #[error("ranks cannot start together: {what}")]
    Join {
        /// What was found, and what to do.
        what: String,
    },
    /// What a launcher sets, or should.
    #[error("the environment variable {variable} {what}")]
    Environment {
        /// Which variable.
        variable: &'static str,
        /// Fault and remedy.
        what: String,
    },
    /// File of the secret that ranks share.
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
        /// The rank that failed first.
        rank: usize,
        /// What it said.
        message: String,
    },
    /// A rank did not take part in time.
    #[error(
        "rank {rank} did not take part in {operation} within {seconds:.0} s: it hangs or is slow; see its log, or allow more time",
        seconds = .deadline.as_secs_f64()
    )]
    Late {
        /// The rank that was waited for.
        rank: usize,
        /// The operation that waited.
        operation: &'static str,
        /// How long.
        deadline: Duration,
    },
    /// Ranks called different operations, or the same one on operands that do not fit.
    #[error(
        "rank {rank} calls {found} where rank {here} calls {expected}: all ranks have to run the same program on the same data"
    )]
    Mismatch {
        /// The rank that reports.
        here: usize,
        /// Its call.
        expected: String,
        /// The rank that differs.
        rank: usize,
        /// Its call.
        found: String,
    },
    /// Message of another rank that cannot be what it should.
    #[error(
        "rank {rank} sent a malformed message ({operation}): {what}; give all ranks the same program, data and settings"
    )]
    Malformed {
        /// Rank that sent it, counted in the whole world.
        rank: usize,
        /// Operation that it was sent for.
        operation: &'static str,
        /// Fault.
        what: String,
    },
    /// What moves the bytes has failed, or is missing.
    #[error("{operation}: {message}")]
    Library {
        /// The operation.
        operation: &'static str,
        /// What it said.
        message: String,
    },
    /// An operand that does not fit the operation, on this rank.
    #[error("{operation}: {what}")]
    Operand {
        /// The operation.
        operation: &'static str,
        /// What does not fit.
        what: String,
    },
}
