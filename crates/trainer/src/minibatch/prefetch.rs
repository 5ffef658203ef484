//! [`CollectivePrefetcher`]: prefetch of batches that ranks make together.
//!
//! ```text
//! step s  requests batches up to s + ahead ──▶ sample ──▶ load ──▶ step s takes batch s
//!                                              one thread each, with a communicator of its own
//! ```
//! All ranks take part in a batch, so that none may be started on some ranks alone. A free-running pipeline would do
//! that when a run stops. Here a batch is made only after a step has requested it, and steps request the same batches
//! on all ranks. All requested batches are made, even if the run stops. A rank whose step fails therefore reports it
//! only after these: a longer prefetch delays the error.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, Scope};

use super::batches::{EpochBatches, SeedLists};
use super::host_batch::HostBatch;
use crate::TrainError;

/// Prefetcher of batches, in order. Dropping it waits for the requested ones.
pub(super) struct CollectivePrefetcher {
    /// Sender of requests; `None` once no more follow.
    ask: Option<Sender<usize>>,
    made: Receiver<Result<HostBatch, TrainError>>,
    /// First batch that is not yet requested.
    next: usize,
    n_batches: usize,
    ahead: usize,
}

impl CollectivePrefetcher {
    /// Starts two threads that make the batches of an epoch from `first` on, at most `ahead` before they are taken.
    ///
    /// # Errors
    /// When the system cannot start a thread.
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

    /// Takes batch number `at`; calls count up from the first.
    ///
    /// # Errors
    /// When a rank fails.
    pub(super) fn take(&mut self, at: usize) -> Result<HostBatch, TrainError> {
        let until = (at + 1 + self.ahead).min(self.n_batches);
        for batch in self.next..until {
            // A closed channel means that a thread has failed; the receiver below returns its error.
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

/// Passes items on until one fails: no rank takes part in later batches. Also ends when the receiver is gone, which
/// means that its thread has failed.
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
