//! Launch order: collectives of several threads of a rank, launched in one order on all ranks.
//!
//! Each worker of a rank (a sampler, a loader, a trainer) launches collectives on its own communicator. A collective
//! holds SMs from its start on one GPU until it has started on all of them. Two collectives that start in different
//! orders on two GPUs can each hold the SMs that the other needs: a deadlock. This crate therefore orders the
//! launches, and only the launches: kernels still overlap (Cai et al., DSP, PPoPP 2023, section on centralised
//! communication coordination).
//!
//! - [`coordinator()`]: the launch order of this rank, for ranks that communicate over a transport. Start here.
//! - [`Coordinator`]: the same for one epoch, over any messenger; [`Coordinator::in_process`] for ranks that are threads.
//! - [`Participant`]: handle of a worker: get a permit with [`turn`](Participant::turn), launch, drop the permit,
//!   [`wait`](Participant::wait).
//! - [`Rules`], [`Order`]: agreement of all ranks: the order of a leader, a fixed order, none, or that of a log.
//! - [`OrderLog`]: launches and their times; it can be written, read and replayed.
//! - [`Messenger`]: transport between coordinators.
//! - [`OrderError`]: names the rank, worker and batch that were waited for, and the ranks that lack them.
//!
//! Two threads of each rank launch a collective for each batch, in one order on both ranks:
//! ```
//! use std::time::Duration;
//!
//! use girih_comm::{Collective, threads};
//! use girih_compute::Cpu;
//! use girih_launch_order::{LaunchOrderError, Rules, coordinator};
//!
//! let rules = Rules::new(["sampler", "trainer"]);
//! let logs = threads::run(2, Duration::from_secs(20), |rank| -> Result<_, LaunchOrderError> {
//!     let order = coordinator(rank.transport(), &rules)?;
//!     let world: Box<dyn Collective<Cpu>> = Box::new(rank);
//!     let communicators = [world.split(0, world.rank())?, world.split(0, world.rank())?];
//!     std::thread::scope(|scope| {
//!         let start = |(worker, own): (usize, Box<dyn Collective<Cpu>>)| {
//!             let mut participant = order.participant(worker);
//!             scope.spawn(move || -> Result<(), LaunchOrderError> {
//!                 for batch in 0..10 {
//!                     let permit = participant.turn(batch)?;
//!                     own.barrier()?; // On a GPU, launch the collective and do not wait for its result.
//!                     drop(permit);
//!                 }
//!                 Ok(participant.close()?)
//!             })
//!         };
//!         let workers: Vec<_> = communicators.into_iter().enumerate().map(start).collect();
//!         workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
//!     })?;
//!     Ok(order.finish()?)
//! });
//! let logs = logs.unwrap();
//! assert!(logs[0].launches().eq(logs[1].launches()));
//! assert_eq!(logs[0].entries.len(), 20);
//! ```
//!
//! # When it is needed
//! It is needed if several threads of a rank launch collectives that hold SMs, as those of NCCL do, on several
//! communicators at once. Otherwise it is not:
//! - One thread that launches everything has one order. Its collectives still overlap on streams of their own.
//! - Exchanges of hosts (`girih-comm` over threads, TCP or MPI) hold no SMs. Each communicator has its own messages,
//!   which wait for each other in any order.
//! - Peer reads and copies involve one GPU each.
//!
//! girih's trainer does not need it. On hosts, a sampler and a loader exchange messages beside the step, each on its
//! own communicator. On GPUs, one thread launches sampler, loader and trainer in a fixed order, each on its own stream.
//!
//! # Bounds on its gain
//! Milliseconds a batch of GraphSAGE, 1024 seeds a GPU, bf16, Products, from records of `benches/record`. The bound is
//! the time over the same time without its collectives, as if all of them were hidden:
//!
//! | collectives | GPUs | with | without | bound |
//! |---|---|--:|--:|--:|
//! | gradients | 2 | 0.944 | 0.894 | 1.06 |
//! | gradients | 4 | 1.008 | 0.831 | 1.21 |
//! | frontiers, draws, rows by NCCL | 2 | 2.116 | 0.944 | 2.24 |
//! | frontiers, draws, rows by NCCL | 4 | 3.299 | 1.153 | 2.86 |
//! | none: patches read in place | 2 | 1.220 | 0.944 | 1.29 |
//! | none: patches read in place | 4 | 1.413 | 1.153 | 1.23 |
//!
//! Sources: `gpu-sampled-products-two-cards-413dccbc4e75`, `gpu-minibatch-products-four-cards-90021ee854fa` and, for sums
//! of gradients on four GPUs, `gpu-minibatch-products-four-cards-8ef0c98c699a`. "Without" is whole data on each GPU, and
//! one GPU for gradients.
//!
//! The trainer measures both ways to read patches and takes the faster. In place, batches are 1.73 and 2.33 times as
//! fast as by NCCL, without any collective of sampler and loader. At most 1.29 and 1.23 are left. On one GPU, the three
//! stages side by side take 1.05 to 1.12 times the slowest alone on Products, 1.34 to 1.40 on Reddit
//! (`gpu-steps-products-*`, `gpu-steps-reddit-*`): the fixed order hides nearly all that it can. A permit costs 6 to
//! 29 µs with three workers a rank where ranks are threads, so up to 0.09 ms a batch.
//!
//! GPUs of several hosts cannot read patches in place. The bounds of 2.24 and 2.86 hold there, and this crate would be
//! needed to come near them. No record has such hosts.
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
//! 5. **A stop reaches all workers**, those that wait and those of other ranks. A stage that fails calls
//!    [`Coordinator::stop`] before it returns its error, and so does a thread that leaves a pipeline before its end.
//!
//! `schedule.rs` makes decisions on plain data. `laws.rs` tests it against these guarantees, with a device that
//! deadlocks. `model.rs` explores every interleaving of small runs (loom).
//!
//! `examples/turns.rs` measures permits where ranks are threads. Over a transport, a decision also waits for an exchange.
//!
//! Assumption: the kernels of a GPU start in the order of their launches. This holds for streams of equal priority if
//! none waits for an event. A collective that waits for an event must be launched after the event has completed.

#![forbid(unsafe_code)]

mod coordinator;
mod diagnosis;
mod error;
mod log;
mod message;
mod messenger;
mod participant;
mod rules;
mod schedule;
mod sync;
mod transport;

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
pub use transport::{LaunchOrderError, coordinator};

/// Program of the README, which is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
