//! Mutexes and condition variables: from the standard library or, in unit tests of this crate, from loom. Loom runs a
//! test once for every interleaving of its threads. Tests in `tests/` use the standard library.

#[cfg(not(test))]
pub use std::sync::{Condvar, Mutex, MutexGuard};

#[cfg(test)]
pub use loom::sync::{Condvar, Mutex, MutexGuard};

use std::sync::PoisonError;
use std::time::Instant;

/// Locks a mutex and ignores poisoning. No thread panics with the lock held, because no code of a caller runs under it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits on `changed` until `until` at most, and releases the mutex of `guard` meanwhile. In model checks this time
/// never comes.
pub fn wait_until<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>, until: Instant) -> MutexGuard<'a, T> {
    let left = until.saturating_duration_since(Instant::now());
    changed.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0
}
