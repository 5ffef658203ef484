//! [`OrderError`]: reasons why ranks cannot go on launching.

use serde::{Deserialize, Serialize};

/// Reason why ranks cannot go on launching. All ranks have the same error, unless several fail at once. It names the
/// rank that noticed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum OrderError {
    /// Rules by which nothing could be launched.
    #[error("the launch order cannot be kept: {what}")]
    Rules {
        /// Fault of the rules, and how to correct it.
        what: String,
    },
    /// A permit, a result or the end of the epoch did not come in time.
    #[error("rank {rank}, {worker}, batch {batch}: waited {seconds} s for {what}")]
    Late {
        /// The rank that waited.
        rank: usize,
        /// The worker that waited.
        worker: String,
        /// Batch of the worker; for the end of an epoch, the number of its launches.
        batch: u64,
        /// Length of the wait in seconds.
        seconds: f64,
        /// Worker that was waited for.
        awaited: String,
        /// Ranks on which the awaited launch is known to be missing.
        missing_on: Vec<usize>,
        /// Awaited event and its known state.
        what: String,
    },
    /// A worker registers another batch than the launch order has next for it, or closes before that batch.
    #[error("rank {rank}: {worker} {found}, but {expected}: all ranks have to run the same program on as many batches")]
    Differs {
        /// The rank that differs.
        rank: usize,
        /// Name of the worker.
        worker: String,
        /// Action of the worker.
        found: String,
        /// Expected action, and the leader or log that requires it.
        expected: String,
    },
    /// Ranks launched a worker different numbers of times.
    #[error(
        "{worker} launches {launches} times or more on rank {rank}, but signed off after {other_launches} on rank {other}: \
         every rank needs as many batches"
    )]
    Counts {
        /// Name of the worker.
        worker: String,
        /// Rank on which the worker launches more often, or closed after another number of launches.
        rank: usize,
        /// Number of launches on `rank`.
        launches: u64,
        /// Rank on which the worker has closed.
        other: usize,
        /// Number of launches on `other`.
        other_launches: u64,
    },
    /// The pipeline of a rank was stopped, or failed.
    #[error("rank {rank} stopped: {why}")]
    Stopped {
        /// Rank that stopped.
        rank: usize,
        /// Reason.
        why: String,
    },
    /// Message of another rank that cannot be what it should.
    #[error(
        "rank {rank} sent a malformed message (launch order): {what}; give all ranks the same program and settings"
    )]
    Malformed {
        /// Rank that sent it.
        rank: usize,
        /// Fault.
        what: String,
    },
    /// Messages do not reach other ranks any more.
    #[error("ranks cannot agree on the order of launches: {why}")]
    Lost {
        /// Reason, as the transport reports it.
        why: String,
    },
}
