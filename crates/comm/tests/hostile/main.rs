//! Unknown clients at every port that a job opens. They have no effect.

#[path = "../by_hand/mod.rs"]
mod by_hand;
mod peers;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use by_hand::{
    BEAT, Client, GO, GOODBYE, GREETING, KEY, READY, SOON, WELCOME, addresses, connect, frame, join, listener, options,
    read_until, text, welcome,
};
use girih_comm::tcp::{self, Options, TcpRank};
use girih_comm::{Collective, CommError};
use girih_compute::Cpu;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

/// Runs one rank with a barrier, and returns its error message.
fn work(options: &Options) -> Result<(), String> {
    let outcome = tcp::run(options, barrier);
    outcome.map_err(|error| error.to_string())?.map_err(|failure| failure.message)
}

fn barrier(rank: TcpRank) -> Result<(), CommError> {
    let rank: Box<dyn Collective<Cpu>> = Box::new(rank);
    rank.barrier()
}

/// Clients that fail to authenticate in different ways. Their connections stay open until the result is dropped.
fn attack(place: &str, purpose: u8, listener: u64) -> Vec<TcpStream> {
    let known = |rank, size| Client { purpose, listener, ..Client::new(rank, size) };
    let stranger = |rank, size| Client { key: [1; 32], ..known(rank, size) };
    let mut open = Vec::new();
    let other_version = frame(0, &[text("0.0.1"), b"who knows".to_vec()].concat());
    let huge = [b"girih", &[6][..], &u64::MAX.to_le_bytes()].concat();
    for bytes in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        other_version,
        huge,
        b"girihtcp\x09\0\0\0 and whatever follows".to_vec(),
        frame(BEAT, &[]).repeat(1000),
        known(1, 3).claim(&[0; GREETING]),
        vec![0; 1 << 20],
        b"g".to_vec(),
        Vec::new(),
    ] {
        let mut stream = connect(place);
        // The listener may disconnect during the write.
        let _ = stream.write_all(&bytes);
        open.push(stream);
    }
    drop(connect(place));
    // The key, job, purpose or listener is wrong; the claims differ.
    let other_job = Client { job: "another".to_owned(), ..known(2, 3) };
    let other_port = Client { purpose: 1 - purpose, ..known(2, 3) };
    let other_listener = Client { listener: listener + 1, ..known(2, 3) };
    let old = Client { version: "0.0.1".to_owned(), ..stranger(2, 3) };
    let all =
        [stranger(1, 3), stranger(2, 3), stranger(2, 9), stranger(7, 3), old, other_job, other_port, other_listener];
    for client in all {
        let mut stream = connect(place);
        assert_ne!(client.prove(&mut stream), Some(true), "{client:?}");
        open.push(stream);
    }
    open
}

#[test]
fn strangers_before_the_start_and_during_the_run_change_nothing() {
    let place = tcp::local_rendezvous().unwrap();
    let all: Vec<_> = (0..3).map(|rank| options(rank, 3, &place)).collect();
    let (tell, started) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let zero = scope.spawn(|| {
            let (tell, ended) = (tell, ended);
            tcp::run(&all[0], |world| {
                tell.send(()).unwrap();
                // Waits until the ports were tried.
                let _ = ended.recv_timeout(SOON);
                barrier(world)
            })
        });
        let one = scope.spawn(|| work(&all[1]));
        let open = attack(&place, 0, 0);
        let two = scope.spawn(|| work(&all[2]));
        started.recv_timeout(SOON).expect("the job starts");
        assert!(TcpStream::connect(&place).is_err(), "after the start nobody listens");
        end.send(()).unwrap();
        zero.join().unwrap().unwrap().unwrap();
        assert_eq!([one.join().unwrap(), two.join().unwrap()], [Ok(()), Ok(())]);
        drop(open);
    });
}

#[test]
fn strangers_at_the_ports_of_the_mesh_change_nothing() {
    let place = tcp::local_rendezvous().unwrap();
    let idle = |rank| {
        let outcome = tcp::run(&options(rank, 3, &place), |_| Ok::<_, CommError>(()));
        outcome.map_err(|error| error.to_string())?.map_err(|failure| failure.message)
    };
    thread::scope(|scope| {
        let ranks = [scope.spawn(|| idle(0)), scope.spawn(|| idle(1))];
        let mut zero = connect(&place);
        assert_eq!(Client::new(2, 3).prove(&mut zero), Some(true));
        let one = addresses(&read_until(&mut zero, WELCOME)).swap_remove(0);
        let open = attack(&one, 1, 1);
        // This client knows the secret, but is not an awaited rank.
        let mut guest = connect(&one);
        let mesh = |rank| Client { purpose: 1, listener: 1, ..Client::new(rank, 3) };
        assert_eq!(mesh(1).prove(&mut guest), Some(true));
        assert_eq!(guest.read(&mut [0]).unwrap_or(0), 0, "it is let go");
        let mut last = connect(&one);
        assert_eq!(mesh(2).prove(&mut last), Some(true));
        zero.write_all(&frame(READY, &[])).unwrap();
        read_until(&mut zero, GO);
        assert!(TcpStream::connect(&one).is_err(), "after the start nobody listens");
        for stream in [&mut zero, &mut last] {
            stream.write_all(&frame(GOODBYE, &[])).unwrap();
        }
        assert_eq!(ranks.map(|rank| rank.join().unwrap()), [Ok(()), Ok(())]);
        drop(open);
    });
}

/// Arbitrary bytes as the first message, or in place of a proof.
#[test]
fn garbage_of_any_length_changes_nothing() {
    let place = tcp::local_rendezvous().unwrap();
    let [zero, one] = [0, 1].map(|rank| options(rank, 2, &place));
    thread::scope(|scope| {
        let zero = scope.spawn(|| work(&zero));
        let garbage = (any::<bool>(), prop::collection::vec(any::<u8>(), 0..400));
        let mut runner = TestRunner::new(ProptestConfig { cases: 200, ..ProptestConfig::default() });
        let outcome = runner.run(&garbage, |(has_prefix, bytes)| {
            let mut stream = connect(&place);
            let bytes = if has_prefix { [&b"girihtcp\x02\0\0\0"[..], &bytes].concat() } else { bytes };
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let mut said = Vec::new();
            let _ = stream.read_to_end(&mut said);
            // The listener sends at most a greeting and a refusal.
            prop_assert!(said.len() <= GREETING || said[GREETING] == 1);
            Ok(())
        });
        let one = work(&one);
        assert_eq!((zero.join().unwrap(), one), (Ok(()), Ok(())));
        outcome.unwrap();
    });
}

#[test]
fn a_wrong_secret_is_turned_away_and_named_at_the_deadline() {
    let place = tcp::local_rendezvous().unwrap();
    let wait = Duration::from_secs(3);
    let zero = Options { start_deadline: wait, ..options(0, 2, &place) };
    let others = Options { secret: by_hand::secret(&[9; 32]), ..options(1, 2, &place) };
    thread::scope(|scope| {
        let zero = scope.spawn(|| work(&zero));
        for _ in 0..3 {
            let said = work(&others).unwrap_err();
            assert!(said.contains("with another secret") && !said.contains("0909"), "{said}");
        }
        let said = zero.join().unwrap().unwrap_err();
        assert!(said.contains("rank 1 did not come to 127."), "{said}");
        assert!(said.contains("; 3 connections were turned away: another secret"), "{said}");
    });
}

/// A rank with the right secret but wrong settings is told so, and ends the job.
#[test]
fn a_rank_with_the_secret_that_does_not_fit_ends_the_job() {
    let client = Client::new(1, 2);
    for (client, what) in [
        (Client { version: "0.0.1".to_owned(), ..client.clone() }, "runs girih 0.0.1, rank 0 runs"),
        (Client { size: 3, ..client.clone() }, "rank 1 was started as one of 3 ranks, rank 0 as one of 2"),
        (Client { rank: 2, ..client.clone() }, "was started as rank 2 of 2"),
        (Client { rank: 0, ..client }, "two processes were started as rank 0"),
    ] {
        let place = tcp::local_rendezvous().unwrap();
        let zero = options(0, 2, &place);
        thread::scope(|scope| {
            let zero = scope.spawn(|| work(&zero));
            let mut stream = connect(&place);
            assert_eq!(client.prove(&mut stream), Some(true));
            let mut told = Vec::new();
            stream.read_to_end(&mut told).unwrap();
            let said = zero.join().unwrap().unwrap_err();
            assert!(said.contains(what) && String::from_utf8_lossy(&told).contains(what), "{said}");
        });
    }
}

/// Runs rank 1 against a listener that pretends to be rank 0. Returns its error and the time that it took.
fn deceived(seconds: f64, pretend: impl FnOnce(TcpStream) + Send) -> (String, Duration) {
    let (listener, place) = listener();
    let one = Options { start_deadline: Duration::from_secs_f64(seconds), ..options(1, 2, &place) };
    thread::scope(|scope| {
        scope.spawn(|| pretend(listener.accept().unwrap().0));
        let start = Instant::now();
        let said = work(&one).unwrap_err();
        (said, start.elapsed())
    })
}

/// Sends the same bytes repeatedly until the peer disconnects.
fn repeat(stream: &mut TcpStream, bytes: &[u8], pause: u64) {
    let start = Instant::now();
    while start.elapsed() < SOON && stream.write_all(bytes).is_ok() {
        thread::sleep(Duration::from_millis(pause));
    }
}

#[test]
fn a_false_rank_0_holds_nobody_beyond_the_deadline() {
    let beat = frame(BEAT, &[]);
    let (said, took) = deceived(2.0, |mut stream| repeat(&mut stream, &beat, 100));
    assert!(said.contains("another program than girih listens at") && took < Duration::from_secs(2), "{said} {took:?}");

    // The prefix arrives byte by byte.
    let (said, took) = deceived(1.0, |mut stream| {
        let _ = b"girihtcp\x02\0\0\0".iter().all(|byte| {
            thread::sleep(Duration::from_millis(200));
            stream.write_all(&[*byte]).is_ok()
        });
    });
    assert!(said.contains("did not find rank 0") && took < Duration::from_secs(3), "{said} {took:?}");

    let (said, took) = deceived(2.0, |mut stream| {
        let _ = stream.write_all(&[&b"girihtcp\x02\0\0\0"[..], &[4; 32], &[0], &[4; 32]].concat());
        // Waits until the peer disconnects.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    assert!(said.contains("does not know the secret of this job") && took < Duration::from_secs(2), "{said} {took:?}");
}

/// The pretender knows the secret, but sends only heartbeats.
#[test]
fn signs_of_life_extend_no_start() {
    let (said, took) = deceived(1.0, |mut stream| {
        welcome(&mut stream, KEY);
        repeat(&mut stream, &frame(BEAT, &[]), 100);
    });
    assert!(said.contains("not all ranks came within 1 s"), "{said}");
    assert!((Duration::from_secs(1)..Duration::from_secs(5)).contains(&took), "{took:?}");
}

#[test]
fn signs_of_life_extend_no_operation() {
    let place = tcp::local_rendezvous().unwrap();
    let zero = Options { deadline: Duration::from_secs(1), ..options(0, 2, &place) };
    thread::scope(|scope| {
        let zero = scope.spawn(|| (work(&zero), Instant::now()));
        let mut one = join(&place);
        let start = Instant::now();
        repeat(&mut one, &frame(BEAT, &[]), 100);
        let (outcome, ended) = zero.join().unwrap();
        let said = outcome.unwrap_err();
        assert!(said.contains("rank 1 did not take part in barrier within 1 s"), "{said}");
        assert!(ended - start < Duration::from_secs(6), "{:?}", ended - start);
    });
}

#[test]
fn other_hosts_need_a_secret() {
    for place in ["192.0.2.1:4000", "[2001:db8::1]:4000", "0.0.0.0:4000"] {
        for rank in 0..2 {
            let said = work(&Options { secret: girih_comm::Secret::default(), ..options(rank, 2, place) }).unwrap_err();
            for part in [place, "openssl rand -hex 32", "chmod 600", "--secret-file FILE", "GIRIH_SECRET_FILE"] {
                assert!(said.contains(part), "{said}");
            }
        }
        assert!(tcp::require_secret(place, &by_hand::secret(&KEY)).is_ok());
    }
    for place in ["127.0.0.1:4000", "localhost:4000", "[::1]:4000"] {
        assert!(tcp::require_secret(place, &girih_comm::Secret::default()).is_ok());
    }
    assert!(!format!("{:?}", options(0, 2, "a:1")).contains("90, 90"), "secrets are not shown");
}
