//! [`Pool`]: memory that is kept from batch to batch.

use std::sync::{Mutex, PoisonError};

/// Memory of batches, one for each that is being sampled.
pub(crate) struct Pool<T>(Mutex<Vec<T>>);

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Pool<T> {
    /// Lends memory to `work`: that of an earlier batch, or a `new` one.
    pub(crate) fn with<R>(&self, new: impl FnOnce() -> T, work: impl FnOnce(&mut T) -> R) -> R {
        // A poisoned lock means that another batch panicked: its memory never came back, and what is here is sound.
        let free = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lent = free().pop();
        let mut lent = lent.unwrap_or_else(new);
        let result = work(&mut lent);
        free().push(lent);
        result
    }
}
