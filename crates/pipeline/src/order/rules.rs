//! [`Rules`] and [`Order`]: what all ranks of a coordinated pipeline agree on beforehand.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{OrderError, OrderLog};

/// Who decides the order of launches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Order {
    /// One rank decides, in the order in which its own workers register (Cai et al., DSP, PPoPP 2023, "centralised
    /// communication coordination"). No worker of the leader waits for more than one launch of each other worker.
    Led {
        /// The rank that decides.
        leader: usize,
    },
    /// The workers take turns, whoever is ready: worker `w` launches for its `k`-th time in round `k + w · lag`, in the
    /// order of ids. Nothing is sent. It is what a leader is compared with.
    Fixed {
        /// How many rounds each worker is behind the one before it. With 0 a batch is launched by all workers before
        /// the next batch is launched by any, so that little overlaps.
        lag: u16,
    },
    /// Nobody waits. Ranks may launch in different orders, which deadlocks where collectives hold what others need.
    Free,
    /// As a log says.
    Replay(OrderLog),
}

impl Order {
    /// The rank whose decisions the others wait for; 0 where there are none.
    #[must_use]
    pub fn leader(&self) -> usize {
        match self {
            Self::Led { leader } => *leader,
            Self::Fixed { .. } | Self::Free | Self::Replay(_) => 0,
        }
    }
}

/// What all ranks agree on: their workers, who decides the order, and how long anybody waits.
///
/// They are equal on all ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// The names of the workers that launch collectives, by id; the same on every rank.
    pub workers: Vec<String>,
    /// Who decides.
    pub order: Order,
    /// How long a worker waits for its turn, or for a result, and a rank for the others' end.
    pub deadline: Duration,
}

impl Rules {
    /// Workers whose order rank 0 decides, and a minute for each wait.
    #[must_use]
    pub fn new<N: Into<String>>(workers: impl IntoIterator<Item = N>) -> Self {
        let workers = workers.into_iter().map(Into::into).collect();
        Self { workers, order: Order::Led { leader: 0 }, deadline: Duration::from_secs(60) }
    }

    /// Lets another order hold.
    #[must_use]
    pub fn order(self, order: Order) -> Self {
        Self { order, ..self }
    }

    /// Lets everybody wait for so long, and no longer.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Refuses rules by which nothing could be launched.
    pub(super) fn check(&self, n_ranks: usize) -> Result<(), OrderError> {
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
