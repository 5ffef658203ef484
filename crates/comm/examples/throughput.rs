//! Throughput of parcels between two ranks over loopback: `cargo run --release -p girih-comm --example throughput`.
//!
//! Each number is the median of several rounds after a warm-up round: parcels one way, parcels both ways, and the
//! time of an empty exchange.

use std::thread;
use std::time::{Duration, Instant};

use girih_comm::tcp::{self, Options};
use girih_comm::{CommError, Parcel, Secret, Transport, all_to_all};

const PARCEL_MIB: usize = 64;
const ROUNDS: usize = 9;
const PARCELS: usize = 8;
const EMPTY: usize = 2000;

/// Median seconds of a round. In a round, rank `i` sends a parcel of `sizes[i]` bytes `n` times.
fn measure(rank: &impl Transport, sizes: [usize; 2], n: usize) -> Result<f64, CommError> {
    let own = Parcel::from(vec![7; sizes[rank.rank()]]);
    let mut seconds = Vec::new();
    for _ in 0..=ROUNDS {
        let start = Instant::now();
        for _ in 0..n {
            all_to_all(rank, "throughput", vec![own.clone(); 2])?;
        }
        seconds.push(start.elapsed().as_secs_f64());
    }
    let rounds = &mut seconds[1..];
    rounds.sort_by(f64::total_cmp);
    Ok(rounds[rounds.len() / 2])
}

fn work(rank: &impl Transport) -> Result<(), CommError> {
    let (bytes, gib) = (PARCEL_MIB << 20, (PARCELS * PARCEL_MIB) as f64 / 1024.0);
    let one_way = measure(rank, [bytes, 0], PARCELS)?;
    let both_ways = measure(rank, [bytes, bytes], PARCELS)?;
    let empty = measure(rank, [0, 0], EMPTY)?;
    if rank.rank() == 0 {
        println!("one way    {:.2} GiB/s", gib / one_way);
        println!("both ways  {:.2} GiB/s each", gib / both_ways);
        println!("empty      {:.1} us", 1e6 * empty / EMPTY as f64);
    }
    Ok(())
}

fn main() {
    let place = tcp::local_rendezvous().expect("a free port");
    let wait = Duration::from_secs(60);
    thread::scope(|scope| {
        for rank in 0..2 {
            let (rendezvous, job, secret) = (place.clone(), "throughput".to_owned(), Secret::default());
            let options = Options { rank, size: 2, rendezvous, job, secret, start_deadline: wait, deadline: wait };
            scope.spawn(move || {
                let outcome = tcp::run(&options, |rank| work(rank.transport()));
                outcome.expect("ranks meet").unwrap_or_else(|failure| panic!("{}", failure.message));
            });
        }
    });
}
