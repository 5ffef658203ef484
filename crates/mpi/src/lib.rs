//! Ranks as processes of MPI: `mpirun -n 4 PROGRAM`.
//!
//! `run` makes this process one of the ranks that `mpirun` started together. It is a transport of
//! [`girih_comm`], beside threads and TCP, so that everything written for ranks also runs under MPI.
//!
//! Feature `mpi` links an MPI; it needs an MPI with its headers, and libclang. Without the feature this crate is
//! empty, so that a build of the whole workspace needs Rust alone.

#![cfg(feature = "mpi")]

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use girih_comm::{Call, CommError, Communicator, Parcel, Payload, Transport, due};
use mpi::Threading;
use mpi::request::{Request, Scope, scope};
use mpi::topology::{Color, SimpleCommunicator};
use mpi::traits::{Communicator as _, Destination as _, MatchedReceiveVec as _, Source as _};

/// Rank that is a process of MPI.
pub type ProcessRank = Communicator<Process>;

/// Runs `work` on this process as one of the ranks that MPI started together.
///
/// A rank that fails prints its error and rank to standard error and ends all others (`MPI_Abort`). No operation
/// waits for a rank longer than `deadline`.
///
/// # Errors
/// When MPI was started already, or does not support calls from several threads.
pub fn run<T, E: Display>(deadline: Duration, work: impl FnOnce(ProcessRank) -> Result<T, E>) -> Result<T, CommError> {
    let unusable = |what: &str| CommError::Operand { operation: "MPI_Init_thread", what: what.to_owned() };
    let (universe, threading) =
        mpi::initialize_with_threading(Threading::Multiple).ok_or_else(|| unusable("MPI was started already"))?;
    if threading < Threading::Multiple {
        return Err(unusable("this MPI cannot be called from several threads; use a build with MPI_THREAD_MULTIPLE"));
    }
    let world = universe.world();
    let members = (0..world.size() as usize).collect();
    let process = Process { comm: world, deadline, members };
    let rank = process.rank();
    // The panic hook has printed the message of a panic.
    match catch_unwind(AssertUnwindSafe(|| work(Communicator::new(process)))) {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(error)) => {
            eprintln!("rank {rank}: {error}");
            universe.world().abort(1)
        }
        Err(_) => universe.world().abort(1),
    }
}

/// MPI process as a member of a group.
pub struct Process {
    comm: SimpleCommunicator,
    deadline: Duration,
    /// Global ranks of the group's members.
    members: Arc<[usize]>,
}

// SAFETY: a communicator is a handle, and `run` requires an MPI that any thread may call at any time.
unsafe impl Send for Process {}
// SAFETY: as above.
unsafe impl Sync for Process {}

impl Process {
    /// Receives the message of every other rank, in the order of ranks; `None` for this rank. Messages of one rank
    /// arrive in order, so the next one of each belongs to this exchange.
    fn receive(&self, call: Call) -> Result<Vec<Option<Vec<u8>>>, CommError> {
        let (size, deadline) = (self.size(), due(self.deadline));
        let mut messages = vec![None; size];
        loop {
            let missing = (0..size).find(|&rank| rank != self.rank() && messages[rank].is_none());
            let Some(missing) = missing else { return Ok(messages) };
            for (rank, slot) in messages.iter_mut().enumerate().filter(|(rank, _)| *rank != self.rank()) {
                if slot.is_none() {
                    let process = self.comm.process_at_rank(rank as i32);
                    *slot = process.immediate_matched_probe().map(|message| message.matched_receive_vec::<u8>().0);
                }
            }
            if Instant::now() >= deadline {
                let (rank, operation) = (self.members[missing], call.operation);
                return Err(CommError::Late { rank, operation, deadline: self.deadline });
            }
            std::thread::yield_now();
        }
    }

    /// Waits until the other ranks have received their messages.
    fn finish<'a, D: ?Sized, S: Scope<'a>>(
        &self,
        mut sends: Vec<(usize, Request<'a, D, S>)>,
        call: Call,
    ) -> Result<(), CommError> {
        let deadline = due(self.deadline);
        loop {
            sends = sends.into_iter().filter_map(|(rank, send)| send.test().err().map(|send| (rank, send))).collect();
            let Some(&(rank, _)) = sends.first() else { return Ok(()) };
            if Instant::now() >= deadline {
                // A pending request must not be dropped.
                std::mem::forget(sends);
                let (rank, operation) = (self.members[rank], call.operation);
                return Err(CommError::Late { rank, operation, deadline: self.deadline });
            }
            std::thread::yield_now();
        }
    }

    /// Prints the error and ends all ranks.
    fn end(&self, error: &CommError) -> ! {
        eprintln!("rank {}: {error}", self.members[self.rank()]);
        self.comm.abort(1)
    }

    /// Parcel of a message, if its sender made the same call.
    fn opened(&self, rank: usize, call: Call, message: &[u8]) -> Result<Parcel, CommError> {
        let mut message = Payload::new(message, self.members[rank], call.operation);
        let len = message.index(message.remaining().len())?;
        let theirs = message.bytes(len)?;
        if theirs == call.to_string().as_bytes() {
            return Ok(message.remaining().into());
        }
        Err(CommError::Mismatch {
            here: self.members[self.rank()],
            expected: call.to_string(),
            rank: self.members[rank],
            found: String::from_utf8_lossy(theirs).into_owned(),
        })
    }
}

/// Message with a parcel and the call that it belongs to.
fn message(call: Call, parcel: &[u8]) -> Vec<u8> {
    let call = call.to_string();
    [&(call.len() as u64).to_le_bytes(), call.as_bytes(), parcel].concat()
}

impl Transport for Process {
    fn rank(&self) -> usize {
        self.comm.rank() as usize
    }

    fn members(&self) -> &[usize] {
        &self.members
    }

    fn exchange(&self, call: Call, parcels: Vec<Parcel>) -> Result<Vec<Parcel>, CommError> {
        let own = self.rank();
        let messages: Vec<Vec<u8>> = parcels.iter().map(|parcel| message(call, parcel)).collect();
        if let Some(long) = messages.iter().find(|message| i32::try_from(message.len()).is_err()) {
            let what = format!("a parcel of {} bytes; MPI counts them in 32 bits: use more ranks", long.len());
            return Err(CommError::Operand { operation: call.operation, what });
        }
        let received = scope(|scope| {
            let others = messages.iter().enumerate().filter(|(rank, _)| *rank != own);
            let sends: Vec<_> = others
                .map(|(rank, message)| {
                    (rank, self.comm.process_at_rank(rank as i32).immediate_send(scope, &message[..]))
                })
                .collect();
            // Pending sends cannot be cancelled, so a late rank ends all ranks here.
            let received = self.receive(call).unwrap_or_else(|error| self.end(&error));
            self.finish(sends, call).unwrap_or_else(|error| self.end(&error));
            received
        });
        let open = |(rank, message): (usize, Option<Vec<u8>>)| match message {
            Some(message) => self.opened(rank, call, &message),
            None => Ok(parcels[rank].clone()),
        };
        received.into_iter().enumerate().map(open).collect()
    }

    fn among(&self, members: &[usize]) -> Self {
        let place = members.iter().position(|&member| member == self.rank()).expect("a rank is among its group");
        let colour = Color::with_value(members[0] as i32);
        let comm = self.comm.split_by_color_with_key(colour, place as i32).expect("a colour was given");
        let members = members.iter().map(|&member| self.members[member]).collect();
        Self { comm, deadline: self.deadline, members }
    }

    /// Always `None`: a failing rank calls `MPI_Abort`, which ends all processes before they could learn of it.
    fn failure(&self) -> Option<CommError> {
        None
    }
}

/// Program of the README, which is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
