//! [`Spares`]: memory of batches that Python has released.

use std::sync::{Mutex, MutexGuard, TryLockError};

/// Memory for later batches, in the order in which it came back.
#[derive(Default)]
pub struct Spares<T>(Mutex<Vec<T>>);

impl<T: Default> Spares<T> {
    /// List of released memory; `None` while another thread has it, or, after a fork, had it.
    fn list(&self) -> Option<MutexGuard<'_, Vec<T>>> {
        (0..1000).find_map(|_| match self.0.try_lock() {
            Ok(list) => Some(list),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                std::hint::spin_loop();
                None
            }
        })
    }

    /// Memory that came back last, or new memory, after `fill` has filled it; it is kept if that fails.
    pub fn filled<E>(&self, fill: impl FnOnce(&mut T) -> Result<(), E>) -> Result<T, E> {
        let mut memory = self.list().and_then(|mut list| list.pop()).unwrap_or_default();
        match fill(&mut memory) {
            Ok(()) => Ok(memory),
            Err(error) => {
                self.give_back(memory);
                Err(error)
            }
        }
    }

    /// Keeps memory for later.
    pub fn give_back(&self, memory: T) {
        if let Some(mut list) = self.list() {
            list.push(memory);
        }
    }
}
