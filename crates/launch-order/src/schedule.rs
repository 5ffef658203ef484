//! [`LaunchSchedule`]: decides the next launch of one rank, on plain data without threads or clocks.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::message::{Content, Progress};
use crate::{Launch, Order, OrderError, Rules};

/// Largest distance by which a decision may arrive ahead of others. It bounds the memory that a message can make this
/// rank allocate.
const MOST_AHEAD: usize = 1 << 12;

/// Next launch of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// This worker, before all others; with its batch, if that is known.
    Only(usize, Option<u64>),
    /// Any worker.
    Anybody,
    /// Not yet decided by the leader.
    Undecided,
    /// No worker: the order is at its end.
    Nobody,
}

/// Source of the order, and its state.
enum Turns {
    /// Decided launches that this rank has not made. Entry `i` has launch number `n_launched + i`; it is `None` if a
    /// later decision arrived first.
    Led {
        leader: usize,
        decided: VecDeque<Option<Launch>>,
    },
    /// Round and worker from which the search for the next launch starts.
    Fixed {
        lag: u64,
        round: u64,
        worker: usize,
    },
    Free,
    /// Remaining launches of a log, and the remaining batches of each worker.
    Replay {
        rest: VecDeque<Launch>,
        batches: Vec<VecDeque<u64>>,
    },
}

/// Launches of one rank: past ones, registered ones, and the next one.
pub(crate) struct LaunchSchedule {
    rank: usize,
    names: Arc<[String]>,
    turns: Turns,
    workers: Vec<Progress>,
    /// Worker that is launching.
    holder: Option<usize>,
    n_launched: u64,
    /// Number of launches after which each worker closed, by rank and worker; `None` for workers that have not
    /// closed.
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

    /// Whether all workers of this rank have closed.
    pub fn has_ended(&self) -> bool {
        self.workers.iter().all(|worker| worker.has_signed_off)
    }

    /// First worker that has not closed on every rank, with the ranks that lack its close. `None` when all have
    /// closed.
    pub fn missing_sign_off(&self) -> Option<(usize, Vec<usize>)> {
        let missing = |worker: usize| {
            let ranks = self.signed_off.iter().enumerate().filter(|(_, of_rank)| of_rank[worker].is_none());
            (worker, ranks.map(|(rank, _)| rank).collect::<Vec<usize>>())
        };
        (0..self.workers.len()).map(missing).find(|(_, ranks)| !ranks.is_empty())
    }

    /// Registers a launch of a worker that has none pending. Returns the message for the other ranks, if there is
    /// one.
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

    /// Handles a decision or a close of another rank.
    ///
    /// # Errors
    /// When the message is malformed, or ranks do different things.
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

    /// Next launch, whether or not a worker is launching now.
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

    /// Next round and worker of a fixed order, without workers that have closed.
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

    /// Worker that is next in the order but has not registered.
    pub fn absent(&self) -> Option<usize> {
        match self.next() {
            Next::Only(worker, _) if self.workers[worker].pending.is_none() => Some(worker),
            _ => None,
        }
    }

    /// Registered worker that may launch now.
    pub fn ready(&self) -> Option<usize> {
        match self.next() {
            Next::Only(worker, _) if self.holder.is_none() && self.workers[worker].pending.is_some() => Some(worker),
            _ => None,
        }
    }

    /// Whether a registered worker may launch now.
    pub fn is_turn(&self, worker: usize) -> bool {
        self.next() == Next::Anybody || self.ready() == Some(worker)
    }

    /// Marks a worker that may launch as launching.
    pub fn begin(&mut self, worker: usize) {
        if !matches!(self.turns, Turns::Free) {
            self.holder = Some(worker);
        }
    }

    /// Records that a worker has made its registered launch.
    ///
    /// # Panics
    /// When the worker had registered no launch.
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

    /// Closes a worker. Returns the message for the other ranks.
    pub fn close(&mut self, worker: usize) -> Result<Content, OrderError> {
        let progress = &mut self.workers[worker];
        progress.has_signed_off = true;
        let n_launched = progress.n_launched;
        self.signed_off[self.rank][worker] = Some(n_launched);
        self.check(worker)?;
        Ok(Content::SignedOff(worker, n_launched))
    }

    /// Checks the last action of a worker against the decided order and against its launches on other ranks.
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

    /// Next batch that a worker has to launch, as far as it is decided.
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

    /// Describes the decision to launch a batch, for an error.
    fn whose(&self, batch: u64) -> String {
        match &self.turns {
            Turns::Led { leader, .. } => format!("rank {leader}, which leads, launches its batch {batch}"),
            _ => format!("the log launches its batch {batch}"),
        }
    }
}

/// Next batch that a worker has to launch.
enum Due {
    Batch(u64),
    Unknown,
    NoMore,
}
