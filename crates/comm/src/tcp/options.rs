//! [`Options`] of a rank, and the connections and waiting times that its parts share.

use std::net::TcpStream;
use std::time::Duration;

use crate::Secret;

/// Interval of heartbeats of a rank that sends nothing else.
pub(super) const BEAT: Duration = Duration::from_secs(1);

/// Longest silence of a rank before it counts as lost.
pub(super) const SILENCE: Duration = Duration::from_secs(8);

/// Settings of a process that takes part as a rank.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rank of this process, from 0.
    pub rank: usize,
    /// Number of ranks.
    pub size: usize,
    /// Address `HOST:PORT` where rank 0 listens.
    pub rendezvous: String,
    /// Name of the job, equal on all ranks. It separates jobs that use the same address by mistake. May be empty.
    pub job: String,
    /// Secret of the job, equal on all ranks. May be absent on loopback.
    pub secret: Secret,
    /// Longest wait for other ranks at the start.
    pub start_deadline: Duration,
    /// Longest wait for a rank in an operation.
    pub deadline: Duration,
}

/// Connection to each rank, by rank; `None` for this rank.
pub(super) type Streams = Vec<Option<TcpStream>>;

/// Polling interval during waits.
pub(super) const LOOK: Duration = Duration::from_millis(5);

/// Interval between attempts to connect.
pub(super) const RETRY: Duration = Duration::from_millis(50);

/// Ranks in words: `rank 3`, `ranks 1, 3`.
pub(super) fn name(ranks: &[usize]) -> String {
    let numbers: Vec<String> = ranks.iter().map(ToString::to_string).collect();
    format!("rank{} {}", if ranks.len() == 1 { "" } else { "s" }, numbers.join(", "))
}
