//! Ranks as processes that communicate over TCP, on one host or several, without MPI.
//!
//! ```text
//! rank 0 listens at HOST:PORT ── other ranks connect, both ends authenticate ── rank 0 sends the addresses of all
//!                             ── each pair connects, both ends authenticate   ── rank 0 tells all to start
//! ```
//! [`join`](rendezvous) does this. Then every rank has a socket to each other rank, with one thread that writes and
//! one that reads (`world.rs`). Parcels wait in queues, so that large ones never block each other. A rank that has
//! sent nothing for a second sends a heartbeat. The state and the decisions of a rank are plain data (`state.rs`),
//! which bounds the unread parcels. `link.rs` implements [`Transport`](crate::Transport).
//!
//! Every message has a checksum (`frame.rs`). A malformed or unexpected message ends the job with an error that names
//! its sender.
//!
//! A rank that fails tells the others before it leaves. A connection that ends without such a message means that the
//! rank was killed. A silence of eight seconds means that its host or network is lost. A rank that learns of a
//! failure sends it to all others once. Of several simultaneous failures, all ranks report that of the lowest rank.
//!
//! # Authentication
//! A rank must know the [`Secret`] of the job. Each end of a connection proves this before the other parses anything
//! else (`proof.rs`). Other clients are refused and counted, and have no effect. At most 64 unauthenticated clients
//! are connected at a time, each for at most five seconds (`arrivals.rs`). No memory is allocated for lengths that
//! they state. A rank listens at one address only: rank 0 at that of the rendezvous, other ranks at that by which
//! they reach rank 0. After the start no rank listens.
//!
//! A rank with the right secret but a wrong version, number of ranks, or rank ends the job with a message on all
//! ranks. Heartbeats extend no deadline.
//!
//! Without a secret, which only loopback allows, every process of the host can join. Data between ranks is neither
//! encrypted nor authenticated by message: an attacker who changes packets can change results.

mod arrivals;
mod client;
mod frame;
#[doc(hidden)]
pub mod fuzzing;
mod link;
mod mesh;
mod options;
mod place;
mod proof;
mod rendezvous;
#[cfg(test)]
mod sim;
mod state;
mod world;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

pub use self::link::Link;
pub use self::options::Options;
use self::world::World;
use crate::failure::panic_message;
use crate::{CommError, Communicator, RankFailure, Secret};

/// Rank that is a process connected by sockets.
pub type TcpRank = Communicator<Link>;

/// Runs `work` in this process as one rank of those that meet at the same address.
///
/// A rank that returns an error or panics ends the others: their next operation fails with an error that names it.
/// The death of a process has the same effect within a second, the loss of a host within ten. A rank that has
/// completed its work waits for the others, at most `deadline`.
///
/// # Errors
/// When the ranks do not find each other or do not belong together. The inner result has the failure of the rank that
/// failed first. It is equal on all ranks, and has the error itself on that rank.
pub fn run<T, E: Display>(
    options: &Options,
    work: impl FnOnce(TcpRank) -> Result<T, E>,
) -> Result<Result<T, RankFailure<E>>, CommError> {
    let join_error = |what| CommError::Join { what };
    let streams = rendezvous::join(options).map_err(join_error)?;
    let world = World::start(options, streams).map_err(|error| join_error(format!("no thread starts: {error}")))?;
    let outcome = catch_unwind(AssertUnwindSafe(|| work(Communicator::new(Link::new(&world)))));
    match &outcome {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => world.fail(options.rank, error.to_string()),
        Err(panic) => world.fail(options.rank, panic_message(&**panic)),
    }
    let failed = world.close();
    let outcome = outcome.ok();
    Ok(match (failed, outcome) {
        (None, outcome) => Ok(outcome.and_then(Result::ok).expect("a rank that fails says so")),
        (Some((rank, message)), outcome) => {
            let own = outcome.and_then(Result::err).filter(|_| rank == options.rank);
            Err(RankFailure { rank, error: own, message })
        }
    })
}

/// Requires a secret if other hosts can connect to the rendezvous.
///
/// # Errors
/// How to create a secret. Also when the rendezvous is no valid address.
pub fn require_secret(rendezvous: &str, secret: &Secret) -> Result<(), CommError> {
    let required = place::Place::parse(rendezvous).and_then(|place| place.require_secret(secret));
    required.map_err(|what| CommError::Join { what })
}

/// Free address on this host, for ranks that all run here. Each call in this process returns another port.
///
/// On Linux, it is a loopback address that no other process uses. So no other process can take the port before rank 0
/// listens.
///
/// # Errors
/// When the system has no port.
pub fn local_rendezvous() -> io::Result<String> {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    // Process ids have 22 bits.
    let own = Ipv4Addr::new(127, 64 | (high & 63), middle, low);
    let address = if cfg!(target_os = "linux") { own } else { Ipv4Addr::LOCALHOST };
    loop {
        let free = TcpListener::bind((address, 0))?.local_addr()?;
        if GIVEN.lock().unwrap_or_else(PoisonError::into_inner).insert(free.port()) {
            return Ok(free.to_string());
        }
    }
}
