//! [`Message`]: what coordinators tell each other.

use serde::{Deserialize, Serialize};

use super::{Launch, OrderError};

/// What a coordinator tells those of all other ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message(pub(super) Content);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Content {
    /// The leader: this is launch number so many, from zero. Launches of different workers may arrive out of order.
    Decided(u64, Launch),
    /// A worker will launch no more; so often it has.
    SignedOff(usize, u64),
    /// How far are you? Asked by a rank that has waited too long.
    Question,
    /// How far the sender is.
    Answer(Status),
    /// The sender has failed, and so has everybody.
    Failed(OrderError),
}

/// How far a rank is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Status {
    pub workers: Vec<Progress>,
    /// The worker whose turn it is, if it has not registered.
    pub absent: Option<usize>,
    /// The last launches, the latest at the end.
    pub recent: Vec<Launch>,
}

/// How far a worker is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Progress {
    pub n_launched: u64,
    /// The batch that it wants to launch, or is launching.
    pub pending: Option<u64>,
    pub has_signed_off: bool,
}

impl Progress {
    /// Launches that it has made or registered.
    pub fn n_registered(&self) -> u64 {
        self.n_launched.saturating_add(u64::from(self.pending.is_some()))
    }
}

impl Content {
    /// Check of the numbers of workers, before anything is looked up by them.
    ///
    /// # Errors
    /// Fault of the message, where there are `n_workers`.
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
    /// Whether a worker of the sender has signed off: each does so once, unless its rank fails.
    #[must_use]
    pub fn is_sign_off(&self) -> bool {
        matches!(self.0, Content::SignedOff(..))
    }

    /// Whether the sender has failed: no other message matters after it.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        matches!(self.0, Content::Failed(_))
    }

    /// That what carries messages ends all ranks.
    #[must_use]
    pub fn failure(error: OrderError) -> Self {
        Self(Content::Failed(error))
    }

    /// Messages as bytes.
    ///
    /// # Panics
    /// Never: messages are plain data.
    #[must_use]
    pub fn encode(messages: &[Self]) -> Vec<u8> {
        serde_json::to_vec(messages).expect("messages have no maps, and nothing that JSON lacks")
    }

    /// Messages from bytes.
    ///
    /// # Errors
    /// When the bytes are not from [`encode`](Self::encode).
    pub fn decode(bytes: &[u8]) -> Result<Vec<Self>, OrderError> {
        serde_json::from_slice(bytes).map_err(|error| OrderError::Lost { why: format!("a torn message: {error}") })
    }
}
