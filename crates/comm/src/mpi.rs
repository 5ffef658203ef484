//! Ranks as processes that MPI started: `mpirun -n 4 PROGRAM`.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpi::Threading;
use mpi::request::{Request, Scope, scope};
use mpi::topology::{Color, SimpleCommunicator};
use mpi::traits::{Communicator as _, Destination as _, MatchedReceiveVec as _, Source as _};

use crate::transport::{Call, Parcel, Transport, due};
use crate::{CommError, Communicator, Payload};

/// A rank that is a process.
pub type ProcessRank = Communicator<Process>;

/// Runs `work` as one of the processes that were started together.
///
/// A rank that fails says so on standard error, with its number, and ends all others (`MPI_Abort`); no operation waits
/// for a rank longer than `deadline`.
///
/// # Errors
/// When MPI was started already, or cannot be called from several threads.
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
    // A panic says itself what it is about.
    match catch_unwind(AssertUnwindSafe(|| work(Communicator::new(process)))) {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(error)) => {
            eprintln!("rank {rank}: {error}");
            universe.world().abort(1)
        }
        Err(_) => universe.world().abort(1),
    }
}

/// A process's place in a group.
pub struct Process {
    comm: SimpleCommunicator,
    deadline: Duration,
    /// The ranks of the whole world that belong to the group.
    members: Arc<[usize]>,
}

// SAFETY: a communicator is a name, and `run` starts MPI only where any thread may call it at any time.
unsafe impl Send for Process {}
// SAFETY: as above.
unsafe impl Sync for Process {}

impl Process {
    /// What every other rank sends, in the order of ranks; nothing for this one. Messages of one rank arrive in order,
    /// so that the next one of each is that of this exchange.
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

    /// Waits until others have taken what was sent to them.
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
                // A request may not be dropped.
                std::mem::forget(sends);
                let (rank, operation) = (self.members[rank], call.operation);
                return Err(CommError::Late { rank, operation, deadline: self.deadline });
            }
            std::thread::yield_now();
        }
    }

    /// Ends all ranks.
    fn end(&self, error: &CommError) -> ! {
        eprintln!("rank {}: {error}", self.members[self.rank()]);
        self.comm.abort(1)
    }

    /// The parcel of a message, when its sender made the same call.
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

/// A parcel with the call that it belongs to.
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
            // What is under way cannot be called back, so that whoever is late ends all ranks here.
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

    /// Nothing: the rank that fails calls `MPI_Abort`, which ends the processes of all before they could learn of it.
    fn failure(&self) -> Option<CommError> {
        None
    }
}
