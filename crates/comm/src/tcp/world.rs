//! [`World`]: what the threads of one rank share: its [`State`], and the sockets.

use std::io::{self, BufReader};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::frame::{Frame, LONGEST};
use super::state::{Letter, State, late};
use super::{BEAT, Options};
use crate::CommError;
use crate::transport::{Call, ExchangeId, Parcel, Path, due};

/// How long ranks may take to tell each other of a failure before they leave.
const FAREWELL: Duration = Duration::from_secs(2);

/// Bytes read from a socket at once; larger parcels pass by this.
const READ_AHEAD: usize = 64 << 10;

/// Connections of a rank to all others.
pub(super) struct World {
    pub rank: usize,
    pub size: usize,
    deadline: Duration,
    shared: Mutex<Shared>,
    /// Parcels or failures have come, or a thread has ended.
    changed: Condvar,
    /// For each rank: there are frames for it.
    filled: Vec<Condvar>,
    streams: Vec<Option<TcpStream>>,
}

struct Shared {
    state: State,
    /// Threads that read or write.
    n_threads: usize,
}

impl World {
    /// Starts the threads that read and write.
    ///
    /// # Errors
    /// When there are no more threads; the others are told.
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
        // Nothing panics while it holds the lock.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes the threads that write what it has to say.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut shared = self.lock();
        let changed = change(&mut shared.state);
        let has_frame = |(peer, _): &(usize, &Condvar)| shared.state.has_frame(*peer);
        self.filled.iter().enumerate().filter(has_frame).for_each(|(_, filled)| filled.notify_one());
        changed
    }

    /// Changes the state by news, and wakes the threads that may wait for them.
    fn hear<T>(&self, news: impl FnOnce(&mut State) -> T) -> T {
        let heard = self.change(news);
        self.changed.notify_all();
        heard
    }

    fn stream(&self, peer: usize) -> &TcpStream {
        self.streams[peer].as_ref().expect("a connection to every other rank")
    }

    /// Loop of the thread that writes to `peer`: frames that wait for it, and signs of life between them.
    fn write(&self, peer: usize) {
        let mut stream = self.stream(peer);
        loop {
            let frame = self.next_frame(peer);
            let is_last = matches!(frame, Frame::Failed { .. } | Frame::Goodbye);
            if frame.write(&mut stream).is_err() || is_last {
                break;
            }
        }
        // The other end may have gone already.
        let _ = stream.shutdown(Shutdown::Write);
    }

    /// Next frame for `peer`: a sign of life when there is none for some time.
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

    /// What a thread reads from `peer`, until it says its last word or breaks off.
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

    /// Takes note that `rank` failed, unless a failure is known, and tells all others.
    pub fn fail(&self, rank: usize, message: String) {
        self.hear(|state| state.fail(rank, message));
    }

    /// The failure that ends all ranks, if one is known.
    pub fn failure(&self) -> Option<CommError> {
        self.lock().state.failure()
    }

    /// Takes note of a group that this rank belongs to.
    pub fn join(&self, path: &Path) {
        self.lock().state.join(path);
    }

    /// Forgets a group.
    pub fn leave(&self, path: &Path) {
        self.change(|state| state.leave(path));
    }

    /// Sends a parcel to each of `members`; what they have sent, in their order, and nothing from this rank.
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

    /// Says goodbye, or that all is lost, and waits until the others have; the failure that ended them, if one did.
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
            // It may be down already.
            let _ = stream.shutdown(Shutdown::Both);
        }
        failed
    }
}
