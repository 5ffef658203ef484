//! [`SymbolicClock`]: simulated time of a symbolic device, shared with the exchanges that overlap its work.

use std::sync::{Arc, Mutex, PoisonError};

use super::{Cost, update};

/// Clock of a [`Symbolic`](super::Symbolic) device. Each operation of the device advances it.
#[derive(Clone, Debug)]
pub struct SymbolicClock(pub(super) Arc<Mutex<Cost>>);

impl SymbolicClock {
    /// Simulated seconds of the device so far.
    #[must_use]
    pub fn now(&self) -> f64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).seconds
    }

    /// Advances the clock to `moment` (seconds), unless it is later already.
    pub fn wait_until(&self, moment: f64) {
        update(&self.0, |cost| cost.seconds = cost.seconds.max(moment));
    }

    /// Advances the clock by `seconds`.
    pub fn delay(&self, seconds: f64) {
        update(&self.0, |cost| cost.seconds += seconds);
    }

    /// Counts an exchange with other devices that takes `seconds`, whether or not the device waits for it.
    pub fn count_exchange(&self, seconds: f64) {
        update(&self.0, |cost| cost.exchange_seconds += seconds);
    }
}
