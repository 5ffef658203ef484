//! [`Arrivals`]: the clients of a listening rank, until they have proven that they belong to the job.
//!
//! One thread looks after all of them: a client that has proven nothing costs a socket and a few hundred bytes, and
//! there are at most [`MAX_UNPROVEN`], each for at most [`PROOF_WAIT`].

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::proof::{self, CLAIM, Claim, Foreign, GREETING, Meeting};

/// Most clients at once that have proven nothing yet; the oldest gives way to the next one.
const MAX_UNPROVEN: usize = 64;

/// Time in which a client has to prove itself.
const PROOF_WAIT: Duration = Duration::from_secs(5);

/// Time between two looks at listener and clients.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Client that is a rank of the job.
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

/// Clients that were turned away, counted by their reasons.
#[derive(Default)]
pub(super) struct TurnedAway(BTreeMap<Cause, usize>);

impl TurnedAway {
    fn add(&mut self, cause: Cause, from: SocketAddr) {
        tracing::debug!("a connection from {from} was turned away: {cause}");
        *self.0.entry(cause).or_default() += 1;
    }
}

/// End of a message: empty if nobody was turned away.
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

/// Listener of a rank, and the clients that it has not yet let in or turned away.
pub(super) struct Arrivals<'a> {
    listener: TcpListener,
    meeting: Meeting<'a>,
    unproven: VecDeque<Stranger>,
    turned_away: TurnedAway,
}

/// Client that has proven nothing yet.
struct Stranger {
    stream: TcpStream,
    from: SocketAddr,
    since: Instant,
    greeting: [u8; GREETING],
    claim: [u8; CLAIM],
    /// Bytes of the claim that have come.
    come: usize,
}

impl<'a> Arrivals<'a> {
    pub fn new(listener: TcpListener, meeting: Meeting<'a>) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { listener, meeting, unproven: VecDeque::new(), turned_away: TurnedAway::default() })
    }

    /// Next rank, if one comes within `wait`.
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

    /// Hangs up on a rank that has no place here.
    pub fn turn_away(&mut self, Arrival { stream, from, .. }: Arrival) {
        drop(stream);
        self.turned_away.add(Cause::Rank, from);
    }

    /// Clients that were turned away so far.
    pub fn turned_away(&self) -> &TurnedAway {
        &self.turned_away
    }

    /// Greets those who connect, as many at once as may be unproven.
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

    /// Reads what has come, until one client has proven itself.
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
        // It fits into what the system holds for a new connection.
        (&stream).write_all(&greeting)?;
        Ok(Self { stream, from, since: Instant::now(), greeting, claim: [0; CLAIM], come: 0 })
    }

    /// Claim of the client, once it is there and proven.
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
            // Who has left again is told nothing.
            let _ = (&self.stream).write_all(&proof::turned_away());
            return Err(Cause::Secret);
        };
        let verdict = meeting.welcome(&self.greeting, &self.claim);
        let told = (&self.stream).write_all(&verdict).and_then(|()| self.stream.set_nonblocking(false));
        told.map(|()| Some(claim)).map_err(|_| Cause::Left)
    }
}

/// Bytes that lie ready at a connection, its end (0) or its failure; `None` while it is silent.
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

/// True if the other end is there.
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
