//! [`World`]: what the threads of one rank share, and how it learns of failures.

use std::collections::HashMap;
use std::io::{self, BufReader, ErrorKind};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::frame::{ExchangeId, Frame, LONGEST};
use super::{BEAT, Options, SILENCE};
use crate::CommError;
use crate::transport::{Call, Parcel, due};

/// How long ranks may take to tell each other of a failure before they leave.
const FAREWELL: Duration = Duration::from_secs(2);

/// Bytes read from a socket at once; larger parcels pass by this.
const READ_AHEAD: usize = 64 << 10;

/// A rank's connections to all others.
pub(super) struct World {
    pub rank: usize,
    pub size: usize,
    deadline: Duration,
    state: Mutex<State>,
    changed: Condvar,
    /// What is to be sent to each other rank.
    outboxes: Vec<Option<Sender<Frame>>>,
    streams: Vec<Option<TcpStream>>,
}

#[derive(Default)]
struct State {
    /// The rank that failed first, and what it said.
    failed: Option<(usize, String)>,
    /// What ranks have sent for an exchange that this one has not read.
    inbox: HashMap<ExchangeId, HashMap<usize, Letter>>,
    /// Ranks that have done their work.
    done: Vec<usize>,
    /// Threads that read or write.
    n_threads: usize,
}

/// What a rank called, and what it has for this one.
pub(super) type Letter = (String, Parcel);

impl World {
    /// Starts the threads that read and write.
    ///
    /// # Errors
    /// When there are no more threads; the others are told.
    pub fn start(options: &Options, streams: Vec<Option<TcpStream>>) -> io::Result<Arc<Self>> {
        let channels = streams.iter().map(|stream| stream.as_ref().map(|_| mpsc::channel()));
        let (outboxes, receivers): (Vec<_>, Vec<_>) = channels.map(Option::unzip).unzip();
        let Options { rank, size, deadline, .. } = *options;
        let (state, changed) = (Mutex::default(), Condvar::new());
        let world = Arc::new(Self { rank, size, deadline, state, changed, outboxes, streams });
        for (peer, outbox) in receivers.into_iter().enumerate() {
            let Some(outbox) = outbox else { continue };
            let writer = world.spawn(format!("to rank {peer}"), move |world| world.write(peer, &outbox));
            let started = writer.and_then(|()| world.spawn(format!("from rank {peer}"), move |world| world.read(peer)));
            if let Err(error) = started {
                world.fail(rank, format!("no thread starts: {error}"));
                return Err(error);
            }
        }
        Ok(world)
    }

    fn spawn(self: &Arc<Self>, name: String, work: impl FnOnce(&Self) + Send + 'static) -> io::Result<()> {
        let world = Arc::clone(self);
        self.lock().n_threads += 1;
        let body = move || {
            work(&world);
            world.lock().n_threads -= 1;
            world.changed.notify_all();
        };
        let started = thread::Builder::new().name(name).spawn(body);
        if started.is_err() {
            self.lock().n_threads -= 1;
        }
        started.map(drop)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stream(&self, peer: usize) -> &TcpStream {
        self.streams[peer].as_ref().expect("a connection to every other rank")
    }

    /// Sends a frame when those before it are gone.
    pub fn send(&self, peer: usize, frame: Frame) {
        let outbox = self.outboxes[peer].as_ref().expect("a connection to every other rank");
        // A writer that has ended had a reason, which its reader tells.
        let _ = outbox.send(frame);
    }

    fn send_all(&self, frame: &Frame) {
        (0..self.size).filter(|&peer| peer != self.rank).for_each(|peer| self.send(peer, frame.clone()));
    }

    /// What a thread writes to `peer`: its parcels, and signs of life between them.
    fn write(&self, peer: usize, outbox: &Receiver<Frame>) {
        let mut stream = self.stream(peer);
        loop {
            let frame = match outbox.recv_timeout(BEAT) {
                Ok(frame) => frame,
                Err(RecvTimeoutError::Timeout) => Frame::Beat,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let is_last = match &frame {
                // After a failure nobody waits for parcels, and all wait for the news.
                Frame::Parcel { .. } if self.failure().is_some() => continue,
                frame => matches!(frame, Frame::Failed { .. } | Frame::Goodbye),
            };
            if frame.write(&mut stream).is_err() || is_last {
                break;
            }
        }
        // The other end may have gone already.
        let _ = stream.shutdown(Shutdown::Write);
    }

    /// What a thread reads from `peer`, until it says its last word or breaks off.
    fn read(&self, peer: usize) {
        let mut input = BufReader::with_capacity(READ_AHEAD, self.stream(peer));
        loop {
            match Frame::read(&mut input, LONGEST) {
                Ok(Frame::Beat) => {}
                Ok(Frame::Parcel { id, call, parcel }) => {
                    if self.lock().inbox.entry(id).or_default().insert(peer, (call, parcel)).is_some() {
                        return self.fail(peer, "it sent two parcels for one exchange".to_owned());
                    }
                    self.changed.notify_all();
                }
                Ok(Frame::Failed { rank, message }) if rank < self.size as u64 => {
                    return self.hear(rank as usize, message);
                }
                Ok(Frame::Goodbye) => {
                    self.lock().done.push(peer);
                    return self.changed.notify_all();
                }
                Ok(_) => return self.fail(peer, "it sent a message that has no place after the start".to_owned()),
                Err(error) => return self.fail(peer, why_it_broke_off(&error)),
            }
        }
    }

    /// Takes note that `rank` failed, unless a failure is known, and tells all others.
    pub fn fail(&self, rank: usize, message: String) {
        self.note(rank, message, false);
    }

    /// Takes note of what another rank took note of. Everybody tells all others of the first failure that it learns of,
    /// and of several takes that of the lowest rank: so all end with the same.
    fn hear(&self, rank: usize, message: String) {
        self.note(rank, message, true);
    }

    fn note(&self, rank: usize, message: String, others_say_so: bool) {
        let mut state = self.lock();
        let is_first = state.failed.is_none();
        if is_first || (others_say_so && state.failed.as_ref().is_some_and(|(known, _)| rank < *known)) {
            state.failed = Some((rank, message.clone()));
        }
        drop(state);
        if is_first {
            self.changed.notify_all();
            self.send_all(&Frame::Failed { rank: rank as u64, message });
        }
    }

    /// The failure that ends all ranks, if one is known.
    pub fn failure(&self) -> Option<CommError> {
        failure(&self.lock())
    }

    /// What `members` have sent for an exchange, in their order; nothing from this rank.
    pub fn collect(&self, id: &ExchangeId, members: &[usize], call: Call) -> Result<Vec<Option<Letter>>, CommError> {
        let deadline = due(self.deadline);
        let mut state = self.lock();
        loop {
            if let Some(failure) = failure(&state) {
                return Err(failure);
            }
            let letters = state.inbox.get(id);
            let has_come = |rank: usize| rank == self.rank || letters.is_some_and(|found| found.contains_key(&rank));
            let Some(&missing) = members.iter().find(|&&rank| !has_come(rank)) else { break };
            if state.done.contains(&missing) {
                let message = format!("it ended without taking part in {}", call.operation);
                return Err(CommError::RankFailed { rank: missing, message });
            }
            let now = Instant::now();
            if now >= deadline {
                return Err(CommError::Late { rank: missing, operation: call.operation, deadline: self.deadline });
            }
            state = self.changed.wait_timeout(state, deadline - now).unwrap_or_else(PoisonError::into_inner).0;
        }
        let mut letters = state.inbox.remove(id).unwrap_or_default();
        Ok(members.iter().map(|rank| letters.remove(rank)).collect())
    }

    /// Says goodbye, or that all is lost, and waits until the others have; the failure that ended them, if one did.
    pub fn close(&self) -> Option<(usize, String)> {
        if self.failure().is_none() {
            self.send_all(&Frame::Goodbye);
        }
        let (mut until, mut is_lost) = (due(self.deadline), false);
        let mut state = self.lock();
        while state.n_threads > 0 {
            if state.failed.is_some() && !is_lost {
                (until, is_lost) = (Instant::now() + FAREWELL, true);
            }
            let now = Instant::now();
            if now >= until {
                break;
            }
            state = self.changed.wait_timeout(state, until - now).unwrap_or_else(PoisonError::into_inner).0;
        }
        let failed = state.failed.clone();
        drop(state);
        for stream in self.streams.iter().flatten() {
            // It may be down already.
            let _ = stream.shutdown(Shutdown::Both);
        }
        failed
    }
}

fn failure(state: &State) -> Option<CommError> {
    let (rank, message) = state.failed.as_ref()?;
    Some(CommError::RankFailed { rank: *rank, message: message.clone() })
}

/// What the end of a connection says about the rank behind it.
fn why_it_broke_off(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::InvalidData => format!("it sent {error}"),
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            format!("nothing was heard from it for {} s: its host hangs, or the network is down", SILENCE.as_secs())
        }
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => {
            "its process ended without a word: it was killed, or ran out of memory; see its log".to_owned()
        }
        _ => format!("its connection broke: {error}"),
    }
}
