//! [`mesh`]: connects each pair of ranks, after rank 0 has sent their addresses.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::arrivals::{Arrivals, ready};
use super::client::{Timed, Unmet, prove};
use super::frame::{Frame, LONGEST_GREETING, VERSION};
use super::options::{LOOK, Options, RETRY, SILENCE, Streams, name};
use super::place::connect;
use super::proof::{Claim, Meeting, Purpose};

/// Time limit for connecting all ranks, once all have arrived.
pub(super) const MESH_WAIT: Duration = Duration::from_secs(30);

/// Time limit for one attempt to connect to a rank.
const CONNECT_WAIT: Duration = Duration::from_secs(10);

/// Connects to the lower ranks, accepts the connections of higher ranks, and returns when all ranks are ready.
///
/// # Errors
/// Reason why the job does not start; rank 0 sends it to the other ranks.
pub(super) fn mesh(
    options: &Options,
    mut control: TcpStream,
    listener: TcpListener,
    addresses: &[SocketAddr],
) -> Result<Streams, String> {
    let mut streams = match connect_all(options, &control, listener, addresses) {
        Ok(streams) => streams,
        Err(why) => {
            // A write error is ignored: rank 0 itself may have failed.
            let _ = Frame::Refused(why.clone()).write(&mut control);
            return Err(why);
        }
    };
    // A rank that does not become ready reports it before this wait ends.
    let wait = MESH_WAIT + SILENCE + SILENCE;
    Frame::Ready.write(&mut control).map_err(|_| left())?;
    match Frame::read(&mut Timed { stream: &control, until: Instant::now() + wait, silence: wait }, LONGEST_GREETING) {
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
    let (own, until) = (options.rank, Instant::now() + MESH_WAIT);
    let meeting = Meeting { options, purpose: Purpose::Mesh, listener: own };
    let mut arrivals =
        Arrivals::new(listener, meeting).map_err(|error| format!("rank {own} cannot wait for others: {error}"))?;
    let mut streams: Streams = (0..options.size).map(|_| None).collect();
    for rank in 1..own {
        streams[rank] = Some(reach(options, control, (rank, addresses[rank - 1]), until)?);
    }
    accept(options, control, &mut arrivals, &mut streams, until)?;
    Ok(streams)
}

/// Connects to a lower rank. That rank answers once it is connected to all ranks below itself.
fn reach(
    options: &Options,
    control: &TcpStream,
    (rank, address): (usize, SocketAddr),
    until: Instant,
) -> Result<TcpStream, String> {
    let meeting = Meeting { options, purpose: Purpose::Mesh, listener: rank };
    loop {
        let stream = connect(&[address], CONNECT_WAIT).map_err(|error| {
            let own = options.rank;
            format!(
                "rank {own} cannot reach rank {rank} at {address}: {error}; ranks connect to each other at any port: let \
                 their hosts do so"
            )
        })?;
        match prove(&stream, &meeting, 0, until, || news(control)) {
            Ok(()) => return Ok(stream),
            // Too many simultaneous clients may have displaced this one.
            Err(Unmet::Left) if Instant::now() < until => thread::sleep(RETRY),
            Err(Unmet::Left | Unmet::Silent) => {
                let seconds = MESH_WAIT.as_secs();
                return Err(format!(
                    "rank {rank} at {address} did not answer within {seconds} s: it hangs; see its log"
                ));
            }
            Err(unmet) => return Err(unmet.describe(&format!("the place of rank {rank}, {address}"))),
        }
        news(control)?;
    }
}

/// Checks whether rank 0 has cancelled the start.
///
/// # Errors
/// The reason of rank 0.
fn news(control: &TcpStream) -> Result<(), String> {
    if ready(control).is_none() {
        return Ok(());
    }
    let mut input = Timed { stream: control, until: Instant::now() + SILENCE, silence: SILENCE };
    Err(match Frame::read(&mut input, LONGEST_GREETING) {
        Ok(Frame::Refused(why)) => why,
        Ok(_) | Err(_) => left(),
    })
}

/// Accepts the connections of higher ranks, unless rank 0 cancels the start.
fn accept(
    options: &Options,
    control: &TcpStream,
    arrivals: &mut Arrivals,
    streams: &mut Streams,
    until: Instant,
) -> Result<(), String> {
    let own = options.rank;
    loop {
        let missing: Vec<usize> = (own + 1..options.size).filter(|&rank| streams[rank].is_none()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        news(control)?;
        if Instant::now() >= until {
            let (who, seconds, turned_away) = (name(&missing), MESH_WAIT.as_secs(), arrivals.turned_away());
            return Err(format!(
                "{who} did not connect to rank {own} within {seconds} s of being told where it is{turned_away}"
            ));
        }
        let Some(arrival) = arrivals.next(LOOK) else { continue };
        // A rank that connects again has lost its first connection.
        let Claim { version, size, rank, .. } = &arrival.claim;
        let is_of_this_run = version == VERSION && *size == options.size as u64;
        match usize::try_from(*rank).ok().filter(|rank| is_of_this_run && (own + 1..options.size).contains(rank)) {
            Some(rank) => streams[rank] = Some(arrival.stream),
            None => arrivals.turn_away(arrival),
        }
    }
}
