//! Diagnosis after a deadline: which worker was awaited, and on which ranks it is missing.

use crate::log::crossing;
use crate::message::Status;
use crate::schedule::{LaunchSchedule, Next};
use crate::{Launch, OrderError, Rules};

/// Known state of all ranks when a deadline has passed.
pub(crate) struct Diagnosis<'a> {
    pub rank: usize,
    pub rules: &'a Rules,
    pub schedule: &'a LaunchSchedule,
    /// Status of each rank that answered, including this one; `None` for the others.
    pub statuses: &'a [Option<Status>],
}

impl Diagnosis<'_> {
    fn name(&self, worker: usize) -> &str {
        &self.rules.workers[worker]
    }

    /// Ranks known to have registered at most `n` launches of a worker.
    fn without(&self, worker: usize, n: u64) -> Vec<usize> {
        self.ranks(|status| status.workers[worker].n_registered() <= n)
    }

    fn ranks(&self, is_so: impl Fn(&Status) -> bool) -> Vec<usize> {
        let known = self.statuses.iter().enumerate().filter_map(|(rank, status)| Some((rank, status.as_ref()?)));
        known.filter(|(_, status)| is_so(status)).map(|(rank, _)| rank).collect()
    }

    /// `, but is missing on ranks 1 and 2; rank 3 does not answer`
    fn whereabouts(&self, missing_on: &[usize]) -> String {
        let silent: Vec<usize> = (0..self.statuses.len()).filter(|rank| self.statuses[*rank].is_none()).collect();
        let mut text = String::new();
        if !missing_on.is_empty() {
            text += &format!(", which is missing on {}", name_ranks(missing_on));
        }
        if !silent.is_empty() {
            text += &format!("; no answer from {}", name_ranks(&silent));
        }
        text
    }

    fn late(&self, launch: Launch, awaited: usize, missing_on: Vec<usize>, what: String) -> OrderError {
        OrderError::Late {
            rank: self.rank,
            worker: self.name(launch.worker).to_owned(),
            batch: launch.batch,
            seconds: self.rules.deadline.as_secs_f64(),
            awaited: self.name(awaited).to_owned(),
            missing_on,
            what,
        }
    }

    /// Error for a registered worker that got no launch permit in time.
    pub fn turn(&self, launch: Launch) -> OrderError {
        let (worker, batch) = match (self.schedule.holder(), self.schedule.next()) {
            (Some(holder), _) => {
                let what = format!("its turn, which {} holds: it is still launching", self.name(holder));
                return self.late(launch, holder, vec![self.rank], what);
            }
            (None, Next::Only(worker, batch)) => (worker, batch),
            (None, Next::Anybody | Next::Undecided | Next::Nobody) => (launch.worker, Some(launch.batch)),
        };
        let n_launched = self.schedule.workers()[worker].n_launched;
        let missing_on = self.without(worker, n_launched);
        let which = batch.map_or_else(|| format!("launch {n_launched}"), |batch| format!("batch {batch}"));
        let next = format!("{} with {which}{}", self.name(worker), self.whereabouts(&missing_on));
        self.late(launch, worker, missing_on, format!("its turn; next is {next}"))
    }

    /// Error for a launch whose result did not come in time.
    pub fn result(&self, launch: Launch) -> OrderError {
        let n_before = self.schedule.workers()[launch.worker].n_launched.saturating_sub(1);
        let missing_on = self.ranks(|status| status.workers[launch.worker].n_launched <= n_before);
        let what = match (missing_on.is_empty(), self.crossed()) {
            (false, _) => format!("the result of a launch{}", self.whereabouts(&missing_on)),
            (true, Some(how)) => format!("a result; ranks launched in different orders: {how}"),
            (true, None) => format!("a result, though the launch is missing nowhere{}", self.whereabouts(&[])),
        };
        self.late(launch, launch.worker, missing_on, what)
    }

    /// Describes two launches that this rank and another made in different orders.
    fn crossed(&self) -> Option<String> {
        let mine = &self.statuses[self.rank].as_ref()?.recent;
        let with = |(rank, status): (usize, &Option<Status>)| {
            let (first, second) = crossing(mine, &status.as_ref()?.recent)?;
            let say = |launch: Launch| format!("{} with batch {}", self.name(launch.worker), launch.batch);
            Some(format!("rank {} {} before {}, rank {rank} the other way round", self.rank, say(first), say(second)))
        };
        self.statuses.iter().enumerate().find_map(with)
    }

    /// The subset of `ranks` with the fewest registered launches of a worker. Ranks without a status are kept.
    fn furthest_behind(&self, worker: usize, mut ranks: Vec<usize>) -> Vec<usize> {
        let n_registered = |rank: &usize| Some(self.statuses[*rank].as_ref()?.workers[worker].n_registered());
        let fewest = ranks.iter().filter_map(n_registered).min();
        ranks.retain(|rank| n_registered(rank).is_none_or(|n| Some(n) == fewest));
        ranks
    }

    /// Error for an epoch that does not end: a worker has not closed, or the next worker in the order has not
    /// registered.
    pub fn end(&self) -> Option<OrderError> {
        let (worker, ranks) = self.schedule.missing_sign_off()?;
        let ranks = self.furthest_behind(worker, ranks);
        let absent = self.statuses.iter().flatten().find_map(|status| status.absent);
        let absent_on = |absent| self.ranks(|status| status.absent == Some(absent));
        let (awaited, missing_on) = absent.map_or((worker, ranks), |absent| (absent, absent_on(absent)));
        let whose = absent.map_or("has not signed off", |_| "does not register its next launch");
        let what = format!("the end of the epoch: {} {whose} on {}", self.name(awaited), name_ranks(&missing_on));
        let batch = self.schedule.workers()[worker].n_launched;
        Some(self.late(Launch { worker, batch }, awaited, missing_on, what))
    }
}

/// `rank 1`, `ranks 1, 2`
fn name_ranks(ranks: &[usize]) -> String {
    let list = ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    format!("{} {list}", if ranks.len() == 1 { "rank" } else { "ranks" })
}
