//! [`Worker`]: one thread of a stage.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::StageError;
use crate::error::panic_message;
use crate::queue::{Close, Input, Queue};
use crate::times::{Activity, Log};

/// Item in transit between stages.
pub struct Parcel<T, E> {
    /// Position of the item in the source.
    pub item: u64,
    /// Item, or the failure in its place. A failure keeps the position of its item, so it comes out in order.
    pub outcome: Result<T, StageError<E>>,
}

/// Source and queues before some point of a pipeline.
///
/// A worker or consumer that needs no more input closes all of them at once. If each stage closed only its own input,
/// a stop would wait for the work of one stage after the other. Meanwhile, stages further up would begin new items.
pub type Upstream<'a> = Vec<Arc<dyn Close + 'a>>;

/// Closes `upstream`, from the nearest element to the source.
pub fn close(upstream: &Upstream<'_>) {
    upstream.iter().rev().for_each(|part| part.close());
}

/// Source of the parcels of a stage.
pub type Parcels<'a, T, E> = Arc<dyn Input<Parcel<T, E>> + 'a>;

/// Result of a thread that has ended.
pub struct Ended {
    pub log: Log,
    /// Message of a panic outside of any item.
    pub panic: Option<String>,
}

/// One thread of a stage.
pub struct Worker<'a, T, U, E> {
    pub stage: Arc<str>,
    pub input: Parcels<'a, T, E>,
    pub upstream: Upstream<'a>,
    pub output: Arc<Queue<Parcel<U, E>>>,
    /// Whether items keep the order of the input.
    pub keeps_order: bool,
}

impl<T, U: Send, E: Send> Worker<'_, T, U, E> {
    /// Works until the input ends, the output is closed, or an item fails.
    pub fn run<W: FnMut(T) -> Result<U, E>>(self, make: &dyn Fn() -> W, mut log: Log) -> Ended {
        let all = catch_unwind(AssertUnwindSafe(|| self.work_off(make(), &mut log)));
        let panic = all.err().map(|panic| panic_message(&*panic));
        if panic.is_some() {
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

    /// Works on one item, and turns its failure or panic into an error of this stage.
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
