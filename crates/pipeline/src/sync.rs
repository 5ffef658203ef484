//! Where mutexes, condition variables and threads come from: the standard library, or, in this crate's unit tests,
//! loom, which runs a test once for every way in which its threads can be interleaved. Tests in `tests/` run the real
//! ones.

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
use std::time::Instant;

/// Locks, whether or not a thread panicked with the lock held: none does, because stages and sources run outside of it
/// or have their panics caught.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a change of what `guard` guards.
pub fn wait<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// As [`wait`], at most until `until`, which in model checks never comes.
pub fn wait_until<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>, until: Instant) -> MutexGuard<'a, T> {
    let left = until.saturating_duration_since(Instant::now());
    changed.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0
}
