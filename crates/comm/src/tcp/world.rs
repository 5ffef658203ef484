//! [`World`]: the [`State`] and the sockets of one rank, shared by its threads.

use std::io::{self, BufReader};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::frame::{Frame, LONGEST};
use super::options::{BEAT, Options};
use super::state::{Letter, State, late};
use crate::CommError;
use crate::transport::{Call, ExchangeId, Parcel, Path, due};

/// Time for ranks to send a failure to each other before they leave.
const FAREWELL: Duration = Duration::from_secs(2);

/// Buffer size for reads from a socket in bytes. Larger reads bypass it.
const READ_AHEAD: usize = 64 << 10;

/// Connections of a rank to all others.
pub(super) struct World {
    pub rank: usize,
    pub size: usize,
    deadline: Duration,
    shared: Mutex<Shared>,
    /// Condition: parcels or failures have arrived, or a thread has ended.
    changed: Condvar,
    /// Condition of each rank: frames for it are waiting.
    filled: Vec<Condvar>,
    streams: Vec<Option<TcpStream>>,
}

struct Shared {
    state: State,
    /// Number of running reader and writer threads.
    n_threads: usize,
}

impl World {
    /// Starts the reader and writer threads.
    ///
    /// # Errors
    /// When the system refuses a thread. The other ranks are told.
    pub fn start(options: &Options, streams: Vec<Option<TcpStream>>) -> io::Result<Arc<Self>> {
        let Options { rank, size, deadline, .. } = *options;
        let shared = Mutex::new(Shared { state: State::new(rank, size), n_threads: 0 });
        let filled = (0..size).map(|_| Condvar::new()).collect();
        let world = Arc::new(Self { rank, size, deadline, shared, changed: Condvar::new(), filled, streams });
        for peer in (0..size).filter(|&peer| world.streams[peer].is_some()) {
            let writer = world.spawn(format!("to rank {peer}"), move |world| world.write(peer));
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

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // No thread panics while it holds the lock.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes the writer threads that have frames.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut shared = self.lock();
        let changed = change(&mut shared.state);
        let has_frame = |(peer, _): &(usize, &Condvar)| shared.state.has_frame(*peer);
        self.filled.iter().enumerate().filter(has_frame).for_each(|(_, filled)| filled.notify_one());
        changed
    }

    /// Changes the state by a received event, and also wakes the threads that wait for parcels.
    fn hear<T>(&self, news: impl FnOnce(&mut State) -> T) -> T {
        let heard = self.change(news);
        self.changed.notify_all();
        heard
    }

    fn stream(&self, peer: usize) -> &TcpStream {
        self.streams[peer].as_ref().expect("a connection to every other rank")
    }

    /// Loop of the writer thread for `peer`: sends its frames, and heartbeats between them.
    fn write(&self, peer: usize) {
        let mut stream = self.stream(peer);
        loop {
            let frame = self.next_frame(peer);
            let is_last = matches!(frame, Frame::Failed { .. } | Frame::Goodbye);
            if frame.write(&mut stream).is_err() || is_last {
                break;
            }
        }
        // An error is ignored: the peer may have disconnected.
        let _ = stream.shutdown(Shutdown::Write);
    }

    /// Next frame for `peer`, or a heartbeat after a time without frames.
    fn next_frame(&self, peer: usize) -> Frame {
        let until = Instant::now() + BEAT;
        let mut shared = self.lock();
        loop {
            if let Some(frame) = shared.state.next_frame(peer) {
                return frame;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Frame::Beat;
            }
            shared = self.filled[peer].wait_timeout(shared, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Loop of the reader thread for `peer`, until its last frame or the end of the connection.
    fn read(&self, peer: usize) {
        let mut input = BufReader::with_capacity(READ_AHEAD, self.stream(peer));
        loop {
            let admit = |id: &ExchangeId| self.lock().state.admit(peer, id);
            match Frame::read_admitted(&mut input, LONGEST, admit) {
                Ok(None | Some(Frame::Beat)) => {}
                Ok(Some(frame)) => {
                    if self.hear(|state| state.receive(peer, frame)) {
                        return;
                    }
                }
                Err(error) => return self.hear(|state| state.break_off(peer, &error)),
            }
        }
    }

    /// Records the failure of `rank`, unless a failure is known, and sends it to all others.
    pub fn fail(&self, rank: usize, message: String) {
        self.hear(|state| state.fail(rank, message));
    }

    /// Failure that ends all ranks, if one is known.
    pub fn failure(&self) -> Option<CommError> {
        self.lock().state.failure()
    }

    /// Registers a group that this rank belongs to.
    pub fn join(&self, path: &Path) {
        self.lock().state.join(path);
    }

    /// Removes a group.
    pub fn leave(&self, path: &Path) {
        self.change(|state| state.leave(path));
    }

    /// Sends a parcel to each of `members`. Returns theirs in the same order, with `None` for this rank.
    pub fn exchange(
        &self,
        id: &ExchangeId,
        members: &[usize],
        call: Call,
        parcels: &[Parcel],
    ) -> Result<Vec<Option<Letter>>, CommError> {
        self.change(|state| state.begin(id, members, call, parcels));
        let found = self.collect(id, members, call);
        self.change(|state| state.end(members));
        found
    }

    fn collect(&self, id: &ExchangeId, members: &[usize], call: Call) -> Result<Vec<Option<Letter>>, CommError> {
        let deadline = due(self.deadline);
        let mut shared = self.lock();
        loop {
            let missing = match shared.state.look(id, members, call)? {
                Ok(letters) => return Ok(letters),
                Err(missing) => missing,
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(late(missing, call, self.deadline));
            }
            shared = self.changed.wait_timeout(shared, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Sends a goodbye or the failure, and waits until the other ranks have done so. Returns the failure, if there is
    /// one.
    pub fn close(&self) -> Option<(usize, String)> {
        self.change(State::say_goodbye);
        let (mut until, mut is_lost) = (due(self.deadline), false);
        let mut shared = self.lock();
        while shared.n_threads > 0 {
            if shared.state.failed().is_some() && !is_lost {
                (until, is_lost) = (Instant::now() + FAREWELL, true);
            }
            let now = Instant::now();
            if now >= until {
                break;
            }
            shared = self.changed.wait_timeout(shared, until - now).unwrap_or_else(PoisonError::into_inner).0;
        }
        let failed = shared.state.failed().cloned();
        drop(shared);
        for stream in self.streams.iter().flatten() {
            // An error is ignored: the connection may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
        failed
    }
}
