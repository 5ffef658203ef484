//! [`OrderError`]: why ranks cannot go on launching.

use serde::{Deserialize, Serialize};

/// Why ranks cannot go on launching. It is the same on all ranks but where several fail at once, and names the rank
/// that noticed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum OrderError {
    /// Rules by which nothing could be launched.
    #[error("the launch order cannot be kept: {what}")]
    Rules {
        /// What was found, and what to do.
        what: String,
    },
    /// Something did not come in time.
    #[error("rank {rank}, {worker}, batch {batch}: waited {seconds} s for {what}")]
    Late {
        /// The rank that waited.
        rank: usize,
        /// The worker that waited.
        worker: String,
        /// Its batch; for the end of an epoch, how many it has launched.
        batch: u64,
        /// How long, in seconds.
        seconds: f64,
        /// The worker that was waited for.
        awaited: String,
        /// Ranks on which that is known to be missing.
        missing_on: Vec<usize>,
        /// What was waited for, and what is known of it.
        what: String,
    },
    /// A worker wants to launch what is not its turn in any order.
    #[error("rank {rank}: {worker} {found}, but {expected}: all ranks have to run the same program on as many batches")]
    Differs {
        /// The rank that differs.
        rank: usize,
        /// The worker.
        worker: String,
        /// What it does.
        found: String,
        /// What it should do, and by whose decision.
        expected: String,
    },
    /// Ranks launched differently often.
    #[error(
        "{worker} launches {launches} times or more on rank {rank}, but signed off after {other_launches} on rank {other}: \
         every rank needs as many batches"
    )]
    Counts {
        /// The worker.
        worker: String,
        /// The rank on which it goes on, or has signed off after another number of launches.
        rank: usize,
        /// Launches there.
        launches: u64,
        /// The rank on which it has signed off.
        other: usize,
        /// Launches there.
        other_launches: u64,
    },
    /// A rank's pipeline was stopped, or failed.
    #[error("rank {rank} stopped: {why}")]
    Stopped {
        /// The rank.
        rank: usize,
        /// Why.
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
        /// What carries the messages says so.
        why: String,
    },
}
