//! Mutexes and condition variables: from the standard library or, in unit tests, from loom. Loom runs a test once for
//! every interleaving of its threads. Tests in `tests/` use the standard library.

#[cfg(test)]
pub use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(test))]
pub use std::sync::{Condvar, Mutex, MutexGuard};
