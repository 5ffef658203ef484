//! Collective operations among ranks.
//!
//! - [`Collective`]: broadcast, all-reduce and others, on the matrices of a backend. Start here.
//! - [`threads::run`]: ranks as threads of this process.
//! - [`tcp::run`]: ranks as processes that communicate over sockets, on one host or several.
//! - [`Launch`]: settings of the process launcher, for all supported launchers.
//! - [`Payload`]: parser for messages of other ranks. Malformed bytes give an error that names the sender.
//! - [`Secret`]: key by which processes of one job authenticate each other.
//!
//! ```text
//! Collective<B>   operations on matrices: what goes where, sums in the order of ranks, bytes counted
//!      │          girih's own, the same for every transport (Communicator)
//! Transport       parcels of bytes between ranks, with a deadline
//!      ├ threads  a mailbox in memory
//!      ├ tcp      frames between processes
//!      └ MPI      messages between processes, in the crate girih-mpi
//! ```
//! Ranks on CUDA devices (`girih-kernels`) move matrices by NCCL or peer access. A transport gives them their ranks and
//! reports failures.
//!
//! Sums are added in the order of ranks, so every rank gets the same bits. No call waits for ever: it has a deadline.
//! A rank that fails ends the calls of all others with an error that names it.
//!
//! Not here: partitions and halo plans (`girih-partition`), and training (`girih-trainer`).

#![forbid(unsafe_code)]

mod collective;
mod communicator;
mod error;
mod failure;
mod gpu_transport;
mod launch;
pub mod operands;
mod payload;
mod secret;
pub mod tcp;
pub mod threads;
mod transport;

pub use collective::{Collective, Counters, Pending, Traffic};
pub use communicator::Communicator;
pub use error::CommError;
pub use failure::RankFailure;
pub use gpu_transport::GpuTransport;
pub use launch::{Launch, Launcher};
pub use payload::{Number, Payload};
pub use secret::Secret;
pub use transport::{Call, Parcel, Transport, all_gather, all_to_all, due, members};

/// Program of the README, which is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
