//! [`Pool`]: memory that is kept from batch to batch.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Pool of batch memory; it grows to the number of batches in use at a time.
#[derive(Debug)]
pub(crate) struct Pool<T>(Mutex<Vec<T>>);

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Pool<T> {
    /// Lends memory to `work`: the memory of an earlier batch, or a `new` one.
    pub(crate) fn with<R>(&self, new: impl FnOnce() -> T, work: impl FnOnce(&mut T) -> R) -> R {
        let lent = self.free().pop();
        let mut lent = lent.unwrap_or_else(new);
        let result = work(&mut lent);
        self.give_back(lent);
        result
    }

    /// Takes memory of an earlier batch, or new memory, until it is given back.
    pub(crate) fn take(&self) -> T
    where
        T: Default,
    {
        self.free().pop().unwrap_or_default()
    }

    /// Keeps memory for a later batch.
    pub(crate) fn give_back(&self, lent: T) {
        self.free().push(lent);
    }

    fn free(&self) -> MutexGuard<'_, Vec<T>> {
        // A poisoned lock means that a thread panicked between two of these lines; the list is still sound.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
