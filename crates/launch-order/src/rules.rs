//! [`Rules`] and [`Order`]: agreement of all ranks of a coordinated pipeline.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{OrderError, OrderLog};

/// Source of the launch order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Order {
    /// One rank decides, in the order in which its own workers register (Cai et al., DSP, PPoPP 2023, "centralised
    /// communication coordination"). No worker of the leader waits for more than one launch of each other worker.
    Led {
        /// Rank that decides.
        leader: usize,
    },
    /// Round-robin order, whether or not the next worker is ready. Worker `w` makes its `k`-th launch in round
    /// `k + w · lag`; a round goes by worker id. Ranks exchange no decisions. This is a baseline for `Led`.
    Fixed {
        /// Number of rounds that each worker is behind the one before it. With 0, all workers launch a batch before
        /// any launches the next one, so little overlaps.
        lag: u16,
    },
    /// No worker waits. Ranks may launch in different orders, which deadlocks if collectives hold resources that
    /// others need.
    Free,
    /// Order of a log.
    Replay(OrderLog),
}

impl Order {
    /// Rank whose decisions the others wait for; 0 for orders without a leader.
    #[must_use]
    pub fn leader(&self) -> usize {
        match self {
            Self::Led { leader } => *leader,
            Self::Fixed { .. } | Self::Free | Self::Replay(_) => 0,
        }
    }
}

/// Agreement of all ranks: their workers, the source of the order, and the longest wait.
///
/// The rules must be equal on all ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// Names of the workers that launch collectives, by id; equal on every rank.
    pub workers: Vec<String>,
    /// Source of the launch order.
    pub order: Order,
    /// Longest wait of a worker for a permit or a result, and of a rank for the end of the others.
    pub deadline: Duration,
}

impl Rules {
    /// Rules for these workers, with rank 0 as leader and a deadline of 60 s.
    #[must_use]
    pub fn new<N: Into<String>>(workers: impl IntoIterator<Item = N>) -> Self {
        let workers = workers.into_iter().map(Into::into).collect();
        Self { workers, order: Order::Led { leader: 0 }, deadline: Duration::from_secs(60) }
    }

    /// Sets the source of the launch order.
    #[must_use]
    pub fn order(self, order: Order) -> Self {
        Self { order, ..self }
    }

    /// Sets the longest wait.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Refuses rules by which nothing could be launched.
    pub(crate) fn check(&self, n_ranks: usize) -> Result<(), OrderError> {
        let refuse = |what: String| Err(OrderError::Rules { what });
        if self.workers.is_empty() {
            return refuse("there are no workers: name those that launch collectives".to_owned());
        }
        match &self.order {
            Order::Led { leader } if *leader >= n_ranks => {
                refuse(format!("rank {leader} is to lead, but there are {n_ranks} ranks, counted from 0"))
            }
            Order::Replay(log) => log.check(&self.workers),
            Order::Led { .. } | Order::Fixed { .. } | Order::Free => Ok(()),
        }
    }
}
