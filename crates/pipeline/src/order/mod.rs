//! Launch order: collectives of several workers, launched in one order on all ranks.
//!
//! Each worker of a rank (a sampler, a loader, a trainer) launches collectives on its own communicator. A collective
//! holds SMs from its start on one GPU until it has started on all of them. Two collectives that start in different
//! orders on two GPUs can each hold the SMs that the other needs: a deadlock. This module therefore orders the
//! launches, and only the launches: kernels still overlap (Cai et al., DSP, PPoPP 2023, section on centralised
//! communication coordination).
//!
//! - [`Coordinator`]: the launch order of one rank, for one epoch. Start here.
//! - [`Participant`]: handle of a worker: get a permit with [`turn`](Participant::turn), launch, drop the permit,
//!   [`wait`](Participant::wait).
//! - [`Rules`], [`Order`]: agreement of all ranks: the order of a leader, a fixed order, none, or that of a log.
//! - [`OrderLog`]: launches and their times; it can be written, read and replayed.
//! - [`Messenger`]: transport between ranks that are not threads of one process; `girih-comm` has one.
//! - [`OrderError`]: names the rank, worker and batch that were waited for, and the ranks that lack them.
//!
//! ```
//! use girih_pipeline::order::{Coordinator, OrderError, Rules};
//!
//! let rules = Rules::new(["sampler", "trainer"]);
//! let ranks = Coordinator::in_process(2, &rules)?;
//! let logs: Vec<_> = std::thread::scope(|scope| {
//!     for rank in &ranks {
//!         for worker in 0..2 {
//!             let mut participant = rank.participant(worker);
//!             scope.spawn(move || -> Result<(), OrderError> {
//!                 for batch in 0..10 {
//!                     let turn = participant.turn(batch)?;
//!                     // Launch a collective here; do not wait for it.
//!                     drop(turn);
//!                     participant.wait(batch, || Ok::<_, OrderError>(true))?; // asks an event of the device
//!                 }
//!                 participant.close()
//!             });
//!         }
//!     }
//!     ranks.iter().map(Coordinator::finish).collect::<Result<_, _>>()
//! })?;
//! assert!(logs[0].launches().eq(logs[1].launches()));
//! assert_eq!(logs[0].entries.len(), 20);
//! # Ok::<_, OrderError>(())
//! ```
//!
//! # Guarantees
//! 1. **One order.** Except under `Free`, all ranks launch in the same order, one launch at a time. Each worker
//!    launches its batches in its own order.
//! 2. **No starvation.** On a leader, a registered worker launches after at most one launch of each other worker.
//!    Other ranks follow, and wait for workers that are not ready yet. These become ready if all ranks run the same
//!    pipeline with the same capacities: an order that was possible on the leader is possible there.
//! 3. **No endless waits.** A wait for a permit, a result or the end may last until the deadline. Then the rank asks
//!    all ranks for their status. It ends them with an error that names rank, worker and batch.
//! 4. **One number of launches.** A worker closes when it has no more batches, and registers none after that. Ranks
//!    that end early do not delay others. If a worker launches more often on one rank than on another, all ranks get
//!    an error.
//! 5. **A stop reaches all workers**, those that wait and those of other ranks. A pipeline that fails or is dropped
//!    stops its coordinator ([`Pipeline::coordinated`](crate::Pipeline::coordinated)).
//!
//! `schedule.rs` makes decisions on plain data. `laws.rs` tests it against these guarantees, with a device that
//! deadlocks. `model.rs` explores every interleaving of small runs.
//!
//! A permit costs some microseconds where ranks are threads (`examples/turns.rs`). Over a transport, a decision also
//! waits for an exchange.
//!
//! Assumption: the kernels of a GPU start in the order of their launches. This holds for streams of equal priority if
//! none waits for an event. A collective that waits for an event must be launched after the event has completed.

mod coordinator;
mod diagnosis;
mod error;
mod log;
mod message;
mod messenger;
mod participant;
mod rules;
mod schedule;

#[cfg(test)]
mod laws;
#[cfg(test)]
mod model;

pub use coordinator::Coordinator;
pub use error::OrderError;
pub use log::{Entry, Launch, OrderLog};
pub use message::Message;
pub use messenger::{Inbox, Messenger};
pub use participant::{LaunchPermit, Participant};
pub use rules::{Order, Rules};
