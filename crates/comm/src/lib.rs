//! Collective operations among ranks that work on one problem.
//!
//! - [`Collective`]: broadcast, all-reduce and the rest, on the matrices of a backend. Start here.
//! - [`threads::run`]: ranks as threads of this process.
//! - `mpi::run` (feature `mpi`): ranks as processes that `mpirun` starts; [`launched_ranks`] says whether it did.
//!
//! ```text
//! Collective<B>   operations on matrices: what goes where, sums in the order of ranks, bytes counted
//!      │          girih's own, the same for every transport (Communicator)
//! Transport       parcels of bytes between ranks, with a deadline
//!      ├ threads  a mailbox in memory
//!      └ mpi      messages between processes
//! ```
//! Ranks on CUDA devices (`girih-kernels`) move matrices by a library of their own; a transport tells them who they are and who has
//! failed.
//!
//! Sums are added in the order of ranks, whoever computes them: every rank gets the same bits. No call waits for ever: it
//! has a deadline, and a rank that fails ends the calls of all others with an error that names it.
//!
//! Not here: who sends what to whom (`girih-partition`), and what it is good for (`girih-trainer`).

mod collective;
mod communicator;
mod error;
mod launch;
#[cfg(feature = "mpi")]
pub mod mpi;
pub mod operands;
pub mod threads;
mod transport;

pub use collective::{Collective, Counters, Pending, Traffic};
pub use communicator::Communicator;
pub use error::CommError;
pub use launch::{launched_rank, launched_ranks};
pub use transport::{Call, Parcel, Transport, all_gather, members};
