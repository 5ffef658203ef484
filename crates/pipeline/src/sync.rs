//! Mutexes, condition variables and threads: from the standard library or, in unit tests of this crate, from loom.
//! Loom runs a test once for every interleaving of its threads. Tests in `tests/` use the standard library.

#[cfg(not(test))]
pub use std::{
    sync::{Condvar, Mutex, MutexGuard},
    thread,
};

#[cfg(test)]
pub use loom::{
    sync::{Condvar, Mutex, MutexGuard},
    thread,
};

use std::sync::PoisonError;
use std::time::Duration;

/// Locks a mutex and ignores poisoning. No thread panics with the lock held, because stages and sources run outside
/// of it or have their panics caught.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits on `changed` and releases the mutex of `guard` meanwhile.
pub fn wait<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// As [`wait`], but for `limit` at most. Loom knows no time: there it waits.
pub fn wait_for<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>, limit: Duration) -> MutexGuard<'a, T> {
    changed.wait_timeout(guard, limit).unwrap_or_else(PoisonError::into_inner).0
}
