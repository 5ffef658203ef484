//! [`State`]: what one rank knows of the others and has for them, as plain data: no threads, sockets or clocks.
//!
//! `world.rs` drives it by sockets and condition variables, `sim.rs` by a simulated network and a virtual clock.
//!
//! # Bounds
//! No rank can be more than one exchange of a group ahead of another one, since every exchange waits for all members.
//! So a peer may send a parcel for the exchanges of a group that this rank waits for or begins next, and for the first
//! exchange of a group that this rank is about to split off: everything else is an error that names the peer, or, where
//! this rank has left the group, passed over. While more than [`MOST_UNREAD`] bytes of a peer lie unread and nobody
//! here waits for it, its parcels are paused at its end; signs of life and news of failures come as before. Nobody
//! waits for a paused peer: whoever begins to wait for it lets it go on.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::time::Duration;

use super::SILENCE;
use super::frame::{Admission, Frame};
use crate::CommError;
use crate::transport::{Call, ExchangeId, Parcel, Path};

/// Bytes of a peer's parcels that lie unread before it is paused, 256 MiB; it goes on at half of them.
pub(super) const MOST_UNREAD: u64 = 256 << 20;

/// Memory that a parcel takes beside its bytes, about.
const PARCEL_BYTES: u64 = 4 << 10;

/// Longest message of a failure, in bytes; a frame carries more.
const LONGEST_MESSAGE: usize = 64 << 10;

/// Call of a rank, and its parcel for this one.
pub(super) type Letter = (String, Parcel);

/// Knowledge of one rank about its world, and frames that wait to be sent.
pub(super) struct State {
    rank: usize,
    /// Rank that failed first, and what it said.
    failed: Option<(usize, String)>,
    /// Progress in each group that this rank belongs to now.
    groups: HashMap<Path, Progress>,
    /// For each rank, this one among them.
    peers: Vec<Peer>,
    most_unread: u64,
}

/// Exchanges of a group that this rank has begun, and that it has read all parcels of.
#[derive(Clone, Copy, Default)]
struct Progress {
    n_begun: u64,
    n_read: u64,
}

/// Another rank, as this one sees it.
#[derive(Default)]
struct Peer {
    /// Parcels that nobody has read.
    inbox: HashMap<ExchangeId, Letter>,
    n_unread_bytes: u64,
    /// Threads of this rank that wait for a parcel of it.
    n_waiting: usize,
    /// True if it was asked to pause.
    is_paused: bool,
    /// True if it has done its work.
    is_done: bool,
    /// True if it asked this rank to pause.
    pauses_this: bool,
    /// Frames for it that may not wait, and those that come in their turn.
    urgent: VecDeque<Frame>,
    waiting: VecDeque<Frame>,
}

impl State {
    pub fn new(rank: usize, size: usize) -> Self {
        Self::bounded(rank, size, MOST_UNREAD)
    }

    /// State with another bound on bytes that lie unread.
    pub fn bounded(rank: usize, size: usize, most_unread: u64) -> Self {
        let peers = (0..size).map(|_| Peer::default()).collect();
        // Others may begin before this rank does.
        let groups = HashMap::from([(Path::from([]), Progress::default())]);
        Self { rank, failed: None, groups, peers, most_unread }
    }

    /// Takes note of a group that this rank belongs to.
    pub fn join(&mut self, path: &Path) {
        self.groups.entry(Path::clone(path)).or_default();
    }

    /// Forgets a group, and what came for it and for groups that this rank has not split off it.
    pub fn leave(&mut self, path: &Path) {
        self.groups.remove(path);
        for peer in &mut self.peers {
            let is_left = |(of, _): &&ExchangeId| of.starts_with(path) && !self.groups.contains_key(of);
            let left: Vec<ExchangeId> = peer.inbox.keys().filter(is_left).cloned().collect();
            left.iter().for_each(|id| drop(peer.take(id)));
            peer.pace(self.most_unread);
        }
    }

    /// Begins an exchange: its parcels wait to be sent, and its members are waited for.
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

    /// Parcels that `members` have sent for an exchange, in their order, and nothing from this rank; the rank that is missing,
    /// if one is.
    ///
    /// # Errors
    /// When a rank has failed, or has ended before.
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

    /// Ends the wait for the members of an exchange, whatever came of it.
    pub fn end(&mut self, members: &[usize]) {
        for &member in members.iter().filter(|member| **member != self.rank) {
            let peer = &mut self.peers[member];
            peer.n_waiting -= 1;
            peer.pace(self.most_unread);
        }
    }

    /// Decision on a parcel that `peer` sends, before its bytes are read.
    ///
    /// # Errors
    /// Why an honest rank does not send it.
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
        // Of a group that this rank is about to split off, or has left.
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

    /// Takes in a frame of `peer`; true if it was its last one.
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

    /// Takes note that the connection to `peer` has ended without a last word.
    pub fn break_off(&mut self, peer: usize, error: &io::Error) {
        self.fail(peer, why_it_broke_off(error));
    }

    /// Takes note that `rank` failed, unless a failure is known, and tells all others.
    pub fn fail(&mut self, rank: usize, message: String) {
        self.note(rank, message, false);
    }

    /// Everybody tells all others of the first failure that it learns of, and of several that it is told of takes that
    /// of the lowest rank: so all end with the same.
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
                // Nobody waits for parcels any more.
                peer.waiting.clear();
                peer.urgent.push_back(Frame::Failed { rank: rank as u64, message: message.clone() });
            }
        }
    }

    /// Says to all that this rank has done its work, unless all is lost.
    pub fn say_goodbye(&mut self) {
        if self.failed.is_none() {
            self.peers.iter_mut().for_each(|peer| peer.waiting.push_back(Frame::Goodbye));
        }
    }

    /// Next frame for `peer`, if there is one that may go.
    pub fn next_frame(&mut self, peer: usize) -> Option<Frame> {
        let Peer { urgent, waiting, pauses_this, .. } = &mut self.peers[peer];
        urgent.pop_front().or_else(|| if *pauses_this { None } else { waiting.pop_front() })
    }

    /// True if there is a frame for `peer` that may go.
    pub fn has_frame(&self, peer: usize) -> bool {
        let Peer { urgent, waiting, pauses_this, .. } = &self.peers[peer];
        !urgent.is_empty() || !(*pauses_this || waiting.is_empty())
    }

    /// The failure that ends all ranks, if one is known.
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

    /// Pauses the peer, or lets it go on.
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

/// Error of a rank that did not come in time.
pub(super) fn late(rank: usize, call: Call, deadline: Duration) -> CommError {
    CommError::Late { rank, operation: call.operation, deadline }
}

/// Message on a rank whose connection has ended.
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
