//! [`join`]: connects the ranks of a job, and refuses to start if they do not belong together.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::arrivals::{Arrival, Arrivals, is_open};
use super::client::{Timed, Unmet, is_late, prove};
use super::frame::{Frame, LONGEST_GREETING, VERSION};
use super::mesh::{MESH_WAIT, mesh};
use super::options::{BEAT, LOOK, Options, RETRY, SILENCE, Streams, name};
use super::place::{Place, connect};
use super::proof::{Claim, Meeting, Purpose};
use crate::transport::due;

/// Time limit for one attempt to connect.
const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// Extra time beyond a rank's own deadline. Rank 0 has about the same deadline and then reports the missing ranks.
const NEWS_WAIT: Duration = Duration::from_secs(2);

/// Connects to all other ranks.
///
/// # Errors
/// Reason why the job does not start. All ranks that rank 0 can reach give the same reason.
pub(super) fn join(options: &Options) -> Result<Streams, String> {
    let Options { rank, size, .. } = *options;
    if rank >= size {
        return Err(match size {
            0 => "no rank at all is asked for".to_owned(),
            _ => format!("there is no rank {rank} among {size}: ranks are 0 to {}", size - 1),
        });
    }
    if size == 1 {
        return Ok(vec![None]);
    }
    let place = Place::parse(&options.rendezvous)?;
    place.require_secret(&options.secret)?;
    let streams = if rank == 0 { gather(options, &place) } else { come(options, &place) }?;
    let prepare = |stream: &TcpStream| -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))
    };
    streams
        .iter()
        .flatten()
        .try_for_each(prepare)
        .map_err(|error| format!("a connection cannot be set up: {error}"))?;
    Ok(streams)
}

/// Rendezvous at rank 0: waits for all ranks and sends them the addresses of the others.
fn gather(options: &Options, place: &Place) -> Result<Streams, String> {
    let meeting = Meeting { options, purpose: Purpose::Rendezvous, listener: 0 };
    let mut arrivals =
        Arrivals::new(place.listen()?, meeting).map_err(|error| format!("rank 0 cannot wait at {place}: {error}"))?;
    let mut guests = Guests { options, seats: (0..options.size).map(|_| None).collect() };
    match guests.seat_all(&mut arrivals, place).and_then(|()| guests.introduce()) {
        Ok(()) => Ok(guests.seats.into_iter().map(|seat| seat.map(|(stream, _)| stream)).collect()),
        Err(why) => {
            guests.dismiss(&why);
            Err(why)
        }
    }
}

/// Ranks that have connected to rank 0.
struct Guests<'a> {
    options: &'a Options,
    /// Connection and listening address of each rank that has arrived.
    seats: Vec<Option<(TcpStream, SocketAddr)>>,
}

impl Guests<'_> {
    fn streams(&self) -> impl Iterator<Item = (usize, &TcpStream)> {
        self.seats.iter().enumerate().filter_map(|(rank, seat)| Some((rank, &seat.as_ref()?.0)))
    }

    /// Waits until all ranks have arrived.
    fn seat_all(&mut self, arrivals: &mut Arrivals, place: &Place) -> Result<(), String> {
        let (deadline, mut beaten) = (due(self.options.start_deadline), Instant::now());
        loop {
            let missing: Vec<usize> = (1..self.options.size).filter(|&rank| self.seats[rank].is_none()).collect();
            if missing.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let (who, seconds) = (name(&missing), self.options.start_deadline.as_secs_f64());
                let them = if missing.len() == 1 { "it" } else { "them" };
                let (turned_away, unreachable) = (arrivals.turned_away(), place.unreachable());
                return Err(format!(
                    "{who} did not come to {place} within {seconds:.0} s: see what became of {them}, or allow more \
                     time{turned_away}{unreachable}"
                ));
            }
            if let Some(arrival) = arrivals.next(LOOK) {
                self.seat(arrival)?;
            }
            if beaten.elapsed() >= BEAT {
                beaten = Instant::now();
                self.beat();
            }
        }
    }

    /// Registers a rank of this job. A rank that does not fit ends the job, because it has authenticated.
    fn seat(&mut self, arrival: Arrival) -> Result<(), String> {
        let Arrival { mut stream, from, claim } = arrival;
        let rank = self.place_of(&claim, from).inspect_err(|why| {
            // A write error is ignored: the client has disconnected.
            let _ = Frame::Refused(why.clone()).write(&mut stream);
        })?;
        let ip: IpAddr = from.ip().to_canonical();
        self.seats[rank] = Some((stream, SocketAddr::new(ip, claim.port)));
        Ok(())
    }

    /// Rank of a claim that fits the job.
    fn place_of(&self, claim: &Claim, from: SocketAddr) -> Result<usize, String> {
        let Claim { version, size, rank, .. } = claim;
        if version != VERSION {
            return Err(format!("{from} runs girih {version}, rank 0 runs {VERSION}: give all ranks the same program"));
        }
        if *size != self.options.size as u64 {
            let wanted = self.options.size;
            return Err(format!(
                "rank {rank} was started as one of {size} ranks, rank 0 as one of {wanted}: start as many"
            ));
        }
        let Some(rank) = usize::try_from(*rank).ok().filter(|&rank| rank < self.options.size) else {
            return Err(format!("{from} was started as rank {rank} of {size}: ranks are 0 to {}", size - 1));
        };
        let is_taken = rank == 0 || self.seats[rank].as_ref().is_some_and(|(stream, _)| is_open(stream));
        if is_taken {
            return Err(format!(
                "two processes were started as rank {rank}, one of them on {}",
                from.ip().to_canonical()
            ));
        }
        Ok(rank)
    }

    /// Sends a heartbeat to all waiting ranks, and removes those that have disconnected.
    fn beat(&mut self) {
        for seat in &mut self.seats {
            let is_there = |(stream, _): &(TcpStream, _)| is_open(stream) && Frame::Beat.write(&mut &*stream).is_ok();
            if !seat.as_ref().is_some_and(is_there) {
                *seat = None;
            }
        }
    }

    /// Sends all addresses to all ranks, and the signal to start once all are connected.
    fn introduce(&self) -> Result<(), String> {
        let addresses = self.seats.iter().flatten().map(|(_, address)| *address).collect();
        self.tell(&Frame::Welcome(addresses))?;
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            for (rank, stream) in self.streams() {
                let tell = tell.clone();
                let hear = move || {
                    // Other ranks give up before this wait ends, and send the reason.
                    let wait = MESH_WAIT + SILENCE;
                    let mut input = Timed { stream, until: Instant::now() + wait, silence: wait };
                    let heard = Frame::read(&mut input, LONGEST_GREETING);
                    // The receiver is gone if another rank has failed.
                    let _ = tell.send((rank, heard));
                };
                if let Err(error) = thread::Builder::new().spawn_scoped(scope, hear) {
                    let why = format!("rank 0 cannot start a thread: {error}; raise ulimit -u or -v");
                    self.dismiss(&why);
                    return Err(why);
                }
            }
            drop(tell);
            let why = told.iter().find_map(|(rank, heard)| match heard {
                Ok(Frame::Ready) => None,
                Ok(Frame::Refused(why)) => Some(why),
                Ok(_) | Err(_) => Some(format!("rank {rank} left before the start; see its log")),
            });
            why.map_or(Ok(()), |why| {
                self.dismiss(&why);
                Err(why)
            })
        })?;
        self.tell(&Frame::Go)
    }

    fn tell(&self, frame: &Frame) -> Result<(), String> {
        let left = self.streams().find(|(_, stream)| frame.write(&mut &**stream).is_err());
        left.map_or(Ok(()), |(rank, _)| Err(format!("rank {rank} left before the start; see its log")))
    }

    /// Tells all ranks that the job does not start. Some may have disconnected.
    fn dismiss(&self, why: &str) {
        for (_, stream) in self.streams() {
            let _ = Frame::Refused(why.to_owned()).write(&mut &*stream);
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Rendezvous at the other ranks: connects to rank 0, which may start later.
fn come(options: &Options, place: &Place) -> Result<Streams, String> {
    let deadline = due(options.start_deadline);
    loop {
        let why = match visit(options, place, deadline) {
            Ok(Visit { control, listener, addresses }) => return mesh(options, control, listener, &addresses),
            Err(Turned::Away(why)) => return Err(why),
            Err(Turned::Later(why)) => why,
        };
        if Instant::now() >= deadline {
            let (rank, seconds) = (options.rank, options.start_deadline.as_secs_f64());
            return Err(format!(
                "rank {rank} did not find rank 0 at {place} within {seconds:.0} s ({why}): see what became of it, or give the \
                 address of its host"
            ));
        }
        thread::sleep(RETRY);
    }
}

/// Result of a successful rendezvous with rank 0.
struct Visit {
    control: TcpStream,
    /// Listener of this rank for higher ranks.
    listener: TcpListener,
    /// Listening addresses of ranks 1, 2, …
    addresses: Vec<SocketAddr>,
}

/// Reason why an attempt failed.
enum Turned {
    /// Rank 0 is not there yet: try again.
    Later(String),
    /// Another attempt would fail as well.
    Away(String),
}

/// Connects to rank 0, and waits until all ranks have arrived.
fn visit(options: &Options, place: &Place, deadline: Instant) -> Result<Visit, Turned> {
    let addresses = place.addresses().map_err(Turned::Away)?;
    let mut control = connect(&addresses, CONNECT_WAIT).map_err(|error| Turned::Later(error.to_string()))?;
    let own = |error: io::Error| Turned::Away(format!("rank {} cannot listen: {error}", options.rank));
    let listener = listen_beside(&control).map_err(own)?;
    let port = listener.local_addr().map_err(own)?.port();
    let meeting = Meeting { options, purpose: Purpose::Rendezvous, listener: 0 };
    let until = deadline.min(Instant::now() + SILENCE);
    prove(&control, &meeting, port, until, || Ok(())).map_err(|unmet| {
        let is_passing = matches!(unmet, Unmet::Left) || Instant::now() >= deadline;
        let why = unmet.describe(&place.to_string());
        if is_passing { Turned::Later(why) } else { Turned::Away(why) }
    })?;
    let addresses = hear_of_others(options, place, &mut control, deadline + NEWS_WAIT)?;
    Ok(Visit { control, listener, addresses })
}

/// Listener at the address by which this rank reaches rank 0, and at no other.
fn listen_beside(control: &TcpStream) -> io::Result<TcpListener> {
    let mut own = control.local_addr()?;
    own.set_port(0);
    TcpListener::bind(own)
}

/// Waits for the addresses of ranks 1, 2, …, which rank 0 sends when all ranks have arrived. Heartbeats in between do
/// not extend the deadline.
fn hear_of_others(
    options: &Options,
    place: &Place,
    control: &mut TcpStream,
    until: Instant,
) -> Result<Vec<SocketAddr>, Turned> {
    let mut input = Timed { stream: control, until, silence: SILENCE };
    let why = loop {
        match Frame::read(&mut input, LONGEST_GREETING) {
            Ok(Frame::Beat) => {}
            Ok(Frame::Refused(why)) => break why,
            Ok(Frame::Welcome(addresses)) if addresses.len() == options.size - 1 => return Ok(addresses),
            Ok(_) => break format!("rank 0 at {place} sends a message that has no place before the start"),
            Err(error) if error.kind() == ErrorKind::InvalidData => break format!("rank 0 at {place} sent {error}"),
            Err(error) if is_late(&error) && Instant::now() >= until => {
                let (rank, seconds) = (options.rank, options.start_deadline.as_secs_f64());
                break format!(
                    "rank {rank} found rank 0 at {place}, which lives, but not all ranks came within {seconds:.0} s: see \
                     what became of them, or allow more time"
                );
            }
            Err(error) if is_late(&error) => break Unmet::Silent.describe(&place.to_string()),
            Err(_) => return Err(Turned::Later(Unmet::Left.describe(&place.to_string()))),
        }
    };
    Err(Turned::Away(why))
}
