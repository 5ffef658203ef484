//! Ranks as processes that speak over TCP, on one host or several: no MPI, nothing but sockets.
//!
//! ```text
//! rank 0 listens at HOST:PORT ── the others connect, both ends prove who they are ── it tells each where all listen
//!                             ── everybody connects to everybody, proves the same ── all are told to go
//! ```
//! [`join`](rendezvous) carries this out. Then every rank has a socket for each other one, with a thread that writes
//! and one that reads (`world.rs`): parcels wait in queues, so that large ones never stop each other, and whoever has
//! nothing to send for a second sends a sign of life. What a rank knows and decides is plain data (`state.rs`), which
//! bounds what may lie unread. `link.rs` is the [`Transport`](crate::Transport).
//!
//! Every message has a checksum (`frame.rs`). One that is malformed, or that no honest rank sends then, ends the job
//! with an error that names its sender.
//!
//! A rank that fails tells the others before it leaves. One whose connection ends without that was killed, and one that
//! is silent for eight seconds has lost its host or its network. Whoever learns of a failure tells everybody once; of
//! several at the same time all ranks name the same, that of the lowest rank.
//!
//! # Who can join
//! A rank of the job: one that knows its [`Secret`]. Each end of a connection proves so before anything else is parsed
//! (`proof.rs`). Everybody else is turned away and counted, and changes nothing: clients that have proven nothing are
//! at most 64 at a time and stay five seconds (`arrivals.rs`), and no length that one of them states takes memory. A
//! port is open at one address only: that of the rendezvous, and that by which a rank reaches rank 0. After the start
//! nobody listens.
//!
//! A rank of the job that does not fit (another version, another number of ranks, a number that is taken) ends the job
//! with a message on all ranks. Signs of life extend no deadline.
//!
//! Without a secret, which only loopback allows, every process of the host can join. What ranks send is neither
//! encrypted nor authenticated message by message: who can change packets on their way can change results.

mod arrivals;
mod client;
mod frame;
#[doc(hidden)]
pub mod fuzzing;
mod link;
mod mesh;
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
use std::time::Duration;

pub use self::link::Link;
use self::world::World;
use crate::failure::panic_message;
use crate::{CommError, Communicator, RankFailure, Secret};

/// A rank that is a process at the end of sockets.
pub type TcpRank = Communicator<Link>;

/// How often a rank that sends nothing says that it lives.
const BEAT: Duration = Duration::from_secs(1);

/// How long a rank may be silent before it counts as gone.
const SILENCE: Duration = Duration::from_secs(8);

/// Where and as whom a process takes part.
#[derive(Clone, Debug)]
pub struct Options {
    /// The number of this rank.
    pub rank: usize,
    /// How many there are.
    pub size: usize,
    /// `HOST:PORT` where rank 0 listens and the others find it.
    pub rendezvous: String,
    /// Names the job among others that meet at the same place by mistake; the same on all ranks, perhaps empty.
    pub job: String,
    /// Secret of the job, the same on all ranks; on loopback it may be none.
    pub secret: Secret,
    /// How long ranks are waited for at the start.
    pub start_deadline: Duration,
    /// How long a rank is waited for in an operation.
    pub deadline: Duration,
}

/// Runs `work` as one rank, in this process, of those that meet at the same place.
///
/// A rank that returns an error or panics ends the others: their next operation fails with an error that names it. So
/// does one that is killed, within a second, or whose host vanishes, within ten. A rank that has done its work waits
/// for the others to finish theirs, at most `deadline`.
///
/// # Errors
/// When the ranks do not find each other or do not belong together; inside, the failure of the rank that failed first,
/// the same on all ranks, with its error on that rank itself.
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

/// Refuses to have ranks meet without a secret where other hosts can connect.
///
/// # Errors
/// How to make one. Also when the rendezvous is no place.
pub fn require_secret(rendezvous: &str, secret: &Secret) -> Result<(), CommError> {
    let required = place::Place::parse(rendezvous).and_then(|place| place.require_secret(secret));
    required.map_err(|what| CommError::Join { what })
}

/// A place on this host where nobody listens, for ranks that all run here; no other call of this process gets the same.
///
/// On Linux it is an address of the loopback network that no other process uses, so that nobody takes the port between
/// this call and rank 0.
///
/// # Errors
/// When the system has no port.
pub fn local_rendezvous() -> io::Result<String> {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    // Numbers of processes have 22 bits.
    let own = Ipv4Addr::new(127, 64 | (high & 63), middle, low);
    let address = if cfg!(target_os = "linux") { own } else { Ipv4Addr::LOCALHOST };
    loop {
        let free = TcpListener::bind((address, 0))?.local_addr()?;
        if GIVEN.lock().unwrap_or_else(PoisonError::into_inner).insert(free.port()) {
            return Ok(free.to_string());
        }
    }
}
