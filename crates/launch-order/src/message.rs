//! [`Message`]: messages between the coordinators of ranks.

use serde::{Deserialize, Serialize};

use crate::{Launch, OrderError};

/// Message of a coordinator to those of all other ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message(pub(crate) Content);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Content {
    /// Launch of this number, from 0, as the leader decided. Decisions on different workers may arrive out of order.
    Decided(u64, Launch),
    /// A worker has closed after this number of launches.
    SignedOff(usize, u64),
    /// Request for the status of all ranks, from a rank whose deadline has passed.
    Question,
    /// Status of the sender.
    Answer(Status),
    /// The sender has failed, so all ranks fail.
    Failed(OrderError),
}

/// Progress of a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Status {
    pub workers: Vec<Progress>,
    /// Worker that is next in the order but has not registered.
    pub absent: Option<usize>,
    /// Last launches, the latest at the end.
    pub recent: Vec<Launch>,
}

/// Progress of a worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Progress {
    pub n_launched: u64,
    /// Batch that the worker waits to launch or is launching.
    pub pending: Option<u64>,
    pub has_signed_off: bool,
}

impl Progress {
    /// Number of launches that the worker has made or registered.
    pub fn n_registered(&self) -> u64 {
        self.n_launched.saturating_add(u64::from(self.pending.is_some()))
    }
}

impl Content {
    /// Checks the worker ids of the message, before they are used as indices.
    ///
    /// # Errors
    /// Fault of the message, given `n_workers` workers.
    pub fn check(&self, n_workers: usize) -> Result<(), String> {
        let known = |worker: usize| match worker < n_workers {
            true => Ok(()),
            false => Err(format!("worker {worker} where there are {n_workers}")),
        };
        match self {
            Self::Decided(_, launch) => known(launch.worker),
            Self::SignedOff(worker, _) => known(*worker),
            Self::Answer(Status { workers, .. }) if workers.len() != n_workers => {
                Err(format!("the progress of {} workers where there are {n_workers}", workers.len()))
            }
            Self::Answer(Status { absent, recent, .. }) => {
                absent.iter().copied().chain(recent.iter().map(|launch| launch.worker)).try_for_each(known)
            }
            Self::Question | Self::Failed(_) => Ok(()),
        }
    }
}

impl Message {
    /// Whether the message says that a worker has closed. Each worker sends one, unless its rank fails.
    #[must_use]
    pub fn is_sign_off(&self) -> bool {
        matches!(self.0, Content::SignedOff(..))
    }

    /// Whether the sender has failed. No later message of it matters.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        matches!(self.0, Content::Failed(_))
    }

    /// Failure message of a transport, which ends all ranks.
    #[must_use]
    pub fn failure(error: OrderError) -> Self {
        Self(Content::Failed(error))
    }

    /// Encodes messages as bytes.
    ///
    /// # Panics
    /// Never: messages are plain data.
    #[must_use]
    pub fn encode(messages: &[Self]) -> Vec<u8> {
        serde_json::to_vec(messages).expect("messages have no maps, and nothing that JSON lacks")
    }

    /// Decodes messages from bytes.
    ///
    /// # Errors
    /// When the bytes do not come from [`encode`](Self::encode).
    pub fn decode(bytes: &[u8]) -> Result<Vec<Self>, OrderError> {
        serde_json::from_slice(bytes).map_err(|error| OrderError::Lost { why: format!("a torn message: {error}") })
    }
}
