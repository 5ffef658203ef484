//! Ranks connected by sockets. In these tests their processes are threads.

use std::fmt::Display;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use girih_comm::tcp::{self, Options};
use girih_comm::{CommError, RankFailure};

use crate::by_hand::{Client, SOON, connect, frame, join, options, text};
use crate::laws::Rank;

/// Runs `n` ranks, and checks that all report the same failure. Returns the error of the failing rank itself.
fn on_sockets<T: Send, E: Send + Display>(
    n: usize,
    deadline: Duration,
    work: impl Fn(Rank) -> Result<T, E> + Sync,
) -> Result<Vec<T>, RankFailure<E>> {
    let place = tcp::local_rendezvous().unwrap();
    let results: Vec<_> = thread::scope(|scope| {
        let start = |rank| {
            let (place, work) = (&place, &work);
            scope.spawn(move || {
                let options = Options { deadline, ..options(rank, n, place) };
                tcp::run(&options, |rank| work(Box::new(rank))).unwrap_or_else(|error| panic!("rank {rank}: {error}"))
            })
        };
        let handles: Vec<_> = (0..n).map(start).collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    });
    let mut failures = Vec::new();
    let mut values = Vec::new();
    for result in results {
        match result {
            Ok(value) => values.push(value),
            Err(failure) => failures.push(failure),
        }
    }
    if failures.is_empty() {
        return Ok(values);
    }
    assert!(values.is_empty(), "{} ranks saw no failure", values.len());
    let named: Vec<_> = failures.iter().map(|failure| (failure.rank, &failure.message)).collect();
    assert!(named.iter().all(|name| *name == named[0]), "{named:?}");
    let rank = failures[0].rank;
    Err(failures.swap_remove(rank))
}

mod suite {
    crate::laws::laws!(super::on_sockets, 6);
}

/// Parcels larger than socket buffers, sent in both directions at once and several times in a row.
#[test]
fn large_parcels_both_ways_pass_each_other() {
    let sizes = on_sockets(3, SOON, |comm| {
        let message = vec![comm.rank() as u8; 24 << 20];
        let mut all = Vec::new();
        for _ in 0..2 {
            all = comm.all_gather_bytes(&message)?;
        }
        Ok::<_, CommError>(all.iter().map(|theirs| (theirs.len(), theirs[0], theirs[theirs.len() - 1])).collect())
    });
    let expected: Vec<_> = (0..3).map(|rank| (24 << 20, rank, rank)).collect();
    assert!(sizes.unwrap().into_iter().all(|found: Vec<_>| found == expected));
}

/// Ranks that compute for a long time make no calls. Ranks that end early cause no failure.
#[test]
fn ranks_may_be_busy_and_end_at_different_times() {
    let ends = on_sockets(3, SOON, |comm| {
        thread::sleep(Duration::from_millis(1200) * comm.rank() as u32);
        comm.barrier()?;
        thread::sleep(Duration::from_millis(700) * comm.rank() as u32);
        Ok::<_, CommError>(comm.failure())
    });
    assert_eq!(ends.unwrap(), [None, None, None]);
}

#[test]
fn a_failure_is_known_without_waiting() {
    let seen = Mutex::new(Vec::new());
    let failure = on_sockets(3, SOON, |comm| {
        if comm.rank() == 1 {
            return Err("the disk is full".to_owned());
        }
        let start = Instant::now();
        while comm.failure().is_none() && start.elapsed() < SOON {
            thread::sleep(Duration::from_millis(5));
        }
        seen.lock().unwrap().push(comm.failure().unwrap());
        Ok(())
    })
    .unwrap_err();
    assert_eq!((failure.rank, failure.error.as_deref()), (1, Some("the disk is full")));
    let expected = CommError::RankFailed { rank: 1, message: "the disk is full".to_owned() };
    assert_eq!(seen.into_inner().unwrap(), [expected.clone(), expected]);
}

/// Several ranks fail at once. In any order of arrival, all ranks report the same failure.
#[test]
fn of_several_failures_all_ranks_name_one() {
    for _ in 0..10 {
        let failure = on_sockets(4, SOON, |comm| {
            comm.barrier().map_err(|error| error.to_string())?;
            if comm.rank() > 0 {
                return Err(format!("error of {}", comm.rank()));
            }
            comm.barrier().map_err(|error| error.to_string())
        })
        .unwrap_err();
        assert_eq!(failure.message, format!("error of {}", failure.rank));
    }
}

#[test]
fn a_rank_that_ended_is_not_waited_for() {
    let start = Instant::now();
    let failure = on_sockets(2, SOON, |comm| if comm.rank() == 1 { Ok(()) } else { comm.barrier() });
    let message = failure.unwrap_err().message;
    assert!(message.contains("rank 1 failed: it ended without taking part in barrier"), "{message}");
    assert!(start.elapsed() < SOON / 2);
}

#[test]
fn a_rank_alone_needs_no_place() {
    let alone = tcp::run(&options(0, 1, ""), |comm| {
        let comm: Rank = Box::new(comm);
        comm.barrier().map(|()| comm.size())
    });
    assert_eq!(alone.unwrap().unwrap(), 1);
}

/// Error of each of several processes that fail to start.
fn refusals(all: &[Options]) -> Vec<String> {
    thread::scope(|scope| {
        let start = |options| {
            scope.spawn(move || {
                let started = tcp::run(options, |_| -> Result<(), CommError> { panic!("it has started") });
                started.map(drop).unwrap_err().to_string()
            })
        };
        let handles: Vec<_> = all.iter().map(start).collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    })
}

/// Options of processes with the given ranks and sizes, which meet at one address.
fn group(ranks: impl IntoIterator<Item = (usize, usize)>, seconds: f64) -> Vec<Options> {
    let place = tcp::local_rendezvous().unwrap();
    let start_deadline = Duration::from_secs_f64(seconds);
    ranks.into_iter().map(|(rank, size)| Options { start_deadline, ..options(rank, size, &place) }).collect()
}

fn assert_all_say(told: &[String], what: &str) {
    for (i, said) in told.iter().enumerate() {
        assert!(said.starts_with("ranks cannot start together: ") && said.contains(what), "process {i}: {said}");
    }
}

#[test]
fn processes_that_do_not_belong_together_are_told() {
    let told = refusals(&group([(0, 2), (1, 3)], 5.0));
    assert_all_say(&told, "rank 1 was started as one of 3 ranks, rank 0 as one of 2");
    let told = refusals(&group([(0, 3), (1, 3), (1, 3)], 5.0));
    assert_all_say(&told, "two processes were started as rank 1");
    assert_all_say(&refusals(&group([(4, 4)], 5.0)), "there is no rank 4 among 4: ranks are 0 to 3");
    assert_all_say(&refusals(&group([(0, 0)], 5.0)), "no rank at all");
}

#[test]
fn who_does_not_come_is_named() {
    let told = refusals(&group([(0, 5), (1, 5), (3, 5)], 0.5));
    assert_all_say(&told, "ranks 2, 4 did not come to 127.");
    let told = refusals(&group([(1, 2)], 0.5));
    assert_all_say(&told, "rank 1 did not find rank 0 at 127.");
}

#[test]
fn two_jobs_at_one_place_do_not_mix() {
    let all = group([(0, 2), (1, 2)], 5.0);
    let other = Options { job: "another".to_owned(), ..all[1].clone() };
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            tcp::run(&all[0], |comm| {
                let comm: Rank = Box::new(comm);
                comm.barrier()
            })
        });
        assert_all_say(&refusals(&[other]), "another job meets at this place");
        let second = tcp::run(&all[1], |comm| {
            let comm: Rank = Box::new(comm);
            comm.barrier()
        });
        second.unwrap().unwrap();
        first.join().unwrap().unwrap().unwrap();
    });
}

#[test]
fn places_that_are_none_are_refused() {
    for (place, what) in [
        ("nowhere", "is no HOST:PORT"),
        ("host.invalid:4000", "the host of the rendezvous host.invalid:4000 is unknown"),
    ] {
        assert_all_say(&refusals(&[options(0, 2, place), options(1, 2, place)]), what);
    }
    // Address of no host, reserved for documentation (RFC 5737).
    assert_all_say(&refusals(&[options(0, 2, "192.0.2.1:4000")]), "the address is none of its host");
}

#[test]
fn a_port_of_another_program_is_told() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = taken.local_addr().unwrap().to_string();
    assert_all_say(&refusals(&[options(0, 2, &place)]), "the port is taken by another program");
    thread::scope(|scope| {
        scope.spawn(|| taken.accept().unwrap().0.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
        assert_all_say(&refusals(&[options(1, 2, &place)]), "another program than girih listens at 127.0.0.1");
    });
}

#[test]
fn another_version_is_refused() {
    let all = group([(0, 2)], 5.0);
    thread::scope(|scope| {
        let told = scope.spawn(|| refusals(&all));
        let mut old = connect(&all[0].rendezvous);
        let client = Client { version: "0.0.1".to_owned(), ..Client::new(1, 2) };
        assert_eq!(client.prove(&mut old), Some(true));
        assert_all_say(&told.join().unwrap(), "runs girih 0.0.1, rank 0 runs ");
        let mut answer = Vec::new();
        old.read_to_end(&mut answer).unwrap();
        assert!(String::from_utf8_lossy(&answer).contains("give all ranks the same program"));
    });
}

/// Runs rank 0 with a hand-written rank 1, which runs `after` once the job has started.
fn with_a_stranger(after: impl Fn(TcpStream) + Sync) -> (RankFailure<CommError>, Duration) {
    let all = group([(0, 2)], 10.0);
    thread::scope(|scope| {
        let zero = scope.spawn(|| {
            let outcome = tcp::run(&all[0], |comm| {
                let comm: Rank = Box::new(comm);
                comm.barrier()
            });
            outcome.unwrap().unwrap_err()
        });
        // Clients that connect without a claim do no harm.
        drop(connect(&all[0].rendezvous));
        connect(&all[0].rendezvous).write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let one = join(&all[0].rendezvous);
        let start = Instant::now();
        after(one);
        let failure = zero.join().unwrap();
        (failure, start.elapsed())
    })
}

#[test]
fn garbled_messages_name_the_rank() {
    let long = [b"girih", &[6][..], &u64::MAX.to_le_bytes()].concat();
    let mut changed = frame(5, &[]);
    changed[14] ^= 1;
    for (bytes, what) in [
        (b"complete nonsense, and more".to_vec(), "it sent bytes that no girih sends"),
        (long, "it sent a message of 18446744073709551615 bytes"),
        (frame(6, b"short"), "it sent a message that ends 3 bytes early"),
        (changed, "it sent a message of kind 5 whose checksum is another"),
        (frame(4, b"more"), "it sent a message of kind 4 that says something else"),
        (frame(4, &[]), "it sent a message that has no place after the start"),
        (frame(7, &[&7u64.to_le_bytes()[..], &text("rank 7 of 2")].concat()), "has no place after the start"),
    ] {
        let (failure, _) = with_a_stranger(|mut stream| {
            stream.write_all(&bytes).unwrap();
            // Reads until rank 0 disconnects.
            let _ = stream.read_to_end(&mut Vec::new());
        });
        assert_eq!(failure.rank, 1);
        assert!(failure.message.contains(what), "{}", failure.message);
    }
}

#[test]
fn a_connection_that_ends_without_goodbye_fails_all_at_once() {
    let (failure, took) = with_a_stranger(drop);
    assert_eq!(failure.rank, 1);
    assert!(failure.message.contains("its process ended without a word"), "{}", failure.message);
    assert!(took < Duration::from_secs(1), "{took:?}");
}

/// A host that vanishes closes no connection. Only missing heartbeats reveal it.
#[test]
fn silence_is_noticed() {
    let (failure, took) = with_a_stranger(|stream| {
        thread::sleep(Duration::from_secs(11));
        drop(stream);
    });
    assert_eq!(failure.rank, 1);
    assert!(failure.message.contains("nothing was heard from it for 8 s"), "{} after {took:?}", failure.message);
}
