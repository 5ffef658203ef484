//! Mutexes and condition variables: the standard library's, or, in unit tests, those of loom, which runs a test once for
//! every way in which its threads can be interleaved. Tests in `tests/` run the real ones.

#[cfg(test)]
pub use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(test))]
pub use std::sync::{Condvar, Mutex, MutexGuard};
