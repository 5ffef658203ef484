//! [`State`]: state of one rank and its frames to send, as plain data without threads, sockets or clocks.
//!
//! `world.rs` drives it with sockets and condition variables, `sim.rs` with a simulated network and a virtual clock.
//!
//! # Bounds
//! No rank can be more than one exchange of a group ahead of another, because every exchange waits for all members.
//! So a peer may only send parcels for these exchanges: those of a group that this rank waits for or begins next, and
//! the first exchange of a group that this rank is about to split off. Any other parcel is an error that names the
//! peer, or is discarded if this rank has left the group. A peer is paused while it has more than [`MOST_UNREAD`]
//! unread bytes here and no thread waits for it. A paused peer sends no parcels, but still sends heartbeats and
//! failures. A thread that begins to wait for a paused peer resumes it, so no thread waits for a paused peer.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::time::Duration;

use super::frame::{Admission, Frame};
use super::options::SILENCE;
use crate::CommError;
use crate::transport::{Call, ExchangeId, Parcel, Path};

/// Unread bytes of a peer at which it is paused, 256 MiB. It is resumed at half of them.
pub(super) const MOST_UNREAD: u64 = 256 << 20;

/// Approximate memory of a parcel in addition to its bytes.
const PARCEL_BYTES: u64 = 4 << 10;

/// Longest message of a failure in bytes, shorter than the limit of a frame.
const LONGEST_MESSAGE: usize = 64 << 10;

/// Call of a rank, and its parcel for this one.
pub(super) type Letter = (String, Parcel);

/// State of one rank: its view of the others, and frames to be sent.
pub(super) struct State {
    rank: usize,
    /// Rank that failed first, and its message.
    failed: Option<(usize, String)>,
    /// Progress in each group that this rank belongs to now.
    groups: HashMap<Path, Progress>,
    /// View of each rank, by rank, including this one.
    peers: Vec<Peer>,
    most_unread: u64,
}

/// Number of exchanges of a group that this rank has begun, and of those whose parcels it has all read.
#[derive(Clone, Copy, Default)]
struct Progress {
    n_begun: u64,
    n_read: u64,
}

/// Another rank, as seen by this one.
#[derive(Default)]
struct Peer {
    /// Unread parcels, by exchange.
    inbox: HashMap<ExchangeId, Letter>,
    n_unread_bytes: u64,
    /// Number of threads of this rank that wait for a parcel of the peer.
    n_waiting: usize,
    /// Whether the peer was asked to pause.
    is_paused: bool,
    /// Whether the peer has completed its work.
    is_done: bool,
    /// Whether the peer asked this rank to pause.
    pauses_this: bool,
    /// Frames for the peer: urgent ones, which a pause does not hold back, and others in order.
    urgent: VecDeque<Frame>,
    waiting: VecDeque<Frame>,
}

impl State {
    pub fn new(rank: usize, size: usize) -> Self {
        Self::bounded(rank, size, MOST_UNREAD)
    }

    /// State with another bound on unread bytes.
    pub fn bounded(rank: usize, size: usize, most_unread: u64) -> Self {
        let peers = (0..size).map(|_| Peer::default()).collect();
        // Other ranks may begin before this one.
        let groups = HashMap::from([(Path::from([]), Progress::default())]);
        Self { rank, failed: None, groups, peers, most_unread }
    }

    /// Registers a group that this rank belongs to.
    pub fn join(&mut self, path: &Path) {
        self.groups.entry(Path::clone(path)).or_default();
    }

    /// Removes a group. Also drops parcels for it and for groups below it that this rank has not joined.
    pub fn leave(&mut self, path: &Path) {
        self.groups.remove(path);
        for peer in &mut self.peers {
            let is_left = |(of, _): &&ExchangeId| of.starts_with(path) && !self.groups.contains_key(of);
            let left: Vec<ExchangeId> = peer.inbox.keys().filter(is_left).cloned().collect();
            left.iter().for_each(|id| drop(peer.take(id)));
            peer.pace(self.most_unread);
        }
    }

    /// Begins an exchange: queues its parcels, and waits for its members.
    pub fn begin(&mut self, id: &ExchangeId, members: &[usize], call: Call, parcels: &[Parcel]) {
        let progress = self.groups.entry(Path::clone(&id.0)).or_default();
        progress.n_begun = progress.n_begun.max(id.1 + 1);
        for (&member, parcel) in members.iter().zip(parcels).filter(|(member, _)| **member != self.rank) {
            let frame = Frame::Parcel { id: id.clone(), call: call.to_string(), parcel: parcel.clone() };
            let peer = &mut self.peers[member];
            peer.waiting.push_back(frame);
            peer.n_waiting += 1;
            if std::mem::take(&mut peer.is_paused) {
                peer.urgent.push_back(Frame::Resume);
            }
        }
    }

    /// Parcels of `members` for an exchange, in their order, with `None` for this rank. `Err` with the first missing
    /// rank if parcels are missing.
    ///
    /// # Errors
    /// When a rank has failed, or has ended before the exchange.
    pub fn look(
        &mut self,
        id: &ExchangeId,
        members: &[usize],
        call: Call,
    ) -> Result<Result<Vec<Option<Letter>>, usize>, CommError> {
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        let has_come = |rank: usize| rank == self.rank || self.peers[rank].inbox.contains_key(id);
        if let Some(&missing) = members.iter().find(|&&rank| !has_come(rank)) {
            if self.peers[missing].is_done {
                let message = format!("it ended without taking part in {}", call.operation);
                return Err(CommError::RankFailed { rank: missing, message });
            }
            return Ok(Err(missing));
        }
        if let Some(progress) = self.groups.get_mut(&id.0) {
            progress.n_read = progress.n_read.max(id.1 + 1);
        }
        Ok(Ok(members.iter().map(|&rank| self.peers[rank].take(id)).collect()))
    }

    /// Ends the wait for the members of an exchange, with or without a result.
    pub fn end(&mut self, members: &[usize]) {
        for &member in members.iter().filter(|member| **member != self.rank) {
            let peer = &mut self.peers[member];
            peer.n_waiting -= 1;
            peer.pace(self.most_unread);
        }
    }

    /// Decides on a parcel of `peer` before its bytes are read.
    ///
    /// # Errors
    /// Reason why a correct rank does not send it.
    pub fn admit(&self, peer: usize, id: &ExchangeId) -> Result<Admission, String> {
        let (path, number) = (&id.0, id.1);
        let inbox = &self.peers[peer].inbox;
        if inbox.contains_key(id) {
            return Err("two parcels for one exchange".to_owned());
        }
        if let Some(progress) = self.groups.get(path) {
            return match number {
                n if n > progress.n_begun => {
                    Err(format!("a parcel for exchange {n}, before this rank begins {}", progress.n_begun))
                }
                n if n < progress.n_read => Err("two parcels for one exchange".to_owned()),
                _ => Ok(Admission::Keep),
            };
        }
        // The group is one that this rank is about to split off, or has left.
        let [parent @ .., split_at, _] = &path[..] else { return Ok(Admission::Discard) };
        let is_ahead = self.groups.get(parent).is_some_and(|progress| progress.n_begun == *split_at);
        let is_sibling = |other: &Path| {
            other != path && other.len() == path.len() && other[..path.len() - 1] == path[..path.len() - 1]
        };
        if !is_ahead || inbox.keys().any(|(other, _)| is_sibling(other) && !self.groups.contains_key(other)) {
            return Ok(Admission::Discard);
        }
        if number > 0 {
            Err(format!("a parcel for exchange {number} of a group that has none yet"))
        } else {
            Ok(Admission::Keep)
        }
    }

    /// Handles a frame of `peer`. Returns whether it is the last one.
    pub fn receive(&mut self, peer: usize, frame: Frame) -> bool {
        match frame {
            Frame::Beat => {}
            Frame::Pause => self.peers[peer].pauses_this = true,
            Frame::Resume => self.peers[peer].pauses_this = false,
            Frame::Parcel { id, call, parcel } => {
                let from = &mut self.peers[peer];
                from.n_unread_bytes += parcel.len() as u64 + PARCEL_BYTES;
                from.inbox.insert(id, (call, parcel));
                from.pace(self.most_unread);
            }
            Frame::Failed { rank, message } if rank < self.peers.len() as u64 => {
                self.note(rank as usize, message, true);
                return true;
            }
            Frame::Goodbye => {
                self.peers[peer].is_done = true;
                return true;
            }
            Frame::Welcome(_) | Frame::Refused(_) | Frame::Ready | Frame::Go | Frame::Failed { .. } => {
                self.fail(peer, "it sent a message that has no place after the start".to_owned());
                return true;
            }
        }
        false
    }

    /// Handles the end of the connection to `peer` without a last frame.
    pub fn break_off(&mut self, peer: usize, error: &io::Error) {
        self.fail(peer, why_it_broke_off(error));
    }

    /// Records the failure of `rank`, unless a failure is known, and sends it to all others.
    pub fn fail(&mut self, rank: usize, message: String) {
        self.note(rank, message, false);
    }

    /// Each rank sends the first failure that it learns of to all others. If it receives several, it keeps that of
    /// the lowest rank. So all ranks end with the same failure.
    fn note(&mut self, rank: usize, mut message: String, others_say_so: bool) {
        if let Some(end) = (0..=LONGEST_MESSAGE).rev().find(|&end| message.is_char_boundary(end)) {
            message.truncate(end);
        }
        let is_first = self.failed.is_none();
        if is_first || (others_say_so && self.failed.as_ref().is_some_and(|(known, _)| rank < *known)) {
            self.failed = Some((rank, message.clone()));
        }
        if is_first {
            for (_, peer) in self.peers.iter_mut().enumerate().filter(|(peer, _)| *peer != self.rank) {
                // No rank waits for parcels any more.
                peer.waiting.clear();
                peer.urgent.push_back(Frame::Failed { rank: rank as u64, message: message.clone() });
            }
        }
    }

    /// Queues a goodbye for all peers, unless a failure is known.
    pub fn say_goodbye(&mut self) {
        if self.failed.is_none() {
            self.peers.iter_mut().for_each(|peer| peer.waiting.push_back(Frame::Goodbye));
        }
    }

    /// Next frame for `peer` that may be sent.
    pub fn next_frame(&mut self, peer: usize) -> Option<Frame> {
        let Peer { urgent, waiting, pauses_this, .. } = &mut self.peers[peer];
        urgent.pop_front().or_else(|| if *pauses_this { None } else { waiting.pop_front() })
    }

    /// Whether a frame for `peer` may be sent now.
    pub fn has_frame(&self, peer: usize) -> bool {
        let Peer { urgent, waiting, pauses_this, .. } = &self.peers[peer];
        !urgent.is_empty() || !(*pauses_this || waiting.is_empty())
    }

    /// Failure that ends all ranks, if one is known.
    pub fn failure(&self) -> Option<CommError> {
        let (rank, message) = self.failed.as_ref()?;
        Some(CommError::RankFailed { rank: *rank, message: message.clone() })
    }

    /// Rank that failed first, and its message.
    pub fn failed(&self) -> Option<&(usize, String)> {
        self.failed.as_ref()
    }
}

impl Peer {
    fn take(&mut self, id: &ExchangeId) -> Option<Letter> {
        let letter = self.inbox.remove(id)?;
        self.n_unread_bytes -= letter.1.len() as u64 + PARCEL_BYTES;
        Some(letter)
    }

    /// Pauses or resumes the peer, depending on its unread bytes.
    fn pace(&mut self, most_unread: u64) {
        let is_full = self.n_unread_bytes > most_unread && self.n_waiting == 0;
        let has_space = self.n_unread_bytes <= most_unread / 2 || self.n_waiting > 0;
        if !self.is_paused && is_full {
            self.is_paused = true;
            self.urgent.push_back(Frame::Pause);
        } else if self.is_paused && has_space {
            self.is_paused = false;
            self.urgent.push_back(Frame::Resume);
        }
    }
}

/// Error for a rank that did not send its parcel in time.
pub(super) fn late(rank: usize, call: Call, deadline: Duration) -> CommError {
    CommError::Late { rank, operation: call.operation, deadline }
}

/// Failure message for a rank whose connection has ended.
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
