//! [`LaunchSchedule`]: which launch is next on one rank, decided on plain data: no threads, no clocks.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::message::{Content, Progress};
use super::{Order, OrderError, Rules};

/// A worker's launch of a batch: one collective, several, or a recorded graph of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Launch {
    /// The id of the worker.
    pub worker: usize,
    /// The batch.
    pub batch: u64,
}

/// Most decisions by which one may overtake others: memory for them is reserved before they come.
const MOST_AHEAD: usize = 1 << 12;

/// Who launches next on a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// This worker, and nobody before it; its batch where it is known.
    Only(usize, Option<u64>),
    /// Whoever wants to.
    Anybody,
    /// Whom the leader names.
    Undecided,
    /// Nobody: the order is at its end.
    Nobody,
}

/// Where the order comes from, and how far it is carried out.
enum Turns {
    /// What the leader decided and this rank has not launched, from launch number `n_launched` on; `None` where a later
    /// decision came first.
    Led {
        leader: usize,
        decided: VecDeque<Option<Launch>>,
    },
    /// The round and the worker that are looked at next.
    Fixed {
        lag: u64,
        round: u64,
        worker: usize,
    },
    Free,
    /// The rest of a log, and of each worker's part of it.
    Replay {
        rest: VecDeque<Launch>,
        batches: Vec<VecDeque<u64>>,
    },
}

/// One rank's view of who has launched, who wants to, and whose turn it is.
pub(super) struct LaunchSchedule {
    rank: usize,
    names: Arc<[String]>,
    turns: Turns,
    workers: Vec<Progress>,
    /// The worker that is launching.
    holder: Option<usize>,
    n_launched: u64,
    /// How often each worker of each rank had launched when it signed off.
    signed_off: Vec<Vec<Option<u64>>>,
}

impl LaunchSchedule {
    pub fn new(rank: usize, n_ranks: usize, rules: &Rules) -> Self {
        let n_workers = rules.workers.len();
        let turns = match &rules.order {
            Order::Led { leader } => Turns::Led { leader: *leader, decided: VecDeque::new() },
            Order::Fixed { lag } => Turns::Fixed { lag: u64::from(*lag), round: 0, worker: 0 },
            Order::Free => Turns::Free,
            Order::Replay(log) => {
                let of =
                    |worker| log.launches().filter(move |launch| launch.worker == worker).map(|launch| launch.batch);
                let batches = (0..n_workers).map(|worker| of(worker).collect()).collect();
                Turns::Replay { rest: log.launches().collect(), batches }
            }
        };
        Self {
            rank,
            names: rules.workers.clone().into(),
            turns,
            workers: vec![Progress::default(); n_workers],
            holder: None,
            n_launched: 0,
            signed_off: vec![vec![None; n_workers]; n_ranks],
        }
    }

    pub fn workers(&self) -> &[Progress] {
        &self.workers
    }

    pub fn holder(&self) -> Option<usize> {
        self.holder
    }

    /// Whether no worker of this rank launches any more.
    pub fn has_ended(&self) -> bool {
        self.workers.iter().all(|worker| worker.has_signed_off)
    }

    /// The first worker, and the ranks, that have not signed off; `None` when all have.
    pub fn missing_sign_off(&self) -> Option<(usize, Vec<usize>)> {
        let missing = |worker: usize| {
            let ranks = self.signed_off.iter().enumerate().filter(|(_, of_rank)| of_rank[worker].is_none());
            (worker, ranks.map(|(rank, _)| rank).collect::<Vec<usize>>())
        };
        (0..self.workers.len()).map(missing).find(|(_, ranks)| !ranks.is_empty())
    }

    /// A worker that is not waiting wants to launch; what to tell the others.
    pub fn register(&mut self, worker: usize, batch: u64) -> Result<Option<Content>, OrderError> {
        self.workers[worker].pending = Some(batch);
        let launch = Launch { worker, batch };
        let decision = match &mut self.turns {
            Turns::Led { leader, decided } if *leader == self.rank => {
                decided.push_back(Some(launch));
                Some(Content::Decided(self.n_launched + decided.len() as u64 - 1, launch))
            }
            _ => None,
        };
        self.check(worker)?;
        Ok(decision)
    }

    /// Another rank has decided, or one of its workers has signed off.
    ///
    /// # Errors
    /// When the message cannot be what it should; when ranks do different things.
    pub fn hear(&mut self, from: usize, content: &Content) -> Result<(), OrderError> {
        let malformed = |what| OrderError::Malformed { rank: from, what };
        content.check(self.workers.len()).map_err(malformed)?;
        match (content, &mut self.turns) {
            (Content::Decided(number, launch), Turns::Led { leader, decided }) => {
                let end = decided.len() + MOST_AHEAD;
                let at = number.checked_sub(self.n_launched).and_then(|at| usize::try_from(at).ok());
                let at = at.filter(|&at| at < end && from == *leader && !matches!(decided.get(at), Some(Some(_))));
                let at =
                    at.ok_or_else(|| malformed(format!("a decision on launch {number} that is not its to make")))?;
                if at >= decided.len() {
                    decided.resize(at + 1, None);
                }
                decided[at] = Some(*launch);
                self.check(launch.worker)
            }
            (Content::SignedOff(worker, n_launched), _) => {
                let of_rank =
                    self.signed_off.get_mut(from).ok_or_else(|| malformed(format!("there is no rank {from}")))?;
                of_rank[*worker] = Some(*n_launched);
                self.check(*worker)
            }
            _ => Ok(()),
        }
    }

    /// Who launches next, whether or not somebody is launching now.
    pub fn next(&self) -> Next {
        match &self.turns {
            Turns::Free => Next::Anybody,
            Turns::Led { decided, .. } => match decided.front() {
                Some(Some(launch)) => Next::Only(launch.worker, Some(launch.batch)),
                _ => Next::Undecided,
            },
            Turns::Fixed { .. } => self.fixed().map_or(Next::Nobody, |(_, worker)| Next::Only(worker, None)),
            Turns::Replay { rest, .. } => {
                rest.front().map_or(Next::Nobody, |launch| Next::Only(launch.worker, Some(launch.batch)))
            }
        }
    }

    /// The round and the worker that are next in a fixed order; those that have signed off are left out.
    fn fixed(&self) -> Option<(u64, usize)> {
        let Turns::Fixed { lag, mut round, mut worker } = self.turns else { return None };
        while !self.has_ended() {
            if !self.workers[worker].has_signed_off && round >= worker as u64 * lag {
                return Some((round, worker));
            }
            (round, worker) = self.after(round, worker);
        }
        None
    }

    fn after(&self, round: u64, worker: usize) -> (u64, usize) {
        if worker + 1 == self.workers.len() { (round + 1, 0) } else { (round, worker + 1) }
    }

    /// The worker whose turn it is, if it has not registered.
    pub fn absent(&self) -> Option<usize> {
        match self.next() {
            Next::Only(worker, _) if self.workers[worker].pending.is_none() => Some(worker),
            _ => None,
        }
    }

    /// The registered worker whose turn it is.
    pub fn ready(&self) -> Option<usize> {
        match self.next() {
            Next::Only(worker, _) if self.holder.is_none() && self.workers[worker].pending.is_some() => Some(worker),
            _ => None,
        }
    }

    /// Whether it is the turn of a worker that has registered.
    pub fn is_turn(&self, worker: usize) -> bool {
        self.next() == Next::Anybody || self.ready() == Some(worker)
    }

    /// A worker whose turn it is begins to launch.
    pub fn begin(&mut self, worker: usize) {
        if !matches!(self.turns, Turns::Free) {
            self.holder = Some(worker);
        }
    }

    /// A worker has launched what it registered.
    ///
    /// # Panics
    /// When it had registered nothing.
    pub fn end(&mut self, worker: usize) -> Launch {
        let found = self.fixed().map(|(round, worker)| self.after(round, worker));
        match &mut self.turns {
            Turns::Led { decided, .. } => {
                decided.pop_front();
            }
            Turns::Fixed { round, worker, .. } => (*round, *worker) = found.expect("its worker has not signed off"),
            Turns::Free => {}
            Turns::Replay { rest, batches } => {
                rest.pop_front();
                batches[worker].pop_front();
            }
        }
        self.holder = self.holder.filter(|holder| *holder != worker);
        self.n_launched += 1;
        let progress = &mut self.workers[worker];
        progress.n_launched += 1;
        Launch { worker, batch: progress.pending.take().expect("who launches has registered") }
    }

    /// A worker will launch no more; what to tell the others.
    pub fn close(&mut self, worker: usize) -> Result<Content, OrderError> {
        let progress = &mut self.workers[worker];
        progress.has_signed_off = true;
        let n_launched = progress.n_launched;
        self.signed_off[self.rank][worker] = Some(n_launched);
        self.check(worker)?;
        Ok(Content::SignedOff(worker, n_launched))
    }

    /// Whether what a worker does fits what is decided, and what it did on other ranks.
    fn check(&self, worker: usize) -> Result<(), OrderError> {
        let progress = &self.workers[worker];
        let differs = |found: String, expected: String| {
            Err(OrderError::Differs { rank: self.rank, worker: self.names[worker].clone(), found, expected })
        };
        let found = match (progress.pending, progress.has_signed_off) {
            (Some(batch), _) => format!("wants to launch batch {batch}"),
            (None, true) => format!("has signed off after {} launches", progress.n_launched),
            (None, false) => return Ok(()),
        };
        match (self.due(worker), progress.pending) {
            (Due::Batch(due), pending) if pending != Some(due) => differs(found, self.whose(due))?,
            (Due::NoMore, Some(_)) => differs(found, "the log has no more launches of it".to_owned())?,
            _ => {}
        }
        let count = |(other, of_rank): (usize, &Vec<Option<u64>>)| Some((other, of_rank[worker]?));
        for (other, other_launches) in self.signed_off.iter().enumerate().filter_map(count) {
            let launches = progress.n_registered();
            if launches > other_launches || (progress.has_signed_off && launches != other_launches) {
                let worker = self.names[worker].clone();
                return Err(OrderError::Counts { worker, rank: self.rank, launches, other, other_launches });
            }
        }
        Ok(())
    }

    /// What a worker has to launch next, as far as that is decided.
    fn due(&self, worker: usize) -> Due {
        match &self.turns {
            Turns::Led { decided, .. } => {
                let next = decided.iter().flatten().find(|launch| launch.worker == worker);
                next.map_or(Due::Unknown, |launch| Due::Batch(launch.batch))
            }
            Turns::Replay { batches, .. } => batches[worker].front().map_or(Due::NoMore, |batch| Due::Batch(*batch)),
            Turns::Fixed { .. } | Turns::Free => Due::Unknown,
        }
    }

    /// Who wants a batch to be launched.
    fn whose(&self, batch: u64) -> String {
        match &self.turns {
            Turns::Led { leader, .. } => format!("rank {leader}, which leads, launches its batch {batch}"),
            _ => format!("the log launches its batch {batch}"),
        }
    }
}

/// What a worker has to launch next.
enum Due {
    Batch(u64),
    Unknown,
    NoMore,
}
