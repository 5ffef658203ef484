//! [`Arrivals`]: clients of a listening rank, until they are authenticated.
//!
//! One thread serves all of them. An unauthenticated client costs a socket and a few hundred bytes. There are at most
//! [`MAX_UNPROVEN`] of them, each for at most [`PROOF_WAIT`].

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::proof::{self, CLAIM, Claim, Foreign, GREETING, Meeting};

/// Largest number of unauthenticated clients. The next client replaces the oldest.
const MAX_UNPROVEN: usize = 64;

/// Time limit for a client to authenticate.
const PROOF_WAIT: Duration = Duration::from_secs(5);

/// Interval at which the listener and the clients are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Client that has authenticated as a rank of the job.
pub(super) struct Arrival {
    pub stream: TcpStream,
    pub from: SocketAddr,
    pub claim: Claim,
}

/// Reason why a client was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    Secret,
    Protocol,
    Program,
    Silence,
    Left,
    Crowd,
    Rank,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Secret => "another secret, or another GIRIH_JOB",
            Self::Protocol => "another version of girih",
            Self::Program => "another program than girih",
            Self::Silence => "silence",
            Self::Left => "hung up",
            Self::Crowd => "too many at once",
            Self::Rank => "a rank that was not awaited",
        })
    }
}

/// Numbers of refused clients, by reason.
#[derive(Default)]
pub(super) struct TurnedAway(BTreeMap<Cause, usize>);

impl TurnedAway {
    fn add(&mut self, cause: Cause, from: SocketAddr) {
        tracing::debug!("a connection from {from} was turned away: {cause}");
        *self.0.entry(cause).or_default() += 1;
    }
}

/// Suffix of a message; empty if no client was refused.
impl fmt::Display for TurnedAway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n: usize = self.0.values().sum();
        match (n, self.0.len()) {
            (0, _) => return Ok(()),
            (1, _) => write!(f, "; 1 connection was turned away: ")?,
            _ => write!(f, "; {n} connections were turned away: ")?,
        }
        for (i, (cause, count)) in self.0.iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            match self.0.len() {
                1 => write!(f, "{cause}")?,
                _ => write!(f, "{comma}{cause} ({count})")?,
            }
        }
        Ok(())
    }
}

/// Listener of a rank, with its unauthenticated clients.
pub(super) struct Arrivals<'a> {
    listener: TcpListener,
    meeting: Meeting<'a>,
    unproven: VecDeque<Stranger>,
    turned_away: TurnedAway,
}

/// Client that has not authenticated.
struct Stranger {
    stream: TcpStream,
    from: SocketAddr,
    since: Instant,
    greeting: [u8; GREETING],
    claim: [u8; CLAIM],
    /// Number of bytes of the claim received so far.
    come: usize,
}

impl<'a> Arrivals<'a> {
    pub fn new(listener: TcpListener, meeting: Meeting<'a>) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { listener, meeting, unproven: VecDeque::new(), turned_away: TurnedAway::default() })
    }

    /// Next authenticated rank, if one arrives within `wait`.
    pub fn next(&mut self, wait: Duration) -> Option<Arrival> {
        let until = Instant::now() + wait;
        loop {
            if let Some(arrival) = self.advance_all() {
                return Some(arrival);
            }
            self.accept();
            let now = Instant::now();
            if now >= until {
                return None;
            }
            thread::sleep(POLL_INTERVAL.min(until - now));
        }
    }

    /// Disconnects a rank that is not awaited here.
    pub fn turn_away(&mut self, Arrival { stream, from, .. }: Arrival) {
        drop(stream);
        self.turned_away.add(Cause::Rank, from);
    }

    /// Clients refused so far.
    pub fn turned_away(&self) -> &TurnedAway {
        &self.turned_away
    }

    /// Accepts and greets new clients, at most [`MAX_UNPROVEN`] per call.
    fn accept(&mut self) {
        for _ in 0..MAX_UNPROVEN {
            let Ok((stream, from)) = self.listener.accept() else { return };
            match Stranger::greet(stream, from) {
                Ok(stranger) => self.unproven.push_back(stranger),
                Err(_) => self.turned_away.add(Cause::Left, from),
            }
            if self.unproven.len() > MAX_UNPROVEN
                && let Some(oldest) = self.unproven.pop_front()
            {
                self.turned_away.add(Cause::Crowd, oldest.from);
            }
        }
    }

    /// Reads from all clients until one has authenticated.
    fn advance_all(&mut self) -> Option<Arrival> {
        let mut i = 0;
        while i < self.unproven.len() {
            let advanced = self.unproven[i].advance(&self.meeting);
            if let Ok(None) = advanced {
                i += 1;
                continue;
            }
            let Stranger { stream, from, .. } = self.unproven.remove(i)?;
            match advanced {
                Ok(claim) => return claim.map(|claim| Arrival { stream, from, claim }),
                Err(cause) => self.turned_away.add(cause, from),
            }
        }
        None
    }
}

impl Stranger {
    fn greet(stream: TcpStream, from: SocketAddr) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let greeting = proof::greeting()?;
        // The greeting fits into the send buffer of a new connection.
        (&stream).write_all(&greeting)?;
        Ok(Self { stream, from, since: Instant::now(), greeting, claim: [0; CLAIM], come: 0 })
    }

    /// Claim of the client, once it is complete and valid.
    fn advance(&mut self, meeting: &Meeting) -> Result<Option<Claim>, Cause> {
        while self.come < CLAIM {
            match (&self.stream).read(&mut self.claim[self.come..]) {
                Ok(0) => return Err(Cause::Left),
                Ok(n) => self.come += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && self.since.elapsed() < PROOF_WAIT => {
                    return Ok(None);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(Cause::Silence),
                Err(_) => return Err(Cause::Left),
            }
            proof::check_prefix(&self.claim[..self.come]).map_err(|foreign| match foreign {
                Foreign::Program => Cause::Program,
                Foreign::Protocol => Cause::Protocol,
            })?;
        }
        let Some(claim) = meeting.check_claim(&self.greeting, &self.claim) else {
            // A write error is ignored: the client has disconnected.
            let _ = (&self.stream).write_all(&proof::turned_away());
            return Err(Cause::Secret);
        };
        let verdict = meeting.welcome(&self.greeting, &self.claim);
        let told = (&self.stream).write_all(&verdict).and_then(|()| self.stream.set_nonblocking(false));
        told.map(|()| Some(claim)).map_err(|_| Cause::Left)
    }
}

/// Number of bytes ready on a connection, 0 at its end, or its error; `None` if no bytes are ready.
pub(super) fn ready(stream: &TcpStream) -> Option<io::Result<usize>> {
    let look = || {
        stream.set_nonblocking(true)?;
        let found = stream.peek(&mut [0]);
        stream.set_nonblocking(false)?;
        found
    };
    match look() {
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        found => Some(found),
    }
}

/// Checks that the peer has not disconnected.
pub(super) fn is_open(stream: &TcpStream) -> bool {
    !matches!(ready(stream), Some(Ok(0) | Err(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_in_words() {
        let (mut all, from) = (TurnedAway::default(), SocketAddr::from(([127, 0, 0, 1], 1)));
        assert_eq!(all.to_string(), "");
        all.add(Cause::Silence, from);
        assert_eq!(all.to_string(), "; 1 connection was turned away: silence");
        all.add(Cause::Silence, from);
        assert_eq!(all.to_string(), "; 2 connections were turned away: silence");
        all.add(Cause::Secret, from);
        let both = "; 3 connections were turned away: another secret, or another GIRIH_JOB (1), silence (2)";
        assert_eq!(all.to_string(), both);
    }
}
