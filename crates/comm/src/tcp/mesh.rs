//! [`mesh`]: ranks that rank 0 has told of each other connect, all to all.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::arrivals::{Arrivals, ready};
use super::frame::{Frame, LONGEST_GREETING};
use super::place::connect;
use super::rendezvous::{LOOK, Streams, hello, name};
use super::{Options, SILENCE};

/// How long ranks that are all there may take to connect.
pub(super) const MESH_WAIT: Duration = Duration::from_secs(30);

/// How long connecting to one rank may take.
const CONNECT_WAIT: Duration = Duration::from_secs(10);

/// Connects to the ranks below, is connected to by those above, and goes when all are ready.
///
/// # Errors
/// Why there is no start; rank 0 tells the others.
pub(super) fn mesh(
    options: &Options,
    mut control: TcpStream,
    listener: TcpListener,
    addresses: &[SocketAddr],
) -> Result<Streams, String> {
    let mut streams = match connect_all(options, &control, listener, addresses) {
        Ok(streams) => streams,
        Err(why) => {
            // Rank 0 may be what failed.
            let _ = Frame::Refused(why.clone()).write(&mut control);
            return Err(why);
        }
    };
    // Whoever does not get ready says so before this wait ends.
    let patient = control.set_read_timeout(Some(MESH_WAIT + SILENCE + SILENCE));
    patient.and_then(|()| Frame::Ready.write(&mut control)).map_err(|_| left())?;
    match Frame::read(&mut control, LONGEST_GREETING) {
        Ok(Frame::Go) => {}
        Ok(Frame::Refused(why)) => return Err(why),
        Ok(_) | Err(_) => return Err(left()),
    }
    streams[0] = Some(control);
    Ok(streams)
}

fn left() -> String {
    "rank 0 left before the start; see its log".to_owned()
}

fn connect_all(
    options: &Options,
    control: &TcpStream,
    listener: TcpListener,
    addresses: &[SocketAddr],
) -> Result<Streams, String> {
    let own = options.rank;
    let arrivals = Arrivals::new(listener).map_err(|error| format!("rank {own} cannot wait for others: {error}"))?;
    let mut streams: Streams = (0..options.size).map(|_| None).collect();
    for rank in 1..own {
        let address = seen_from_here(addresses[rank - 1], control);
        let reached = connect(&[address], CONNECT_WAIT)
            .and_then(|mut stream| Frame::Hello(hello(options, own, 0)).write(&mut stream).map(|()| stream));
        streams[rank] = Some(reached.map_err(|error| {
            format!(
                "rank {own} cannot reach rank {rank} at {address}: {error}; ranks connect to each other at any port: let \
                 their hosts do so"
            )
        })?);
    }
    accept(options, control, &arrivals, &mut streams)?;
    Ok(streams)
}

/// A rank that rank 0 sees at a loopback address is on its host, and is to be found where this one finds rank 0.
fn seen_from_here(address: SocketAddr, control: &TcpStream) -> SocketAddr {
    match control.peer_addr() {
        Ok(zero) if address.ip().is_loopback() && !zero.ip().is_loopback() => {
            SocketAddr::new(zero.ip(), address.port())
        }
        _ => address,
    }
}

/// Waits for the ranks above, unless rank 0 says that it is in vain.
fn accept(options: &Options, control: &TcpStream, arrivals: &Arrivals, streams: &mut Streams) -> Result<(), String> {
    let (own, deadline) = (options.rank, Instant::now() + MESH_WAIT);
    loop {
        let missing: Vec<usize> = (own + 1..options.size).filter(|&rank| streams[rank].is_none()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        if ready(control).is_some() {
            return Err(match Frame::read(&mut &*control, LONGEST_GREETING) {
                Ok(Frame::Refused(why)) => why,
                Ok(_) | Err(_) => left(),
            });
        }
        if Instant::now() >= deadline {
            let (who, seconds) = (name(&missing), MESH_WAIT.as_secs());
            return Err(format!("{who} did not connect to rank {own} within {seconds} s of being told where it is"));
        }
        let Some(arrival) = arrivals.next(LOOK) else { continue };
        // Whoever rank 0 has not welcomed is another job's.
        let who = missing.iter().find(|&&rank| hello(options, rank, 0) == arrival.hello);
        if let Some(&rank) = who {
            streams[rank] = Some(arrival.stream);
        }
    }
}
