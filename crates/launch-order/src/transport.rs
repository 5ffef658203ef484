//! [`coordinator`]: launch order of ranks that communicate over a transport.
//!
//! A thread of each rank takes part in rounds. A round is an all-gather of the messages of all coordinators. The
//! leader begins a round when it has a message, and otherwise every [`BEAT`], so that the messages of others arrive.
//! The other ranks join a round at once.

use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use girih_comm::{CommError, Parcel, Payload, Transport, all_gather, due};

use crate::{Coordinator, Inbox, Message, Messenger, OrderError, Rules};

/// Name of the exchanges in errors.
const NAME: &str = "launch order";

/// Longest time between two rounds, and so the delay of messages of ranks that do not lead.
const BEAT: Duration = Duration::from_millis(10);

/// Coordinator of this rank for one epoch. All ranks call this together, with the same rules.
///
/// Messages travel on a separate transport and a separate thread. Dropping the last clone of the coordinator joins
/// this thread. The thread ends when all workers of all ranks have closed, when a rank has failed, or when the other
/// ranks do not end within the deadline.
///
/// # Errors
/// When the ranks' rules differ or do not allow any launch; when a rank fails or is late; when the thread cannot be
/// started.
pub fn coordinator<T: Transport>(transport: &T, rules: &Rules) -> Result<Coordinator, LaunchOrderError> {
    agree(transport, rules)?;
    let members: Vec<usize> = (0..transport.size()).collect();
    let own = transport.among(&members);
    let (rank, pace, n_sign_offs) = (own.rank(), rules.order.leader(), own.size() * rules.workers.len());
    let is_pacer = rank == pace;
    Coordinator::new(rank, own.size(), rules, |inbox| {
        let outbox = Arc::new(Outbox::default());
        let rounds = Rounds { transport: own, outbox: Arc::clone(&outbox), inbox, is_pacer, n_sign_offs };
        let run = move || {
            rounds.run();
            rounds.outbox.close();
        };
        let thread = Builder::new().name(NAME.to_owned()).spawn(run).map_err(|error| {
            let message = format!("cannot start its thread: {error}; raise ulimit -u or -v");
            CommError::Library { operation: NAME, message }
        })?;
        Ok(Mail { outbox, deadline: rules.deadline, thread: Some(thread) })
    })
}

/// Reason why ranks have no launch order.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LaunchOrderError {
    /// Error of the rules or of the order.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// Error of the transport.
    #[error(transparent)]
    Comm(#[from] CommError),
}

/// Refuses rules that differ from those of another rank.
fn agree<T: Transport>(transport: &T, rules: &Rules) -> Result<(), CommError> {
    let own = format!("{rules:?}");
    let all = all_gather(transport, NAME, own.as_bytes())?;
    match all.iter().position(|theirs| **theirs != *own.as_bytes()) {
        None => Ok(()),
        Some(rank) => {
            let (expected, found) = (format!("{NAME} by {own}"), String::from_utf8_lossy(&all[rank]).into_owned());
            Err(CommError::Mismatch { here: transport.rank(), expected, rank, found: format!("{NAME} by {found}") })
        }
    }
}

/// Messages of this rank for the next round.
#[derive(Default)]
struct Outbox {
    messages: Mutex<Vec<Message>>,
    filled: Condvar,
    /// Time at which a rank without a coordinator stops waiting for the others.
    end: OnceLock<Instant>,
    /// Whether the rounds have ended.
    is_closed: Mutex<bool>,
    closed: Condvar,
}

impl Outbox {
    /// Waits for a message until `until`, and takes all messages.
    fn take(&self, until: Instant) -> Vec<Message> {
        let left = until.saturating_duration_since(Instant::now());
        let messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.filled.wait_timeout_while(messages, left, |messages| messages.is_empty());
        std::mem::take(&mut *waited.unwrap_or_else(PoisonError::into_inner).0)
    }

    fn close(&self) {
        *self.is_closed.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.closed.notify_all();
    }

    /// Waits for the last round, at most for the deadline.
    fn wait_for_close(&self, deadline: Duration) {
        let left = due(deadline).saturating_duration_since(Instant::now());
        let is_closed = self.is_closed.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.closed.wait_timeout_while(is_closed, left, |is_closed| !*is_closed);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Failure message if the other ranks have not ended in time.
    fn end(&self, rank: usize) -> Option<Message> {
        let is_over = self.end.get().is_some_and(|end| Instant::now() >= *end);
        let why = || format!("rank {rank} has ended its epoch, and others have not ended theirs within the deadline");
        is_over.then(|| Message::failure(OrderError::Lost { why: why() }))
    }
}

/// Messenger of a coordinator, and owner of the thread.
struct Mail {
    outbox: Arc<Outbox>,
    deadline: Duration,
    /// `None` once it was joined.
    thread: Option<JoinHandle<()>>,
}

impl Messenger for Mail {
    fn send(&self, message: Message) {
        self.outbox.messages.lock().unwrap_or_else(PoisonError::into_inner).push(message);
        self.outbox.filled.notify_one();
    }

    fn flush(&self) {
        self.outbox.wait_for_close(self.deadline);
    }
}

impl Drop for Mail {
    fn drop(&mut self) {
        // This is the only place that sets it.
        let _ = self.outbox.end.set(due(self.deadline));
        // The thread may run this drop itself, if the other owners drop the coordinator while it delivers a message.
        // It cannot join itself.
        let thread = self.thread.take().filter(|thread| thread.thread().id() != std::thread::current().id());
        // A panic of the thread was printed. It ends the other ranks by their deadline.
        let _ = thread.map(JoinHandle::join);
    }
}

/// State of the thread that takes part in rounds.
struct Rounds<T> {
    transport: T,
    outbox: Arc<Outbox>,
    inbox: Inbox,
    /// Whether this rank begins rounds.
    is_pacer: bool,
    /// Number of close messages after which all workers of all ranks have closed.
    n_sign_offs: usize,
}

impl<T: Transport> Rounds<T> {
    /// Takes part in rounds until all workers have closed or a rank has failed.
    fn run(&self) {
        let mut n_sign_offs = 0;
        while n_sign_offs < self.n_sign_offs {
            match self.round() {
                Ok(round) if !round.has_failed => n_sign_offs += round.n_sign_offs,
                Ok(_) => return,
                Err(why) => return self.inbox.lost(why),
            }
        }
    }

    /// Runs one round.
    fn round(&self) -> Result<Round, String> {
        let until = Instant::now() + if self.is_pacer { BEAT } else { Duration::ZERO };
        let mut own = self.outbox.take(until);
        own.extend(self.outbox.end(self.transport.rank()));
        let own = Message::encode(&own);
        let all: Vec<Parcel> = all_gather(&self.transport, NAME, &own).map_err(|error| error.to_string())?;
        let mut round = Round { n_sign_offs: 0, has_failed: false };
        for (from, parcel) in all.iter().enumerate() {
            let malformed = |error: OrderError| {
                Payload::new(parcel, self.transport.member(from), NAME).malformed(error.to_string()).to_string()
            };
            for message in Message::decode(parcel).map_err(malformed)? {
                round.n_sign_offs += usize::from(message.is_sign_off());
                round.has_failed |= message.is_failure();
                if from != self.transport.rank() {
                    self.inbox.deliver(from, message);
                }
            }
        }
        Ok(round)
    }
}

/// Result of a round, equal on all ranks.
struct Round {
    n_sign_offs: usize,
    has_failed: bool,
}
