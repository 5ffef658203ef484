//! Memory and threads of a rank under 1 200 connections of unknown clients. A separate test program, so that its
//! memory is its own.

#![cfg(target_os = "linux")]

mod by_hand;

use std::fs;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use by_hand::{connect, frame, options};
use girih_comm::tcp;
use girih_comm::{CommError, Transport};

const STRANGERS: usize = 1200;

/// Largest memory that the connections may take, in KiB.
const MOST_KIB: u64 = 4 << 10;

/// Number of a field of `/proc/self/status`.
fn status(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_flood_of_connections_costs_next_to_nothing_and_the_job_starts() {
    let place = tcp::local_rendezvous().unwrap();
    let work = |rank: usize| {
        let outcome = tcp::run(&options(rank, 2, &place), |world| world.transport().failure().map_or(Ok(()), Err));
        outcome.unwrap().map_err(|failure: girih_comm::RankFailure<CommError>| failure.message)
    };
    thread::scope(|scope| {
        let zero = scope.spawn(|| work(0));
        // Every second client begins a message of a megabyte.
        let begun = frame(0, &[0; 1 << 20])[..700 << 10].to_vec();
        let mut open = vec![connect(&place)];
        let (rss, threads) = (status("VmRSS"), status("Threads"));
        let start = Instant::now();
        for i in 1..STRANGERS {
            let stream = connect(&place);
            stream.set_nonblocking(true).unwrap();
            if i % 2 == 0 {
                // Writes as much as the system accepts, or nothing if the client was refused already.
                let _ = (&stream).write(&begun);
            }
            open.push(stream);
        }
        thread::sleep(Duration::from_millis(200));
        let (taken, more_threads) = (status("VmRSS").saturating_sub(rss), status("Threads").saturating_sub(threads));
        let connecting = start.elapsed();
        let one = work(1);
        println!(
            "{STRANGERS} connections: {taken} KiB, {more_threads} threads, {connecting:?}; started {:?}",
            start.elapsed()
        );
        assert_eq!((zero.join().unwrap(), one), (Ok(()), Ok(())));
        // AddressSanitizer keeps memory of its own for each allocation.
        let has_own_memory = std::env::var_os("ASAN_OPTIONS").is_some();
        assert!(has_own_memory || taken <= MOST_KIB, "{taken} KiB for {STRANGERS} connections, at most {MOST_KIB}");
        assert_eq!(more_threads, 0);
    });
}
