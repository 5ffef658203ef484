//! [`Source`]: iterator at the head of a pipeline, shared by the workers of the first stage.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::StageError;
use crate::error::panic_message;
use crate::queue::{Close, Input};
use crate::sync::{Mutex, lock};
use crate::times::{Activity, SharedLog};
use crate::worker::Parcel;

/// Name of the source in reports and errors.
pub const NAME: &str = "source";

/// Iterator shared by several threads.
pub struct Source<I> {
    state: Mutex<State<I>>,
    /// Outside of the mutex, so that closing does not wait for a slow iterator.
    is_closed: AtomicBool,
    log: SharedLog,
}

struct State<I> {
    /// `None` after the end; the iterator is not called again.
    items: Option<I>,
    n_taken: u64,
}

impl<I> Source<I> {
    pub fn new(items: I, log: SharedLog) -> Self {
        let state = Mutex::new(State { items: Some(items), n_taken: 0 });
        Self { state, is_closed: AtomicBool::new(false), log }
    }
}

impl<T, E, I> Input<Parcel<T, E>> for Source<I>
where
    I: Iterator<Item = T> + Send,
{
    fn take(&self) -> Option<(u64, Parcel<T, E>)> {
        let mut state = lock(&self.state);
        if self.is_closed.load(Ordering::Relaxed) {
            return None;
        }
        let place = state.n_taken;
        self.log.lap(Activity::WaitOutput, None, false);
        let items = state.items.as_mut()?;
        let next = catch_unwind(AssertUnwindSafe(|| items.next())).map_err(|panic| StageError::Panicked {
            stage: NAME.to_owned(),
            item: Some(place),
            message: panic_message(&*panic),
        });
        let outcome = next.transpose();
        let has_made = matches!(outcome, Some(Ok(_)));
        self.log.lap(Activity::Work, outcome.as_ref().map(|_| place), has_made);
        if !has_made {
            state.items = None;
        }
        state.n_taken += 1;
        Some((place, Parcel { item: place, outcome: outcome? }))
    }
}

impl<I: Send> Close for Source<I> {
    fn close(&self) {
        // A worker that is taking an item may miss this. That does no harm, because the queue for its output is
        // closed too.
        self.is_closed.store(true, Ordering::Relaxed);
    }
}
