//! Ranks as threads of this process, which exchange parcels through a shared mailbox.
//!
//! Loom checks every interleaving of a few ranks (`model.rs`). `sync.rs` selects its mutexes in place of the standard
//! library's.

#[cfg(test)]
mod model;
mod sync;

use std::collections::HashMap;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use self::sync::{Condvar, Mutex, MutexGuard};
use crate::failure::panic_message;
use crate::transport::{Call, ExchangeId, Group, Parcel, Transport, due};
use crate::{CommError, Communicator, RankFailure};

/// Rank that is a thread.
pub type ThreadRank = Communicator<Mailbox>;

/// Runs `work` as `n_ranks` ranks, and returns their results in the order of ranks.
///
/// A rank that returns an error or panics ends the others: their next operation fails with an error that names it. No
/// operation waits for a rank longer than `deadline`.
///
/// # Errors
/// The failure of the rank that failed first. Failures that it causes on other ranks are not reported.
///
/// # Panics
/// When `n_ranks` is zero, or a thread cannot be started.
pub fn run<T: Send, E: Send + Display>(
    n_ranks: usize,
    deadline: Duration,
    work: impl Fn(ThreadRank) -> Result<T, E> + Sync,
) -> Result<Vec<T>, RankFailure<E>> {
    assert!(n_ranks > 0, "there is at least one rank");
    let world = World::new(deadline);
    let results: Vec<_> = std::thread::scope(|scope| {
        let start = |rank: usize| {
            let (world, work) = (Arc::clone(&world), &work);
            let name = format!("rank {rank}");
            let body = move || {
                let mailbox = Mailbox::new(&world, rank, n_ranks);
                let outcome = catch_unwind(AssertUnwindSafe(|| work(Communicator::new(mailbox))));
                match &outcome {
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => world.fail(rank, error.to_string()),
                    Err(panic) => world.fail(rank, panic_message(&**panic)),
                }
                outcome
            };
            std::thread::Builder::new().name(name).spawn_scoped(scope, body).expect("a thread can be started")
        };
        let handles: Vec<_> = (0..n_ranks).map(start).collect();
        handles.into_iter().map(|handle| handle.join().expect("panics are caught inside")).collect()
    });
    let failed = world.lock().failed.take();
    match failed {
        None => {
            Ok(results.into_iter().map(|result| result.ok().and_then(Result::ok).expect("no rank failed")).collect())
        }
        Some((rank, message)) => {
            let error = results.into_iter().nth(rank).and_then(Result::ok).and_then(Result::err);
            Err(RankFailure { rank, error, message })
        }
    }
}

/// State shared by all ranks.
struct World {
    deadline: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Rank that failed first, and its message.
    failed: Option<(usize, String)>,
    /// Parcels of each exchange, until every member has read them.
    exchanges: HashMap<ExchangeId, Exchange>,
}

impl State {
    fn failure(&self) -> Option<CommError> {
        let (rank, message) = self.failed.as_ref()?;
        Some(CommError::RankFailed { rank: *rank, message: message.clone() })
    }
}

struct Exchange {
    posts: Vec<Option<(Call, Vec<Parcel>)>>,
    n_read: usize,
}

impl World {
    fn new(deadline: Duration) -> Arc<Self> {
        Arc::new(Self { deadline, state: Mutex::default(), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A rank panics only outside the lock, so the state stays consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, rank: usize, message: String) {
        self.lock().failed.get_or_insert((rank, message));
        self.changed.notify_all();
    }
}

/// Membership of a rank in a group, with access to the shared mailbox.
pub struct Mailbox {
    world: Arc<World>,
    group: Group,
}

impl Mailbox {
    fn new(world: &Arc<World>, rank: usize, n_ranks: usize) -> Self {
        Self { world: Arc::clone(world), group: Group::of_all(rank, n_ranks) }
    }

    /// Waits until every member has posted its parcels.
    fn wait<'w>(
        &'w self,
        mut state: MutexGuard<'w, State>,
        id: &ExchangeId,
        call: Call,
    ) -> Result<MutexGuard<'w, State>, CommError> {
        let deadline = due(self.world.deadline);
        loop {
            if let Some(failure) = state.failure() {
                return Err(failure);
            }
            let Some(missing) = state.exchanges[id].posts.iter().position(Option::is_none) else { return Ok(state) };
            let now = Instant::now();
            if now >= deadline {
                let (rank, operation) = (self.group.members[missing], call.operation);
                return Err(CommError::Late { rank, operation, deadline: self.world.deadline });
            }
            let waited = self.world.changed.wait_timeout(state, deadline - now);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Parcels of all members for this rank, if all made the same call.
    fn read(&self, exchange: &Exchange, call: Call) -> Result<Vec<Parcel>, CommError> {
        let read = |(place, post): (usize, &Option<(Call, Vec<Parcel>)>)| {
            let (theirs, parcels) = post.as_ref().expect("all have posted");
            if *theirs == call {
                return Ok(parcels[self.group.place].clone());
            }
            Err(CommError::Mismatch {
                here: self.group.members[self.group.place],
                expected: call.to_string(),
                rank: self.group.members[place],
                found: theirs.to_string(),
            })
        };
        exchange.posts.iter().enumerate().map(read).collect()
    }
}

impl Transport for Mailbox {
    fn rank(&self) -> usize {
        self.group.place
    }

    fn members(&self) -> &[usize] {
        &self.group.members
    }

    fn exchange(&self, call: Call, parcels: Vec<Parcel>) -> Result<Vec<Parcel>, CommError> {
        let id = self.group.next();
        let mut state = self.world.lock();
        let empty = || Exchange { posts: vec![None; self.group.members.len()], n_read: 0 };
        let exchange = state.exchanges.entry(id.clone()).or_insert_with(empty);
        exchange.posts[self.group.place] = Some((call, parcels));
        if exchange.posts.iter().all(Option::is_some) {
            self.world.changed.notify_all();
        }
        let mut state = self.wait(state, &id, call)?;
        let exchange = state.exchanges.get_mut(&id).expect("kept until all have read it");
        let received = self.read(exchange, call);
        exchange.n_read += 1;
        if exchange.n_read == self.group.members.len() {
            state.exchanges.remove(&id);
        }
        received
    }

    fn among(&self, members: &[usize]) -> Self {
        Self { world: Arc::clone(&self.world), group: self.group.among(members) }
    }

    fn failure(&self) -> Option<CommError> {
        self.world.lock().failure()
    }

    fn is_one_process(&self) -> bool {
        true
    }
}
