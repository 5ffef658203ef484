//! Launch order: collectives of several workers, launched in one order on all ranks.
//!
//! Workers of a rank (a sampler, a loader, a trainer) launch collectives of their own, each on its own communicator. A
//! collective holds multiprocessors from when it starts on a card until it has started on all of them. Two that start
//! in different orders on two cards can each hold what the other needs, for ever. So launches are put in an order, and
//! only launches: kernels overlap as before (Cai et al., DSP, PPoPP 2023, section on centralised communication
//! coordination).
//!
//! - [`Coordinator`]: one rank's side of it, for one epoch. Start here.
//! - [`Participant`]: a worker's part: [`turn`](Participant::turn), launch, drop the turn, [`wait`](Participant::wait).
//! - [`Rules`], [`Order`]: what ranks agree on: a leader decides, a fixed order, none, or that of a log.
//! - [`OrderLog`]: what was launched and when; it can be written, read and replayed.
//! - [`Messenger`]: how ranks talk, for ranks that are not threads of one process; `girih-comm` has one.
//! - [`OrderError`]: rank, worker and batch that were waited for, and where they are missing.
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
//! # What is promised
//! 1. **One order.** But for `Free`, all ranks launch in the same order, one launch at a time, and each worker in its
//!    own.
//! 2. **No starvation.** Under a leader a worker that has registered there launches after at most one launch of each
//!    other worker. Other ranks follow, and wait for a worker that is not ready yet; they are ready in the end where
//!    all ranks run the same pipeline with the same capacities, because what the leader could do in this order they
//!    can.
//! 3. **Nobody waits for ever.** Whoever waits longer than the deadline, for a turn, a result or the end, asks all
//!    ranks how far they are, and ends them with an error that names rank, worker and batch.
//! 4. **One number of launches.** A worker signs off when it has no more batches, and registers none after that. Ranks
//!    that end early do not hold up others. A worker that launches more often on one rank than on another is an error
//!    on all.
//! 5. **A stop reaches everybody**: workers that wait, and all other ranks. A pipeline that fails or is dropped stops
//!    its coordinator ([`Pipeline::coordinated`](crate::Pipeline::coordinated)).
//!
//! `schedule.rs` decides on plain data; `laws.rs` holds it against these, with a device that deadlocks; `model.rs`
//! explores every interleaving of small runs.
//!
//! A turn costs some microseconds where ranks are threads (`examples/turns.rs`). Over a transport a decision waits for
//! an exchange, too.
//!
//! Assumed of devices: kernels of a card start in the order of their launches. Streams of equal priority do so when
//! none waits for an event; a collective that waits for one belongs behind it, launched when the event has come.

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
pub use log::{Entry, OrderLog};
pub use message::Message;
pub use messenger::{Inbox, Messenger};
pub use participant::{LaunchPermit, Participant};
pub use rules::{Order, Rules};
pub use schedule::Launch;
