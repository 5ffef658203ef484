//! [`Items`]: the consumer's end of a running pipeline.

use std::task::Poll;
use std::thread;
use std::time::Duration;

use crate::StageError;
use crate::error::panic_message;
use crate::report::{Report, StageName};
use crate::times::{Activity, Log, SharedLog};
use crate::worker::{Ended, Parcel, Parcels, Upstream, close};

/// Function that joins a thread.
pub type Handle<'a> = Box<dyn FnOnce() -> thread::Result<Ended> + Send + 'a>;

/// Output of a running pipeline, in the order of its source.
///
/// The iterator ends with the source, or after the first error. Dropping it at any moment stops all stages and joins
/// their threads. [`finish`](Self::finish) does so too, and returns a report of times.
#[must_use = "dropping it stops the pipeline"]
pub struct Items<'a, T, E> {
    input: Parcels<'a, T, E>,
    /// Source and all queues of the pipeline; empty once it has been stopped.
    upstream: Upstream<'a>,
    /// Threads that have not been joined, each with the index of its stage.
    running: Vec<(usize, Handle<'a>)>,
    ended: Vec<(usize, Log)>,
    stages: Vec<StageName>,
    source_log: SharedLog,
    log: Log,
    /// Position in the source of the item that the consumer works on.
    item: Option<u64>,
}

impl<'a, T, E> Items<'a, T, E> {
    pub(crate) fn new(
        input: Parcels<'a, T, E>,
        upstream: Upstream<'a>,
        stages: Vec<StageName>,
        source_log: SharedLog,
        log: Log,
    ) -> Self {
        let (running, ended) = (Vec::new(), Vec::new());
        Self { input, upstream, running, ended, stages, source_log, log, item: None }
    }

    pub(crate) fn add_worker(&mut self, stage: usize, handle: Handle<'a>) {
        self.running.push((stage, handle));
    }

    /// Stops all stages, joins their threads, and reports how long each worked and waited.
    ///
    /// Failures of items that the consumer did not take are not reported.
    pub fn finish(mut self) -> Report {
        if !self.upstream.is_empty() {
            self.log.lap(Activity::Work, self.item.take());
            self.stop();
            self.log.lap(Activity::WaitInput, None);
        }
        let source = self.source_log.with(Option::take).expect("made when the pipeline was started");
        Report::new(source, &self.stages, std::mem::take(&mut self.ended), self.log.clone())
    }

    /// Stops all running stages. Returns the first panic that does not belong to an item.
    fn stop(&mut self) -> Option<StageError<E>> {
        close(&std::mem::take(&mut self.upstream));
        let mut failure = None;
        for (stage, handle) in self.running.drain(..) {
            let panic = match handle() {
                Ok(Ended { log, panic }) => {
                    self.ended.push((stage, log));
                    panic
                }
                Err(panic) => Some(panic_message(&*panic)),
            };
            let panicked =
                |message| StageError::Panicked { stage: self.stages[stage].name.clone(), item: None, message };
            failure = failure.or(panic.map(panicked));
        }
        failure
    }

    /// As [`next`](Iterator::next), but waits for about `limit` at most: pending if no item has come by then. A caller
    /// that also waits for something else, such as an interrupt, looks there in between.
    pub fn next_within(&mut self, limit: Duration) -> Poll<Option<Result<T, StageError<E>>>> {
        if self.upstream.is_empty() {
            return Poll::Ready(None);
        }
        self.log.lap(Activity::Work, self.item.take());
        let taken = self.input.take_within(limit);
        let next = taken.map(|taken| self.passed_on(taken));
        self.log.lap(Activity::WaitInput, self.item);
        self.log.n_items += u64::from(matches!(next, Poll::Ready(Some(Ok(_)))));
        next
    }

    /// Item or error of what was taken from the last queue; `None` at the end of the source.
    fn passed_on(&mut self, taken: Option<(u64, Parcel<T, E>)>) -> Option<Result<T, StageError<E>>> {
        match taken {
            Some((_, parcel)) => {
                self.item = Some(parcel.item);
                if parcel.outcome.is_err() {
                    self.stop();
                }
                Some(parcel.outcome)
            }
            None => self.stop().map(Err),
        }
    }
}

impl<T, E> Iterator for Items<'_, T, E> {
    type Item = Result<T, StageError<E>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.upstream.is_empty() {
            return None;
        }
        self.log.lap(Activity::Work, self.item.take());
        let taken = self.input.take();
        let next = self.passed_on(taken);
        self.log.lap(Activity::WaitInput, self.item);
        self.log.n_items += u64::from(matches!(next, Some(Ok(_))));
        next
    }
}

impl<T, E> std::iter::FusedIterator for Items<'_, T, E> {}

impl<T, E> Drop for Items<'_, T, E> {
    fn drop(&mut self) {
        self.stop();
    }
}
