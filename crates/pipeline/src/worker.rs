//! [`Worker`]: one thread of a stage, from its first item to its last.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use crate::StageError;
use crate::error::panic_message;
use crate::order::Coordinator;
use crate::queue::{Close, Input, Queue};
use crate::times::{Activity, Log};

/// An item between stages.
pub struct Parcel<T, E> {
    /// The place of the item in the source.
    pub item: u64,
    /// The item, or why there is none. A failure takes the place of its item, so that it comes out in turn.
    pub outcome: Result<T, StageError<E>>,
}

/// Everything that lies before some point of a pipeline.
///
/// Who needs no more input closes all of it at once. Were each stage to close only what lies directly before it, a stop
/// would wait for the work of one stage after the other, and those not yet reached would begin further items meanwhile.
pub type Upstream<'a> = Vec<Arc<dyn Close + 'a>>;

/// Closes `upstream`, the nearest first.
pub fn close(upstream: &Upstream<'_>) {
    upstream.iter().rev().for_each(|part| part.close());
}

/// What orders the launches of a pipeline's stages, if anything does; set before it starts.
pub type Coordination = Arc<OnceLock<Coordinator>>;

/// Stops what orders launches, on all ranks: a stage may wait for its turn, here or there.
pub fn stop(coordination: &Coordination, why: impl FnOnce() -> String) {
    if let Some(coordinator) = coordination.get() {
        coordinator.stop(why());
    }
}

/// Where parcels come from.
pub type Parcels<'a, T, E> = Arc<dyn Input<Parcel<T, E>> + 'a>;

/// What a thread leaves behind.
pub struct Ended {
    pub log: Log,
    /// What a panic said that no item is to blame for.
    pub panic: Option<String>,
}

/// One thread of a stage.
pub struct Worker<'a, T, U, E> {
    pub stage: Arc<str>,
    pub input: Parcels<'a, T, E>,
    pub upstream: Upstream<'a>,
    pub coordination: Coordination,
    pub output: Arc<Queue<Parcel<U, E>>>,
    /// Whether items keep their places.
    pub keeps_order: bool,
}

impl<T, U: Send, E: Send> Worker<'_, T, U, E> {
    /// Works until there is no more input, no more output is wanted, or an item has failed.
    pub fn run<W: FnMut(T) -> Result<U, E>>(self, make: &dyn Fn() -> W, mut log: Log) -> Ended {
        let all = catch_unwind(AssertUnwindSafe(|| self.work_off(make(), &mut log)));
        let panic = all.err().map(|panic| panic_message(&*panic));
        if let Some(message) = &panic {
            stop(&self.coordination, || format!("{} panicked: {message}", self.stage));
            close(&self.upstream);
        }
        self.output.end_producer();
        Ended { log, panic }
    }

    fn work_off(&self, mut work: impl FnMut(T) -> Result<U, E>, log: &mut Log) {
        while let Some((place, parcel)) = self.take(log) {
            let item = parcel.item;
            let outcome = parcel.outcome.and_then(|value| self.one(item, || work(value)));
            log.lap(Activity::Work, Some(item));
            let has_failed = outcome.is_err();
            if has_failed {
                stop(&self.coordination, || format!("{} failed at item {item}", self.stage));
                close(&self.upstream);
            }
            let put = self.output.put(self.keeps_order.then_some(place), Parcel { item, outcome });
            log.lap(Activity::WaitOutput, Some(item));
            if has_failed || put.is_err() {
                return;
            }
            log.n_items += 1;
        }
    }

    fn take(&self, log: &mut Log) -> Option<(u64, Parcel<T, E>)> {
        let taken = self.input.take();
        log.lap(Activity::WaitInput, taken.as_ref().map(|(_, parcel)| parcel.item));
        taken
    }

    /// The work on one item, with its failure and its panic as errors of this stage.
    fn one(&self, item: u64, work: impl FnOnce() -> Result<U, E>) -> Result<U, StageError<E>> {
        let stage = || self.stage.to_string();
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(done) => done.map_err(|source| StageError::Failed { stage: stage(), item, source }),
            Err(panic) => {
                let message = panic_message(&*panic);
                Err(StageError::Panicked { stage: stage(), item: Some(item), message })
            }
        }
    }
}
