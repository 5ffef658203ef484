//! [`Participant`] and [`LaunchPermit`]: handle of a worker in the launch order.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::coordinator::Shared;
use crate::{Launch, OrderError};

/// Polling interval for results: first and longest.
const LOOK: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(1)];

/// Handle of a worker in the launch order of its rank. Dropping it closes the worker, or stops all ranks during a
/// panic.
pub struct Participant {
    shared: Arc<Shared>,
    worker: usize,
    has_signed_off: bool,
}

impl Participant {
    pub(crate) fn new(shared: Arc<Shared>, worker: usize) -> Self {
        Self { shared, worker, has_signed_off: false }
    }

    /// Registers the launch of a batch and waits for its permit. Launch while the permit is held and drop it at once:
    /// no other worker of this rank launches meanwhile. Do not hold it while waiting for the result; see
    /// [`wait`](Self::wait).
    ///
    /// One permit covers all collectives of the batch. A captured CUDA graph of them is one launch.
    ///
    /// # Errors
    /// When the permit does not or cannot come in time; when a rank fails or is stopped.
    pub fn turn(&mut self, batch: u64) -> Result<LaunchPermit<'_>, OrderError> {
        let (launch, registered) = (Launch { worker: self.worker, batch }, Instant::now());
        self.shared.register(launch)?;
        self.shared.wait_for_turn(launch)?;
        Ok(LaunchPermit { participant: self, launch, times: [registered, Instant::now()] })
    }

    /// Waits for the result of the last launch: polls `is_done`, which queries a device and must not block.
    ///
    /// # Errors
    /// When the result does not come in time: the error names the ranks without the launch, or two launches that
    /// ranks made in different orders. When a rank fails or is stopped, and when `is_done` fails.
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

    /// Closes the worker: it launches no more in this epoch.
    ///
    /// # Errors
    /// When the worker has launched more or less often than on another rank, or a rank has failed.
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
            // The coordinator keeps a failure, and all ranks know of it.
            let _ = self.shared.close(self.worker);
        }
    }
}

/// Launch permit: the right to launch, until it is dropped.
#[must_use = "launch while it is held, and drop it then"]
pub struct LaunchPermit<'p> {
    participant: &'p mut Participant,
    launch: Launch,
    /// Times of the registration and of the permit.
    times: [Instant; 2],
}

impl LaunchPermit<'_> {
    /// Launch that the permit is for.
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
