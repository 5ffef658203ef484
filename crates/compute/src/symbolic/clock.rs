//! [`SymbolicClock`]: simulated time of a symbolic device, shared with the exchanges that overlap its work.

use std::sync::{Arc, Mutex, PoisonError};

use super::{Cost, update};

/// The clock of a [`Symbolic`](super::Symbolic), which each of its operations puts forward.
#[derive(Clone, Debug)]
pub struct SymbolicClock(pub(super) Arc<Mutex<Cost>>);

impl SymbolicClock {
    /// Seconds of what the device was asked for so far.
    #[must_use]
    pub fn now(&self) -> f64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).seconds
    }

    /// The device goes on at `moment`, unless it is later already.
    pub fn wait_until(&self, moment: f64) {
        update(&self.0, |cost| cost.seconds = cost.seconds.max(moment));
    }

    /// What the device was asked for takes so many seconds more.
    pub fn delay(&self, seconds: f64) {
        update(&self.0, |cost| cost.seconds += seconds);
    }

    /// Counts an exchange with other devices, which takes so many seconds, whether or not the device waits for it.
    pub fn count_exchange(&self, seconds: f64) {
        update(&self.0, |cost| cost.exchange_seconds += seconds);
    }
}
