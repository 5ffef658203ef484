//! [`OrderLog`]: launches of a rank, with their order and times.

use serde::{Deserialize, Serialize};

use crate::OrderError;

/// Launch of a batch by a worker: one collective, several, or a captured CUDA graph of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Launch {
    /// Id of the worker.
    pub worker: usize,
    /// Number of the batch.
    pub batch: u64,
}

/// One launch. Times are seconds since the creation of the rank's coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The worker and its batch.
    #[serde(flatten)]
    pub launch: Launch,
    /// Time at which the worker registered.
    pub registered_s: f64,
    /// Time at which the worker got its launch permit.
    pub turn_s: f64,
    /// Time at which the launch was complete.
    pub launched_s: f64,
}

/// Launches of one rank, in order. A log can be written, read, and replayed by
/// [`Order::Replay`](crate::Order::Replay).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderLog {
    /// Rank of the log.
    pub rank: usize,
    /// Names of the workers, by id.
    pub workers: Vec<String>,
    /// Launches in order. With `Free`, launches overlap, and this is the order in which they ended.
    pub entries: Vec<Entry>,
}

impl OrderLog {
    /// Launches in order, without times.
    pub fn launches(&self) -> impl Iterator<Item = Launch> {
        self.entries.iter().map(|entry| entry.launch)
    }

    /// Refuses a log of other workers.
    pub(crate) fn check(&self, workers: &[String]) -> Result<(), OrderError> {
        let refuse = |what: String| Err(OrderError::Rules { what });
        if self.workers != workers {
            return refuse(format!(
                "the log is of workers {}, not of {}: replay it with the program that wrote it",
                self.workers.join(", "),
                workers.join(", ")
            ));
        }
        match self.launches().position(|launch| launch.worker >= workers.len()) {
            Some(at) => refuse(format!(
                "entry {at} of the log is of worker {}, but there are {}, counted from 0",
                self.entries[at].launch.worker,
                workers.len()
            )),
            None => Ok(()),
        }
    }
}

/// First two launches that two ranks made in different orders, in the order of `mine`.
pub(crate) fn crossing(mine: &[Launch], theirs: &[Launch]) -> Option<(Launch, Launch)> {
    let place = |launch: &Launch| theirs.iter().position(|their| their == launch);
    let common: Vec<(usize, Launch)> = mine.iter().filter_map(|launch| Some((place(launch)?, *launch))).collect();
    let crossed = |at: usize| {
        let (place, second) = common[at];
        common[..at].iter().find(|(before, _)| *before > place).map(|(_, first)| (*first, second))
    };
    (0..common.len()).find_map(crossed)
}
