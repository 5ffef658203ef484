//! [`CollectivePrefetcher`]: batches that ranks make together, ahead of the step.
//!
//! ```text
//! step s  asks for batches up to s + ahead ──▶ sample ──▶ load ──▶ step s takes batch s
//!                                              each a thread, with a communicator of its own
//! ```
//! All ranks take part in a batch, so that none may be begun on some of them alone. A pipeline that runs on by itself
//! would do that when a run stops; here a batch is made only once it is asked for, steps ask for the same ones on all
//! ranks, since they end together, and all that was asked for is made, whoever stops. So a rank whose step fails says
//! so when these are made: far ahead means late.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, Scope};

use super::batches::{EpochBatches, HostBatch, SeedLists};
use crate::TrainError;

/// Batches under way, in order. Dropping it waits for those that were asked for.
pub(super) struct CollectivePrefetcher {
    /// Until no more are asked for.
    ask: Option<Sender<usize>>,
    made: Receiver<Result<HostBatch, TrainError>>,
    /// The first that was not asked for.
    next: usize,
    n_batches: usize,
    ahead: usize,
}

impl CollectivePrefetcher {
    /// Starts two threads that make the batches of an epoch from `first` on, `ahead` of them before they are taken.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(super) fn start_in<'scope, 'b: 'scope>(
        scope: &'scope Scope<'scope, '_>,
        epoch: &'b EpochBatches<'b>,
        first: usize,
        ahead: usize,
    ) -> Result<Self, TrainError> {
        let ((ask, asked), (hand_on, drawn), (hand_over, made)) = (channel(), channel(), channel());
        start(scope, "sample", move || pass_on(asked.iter().map(|at| epoch.draw(at)), &hand_on))?;
        let load = move || pass_on(drawn.iter().map(|batch| batch.and_then(|batch| epoch.load(batch))), &hand_over);
        start(scope, "load", load)?;
        Ok(Self { ask: Some(ask), made, next: first, n_batches: epoch.n_batches(), ahead })
    }

    /// Batch number `at`; calls count up from the first.
    ///
    /// # Errors
    /// When a rank fails.
    pub(super) fn take(&mut self, at: usize) -> Result<HostBatch, TrainError> {
        let until = (at + 1 + self.ahead).min(self.n_batches);
        for batch in self.next..until {
            // Who does not listen has failed, which the receiver below tells.
            if self.ask.as_ref().is_none_or(|ask| ask.send(batch).is_err()) {
                break;
            }
        }
        self.next = until;
        self.made
            .recv()
            .unwrap_or_else(|_| Err(TrainError::invalid("sampling stopped because an earlier mini-batch failed")))
    }
}

fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() + Send + 'scope,
) -> Result<(), TrainError> {
    let started = Builder::new().name(name.to_owned()).spawn_scoped(scope, body);
    started.map(drop).map_err(|error| {
        TrainError::invalid(format!(
            "cannot start the thread that should {name} mini-batches: {error}; allow more threads (ulimit -u)"
        ))
    })
}

/// Hands on what is made until something fails: nobody takes part in batches behind that. Who does not listen any more
/// has failed.
fn pass_on<T>(mut made: impl Iterator<Item = Result<T, TrainError>>, to: &Sender<Result<T, TrainError>>) {
    let panicked = "a thread that makes batches has panicked, with a message on standard error";
    loop {
        let next = catch_unwind(AssertUnwindSafe(|| made.next()));
        let Some(item) = next.unwrap_or_else(|_| Some(Err(TrainError::invalid(panicked)))) else { break };
        let is_last = item.is_err();
        if to.send(item).is_err() || is_last {
            break;
        }
    }
}

impl Drop for CollectivePrefetcher {
    fn drop(&mut self) {
        self.ask = None;
        self.made.iter().for_each(drop);
    }
}
