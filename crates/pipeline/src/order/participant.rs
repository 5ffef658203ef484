//! [`Participant`] and [`LaunchPermit`]: a worker's part in the launch order.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::coordinator::Shared;
use super::{Launch, OrderError};

/// How often a result is looked for: at first, and at most.
const LOOK: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(1)];

/// A worker's part in the launch order of its rank. Dropping it signs the worker off, or, in a panic, stops all ranks.
pub struct Participant {
    shared: Arc<Shared>,
    worker: usize,
    has_signed_off: bool,
}

impl Participant {
    pub(super) fn new(shared: Arc<Shared>, worker: usize) -> Self {
        Self { shared, worker, has_signed_off: false }
    }

    /// Registers the launch of a batch, and waits for its turn. Launch while the turn is held, and drop it right then:
    /// nobody else of this rank launches meanwhile. Do not wait for the result with it; see [`wait`](Self::wait).
    ///
    /// All collectives that are launched for the batch belong into the one turn; a recorded graph of them is one
    /// launch.
    ///
    /// # Errors
    /// When the turn does not come in time, or cannot come; when a rank fails or is stopped.
    pub fn turn(&mut self, batch: u64) -> Result<LaunchPermit<'_>, OrderError> {
        let (launch, registered) = (Launch { worker: self.worker, batch }, Instant::now());
        self.shared.register(launch)?;
        self.shared.wait_for_turn(launch)?;
        Ok(LaunchPermit { participant: self, launch, times: [registered, Instant::now()] })
    }

    /// Waits for the result of what was launched last: until `is_done` says so, which asks a device and does not wait
    /// itself.
    ///
    /// # Errors
    /// When it does not come in time: the error says where the launch is missing, or which launches two ranks made in
    /// different orders. When a rank fails or is stopped; what `is_done` returns.
    pub fn wait<E: From<OrderError>>(
        &mut self,
        batch: u64,
        mut is_done: impl FnMut() -> Result<bool, E>,
    ) -> Result<(), E> {
        let (due, mut pause) = (self.shared.due(), LOOK[0]);
        while !is_done()? {
            let now = Instant::now();
            if now >= due {
                let launch = Launch { worker: self.worker, batch };
                return Err(self.shared.late(|diagnosis| Some(diagnosis.result(launch))).into());
            }
            self.shared.pause(self.worker, due.min(now + pause))?;
            pause = LOOK[1].min(2 * pause);
        }
        Ok(())
    }

    /// Says that the worker launches no more in this epoch.
    ///
    /// # Errors
    /// When it has launched more or less often than on another rank, or a rank has failed.
    pub fn close(mut self) -> Result<(), OrderError> {
        self.has_signed_off = true;
        self.shared.close(self.worker)
    }
}

impl Drop for Participant {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.stop(format!("{} panicked", self.shared.name(self.worker)));
        } else if !self.has_signed_off {
            // A failure is kept for whoever asks, and all ranks know of it.
            let _ = self.shared.close(self.worker);
        }
    }
}

/// The right to launch, until it is dropped.
#[must_use = "launch while it is held, and drop it then"]
pub struct LaunchPermit<'p> {
    participant: &'p mut Participant,
    launch: Launch,
    /// When it was registered, and when it came.
    times: [Instant; 2],
}

impl LaunchPermit<'_> {
    /// What is to be launched.
    #[must_use]
    pub fn launch(&self) -> Launch {
        self.launch
    }
}

impl Drop for LaunchPermit<'_> {
    fn drop(&mut self) {
        let (shared, Launch { worker, batch }) = (&self.participant.shared, self.launch);
        if std::thread::panicking() {
            shared.stop(format!("{} panicked while it launched batch {batch}", shared.name(worker)));
        }
        shared.launched(worker, self.times);
    }
}
