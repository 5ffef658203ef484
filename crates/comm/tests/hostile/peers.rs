//! A rank with the right secret that breaks the protocol. The job ends with a message that names it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use girih_comm::tcp::{self, Options};
use girih_comm::{Collective, CommError, Parcel, RankFailure, Transport};
use girih_compute::prelude::*;
use girih_compute::{Cpu, Dtype};
use girih_graph_format::Matrix;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::by_hand::{BEAT, PARCEL, PAUSE, RESUME, frame, join, options, parcel, read_until};

type Rank = Box<dyn Collective<Cpu>>;

const DEADLINE: Duration = Duration::from_secs(3);

/// Result of rank 0, which runs `work` against a hand-written rank 1.
fn against(
    work: impl FnOnce(tcp::TcpRank) -> Result<(), String> + Send,
    hostile: impl FnOnce(TcpStream),
) -> Result<(), String> {
    let place = tcp::local_rendezvous().unwrap();
    let zero = Options { deadline: DEADLINE, ..options(0, 2, &place) };
    thread::scope(|scope| {
        let said = |failure: RankFailure<String>| match failure.rank {
            0 => failure.message,
            rank => format!("rank {rank} failed: {}", failure.message),
        };
        let zero = scope.spawn(move || tcp::run(&zero, work).unwrap().map_err(said));
        hostile(join(&place));
        zero.join().expect("no rank panics")
    })
}

/// Sends frames, and reads until the peer disconnects.
fn say(bytes: &[u8]) -> impl FnOnce(TcpStream) {
    let bytes = bytes.to_vec();
    move |mut stream| {
        // The peer may disconnect during the write.
        let _ = stream.write_all(&bytes);
        let _ = stream.read_to_end(&mut Vec::new());
    }
}

/// Error of rank 0 when rank 1 answers its only exchange with these bytes.
fn answered(call: &str, bytes: &[u8], work: fn(Rank) -> Result<(), CommError>) -> Result<(), String> {
    let work = move |rank: tcp::TcpRank| work(Box::new(rank)).map_err(|error| error.to_string());
    against(work, say(&parcel(&[], 0, call, bytes)))
}

fn ones(rows: usize) -> Result<<Cpu as Memory>::Matrix, CommError> {
    let ones = Matrix::new(rows, 2, vec![1.0; 2 * rows]).unwrap();
    Ok(Cpu::new().upload(&ones, Dtype::F32).unwrap())
}

/// Call, expected bytes, and code of an operation of two ranks as rank 0 makes it. Each rank has one or two rows.
type Operation = (&'static str, usize, fn(Rank) -> Result<(), CommError>);

const OPERATIONS: [Operation; 7] = [
    ("broadcast (1, 2)", 16, |rank| rank.broadcast(1, &mut ones(2)?)),
    ("all-reduce (4, 2)", 8, |rank| rank.all_reduce(&mut ones(2)?)),
    ("reduce-scatter (2, 2)", 8, |rank| rank.reduce_scatter(&[1, 1], &ones(2)?, &mut ones(1)?)),
    ("all-gather (2, 2)", 8, |rank| rank.all_gather(&[1, 1], &ones(1)?, &mut ones(2)?)),
    ("gather from others (2, 2)", 8, |rank| rank.gather_others(&[1, 1], &ones(1)?, &mut ones(1)?)),
    ("all-to-all (0, 2)", 8, |rank| rank.all_to_all(&[1, 1], &ones(2)?, &[1, 1], &mut ones(2)?)),
    ("split (0, 0)", 16, |rank| rank.split(0, 0).map(drop)),
];

#[test]
fn malformed_parcels_of_every_operation_name_the_rank() {
    for (call, n_bytes, work) in OPERATIONS {
        for n in [0, 1, n_bytes - 1, n_bytes + 1, 4 * n_bytes] {
            let said = answered(call, &vec![0xff; n], work).unwrap_err();
            let name = call.split(" (").next().unwrap();
            assert!(said.starts_with(&format!("rank 1 sent a malformed message ({name})")), "{call}, {n}: {said}");
        }
    }
}

/// Parcels of another call, exchange or group, and duplicates.
#[test]
fn parcels_out_of_place_name_the_rank() {
    let barrier = |rank: tcp::TcpRank| {
        let rank: Rank = Box::new(rank);
        rank.barrier().and_then(|()| rank.barrier()).map_err(|error| error.to_string())
    };
    let first = parcel(&[], 0, "barrier (0, 0)", &[]);
    for (bytes, what) in [
        (parcel(&[], 0, "broadcast (0, 0)", &[]), "rank 1 calls broadcast (0, 0) where rank 0 calls barrier (0, 0)"),
        (
            parcel(&[], 9, "barrier (0, 0)", &[]),
            "rank 1 failed: it sent a parcel for exchange 9, before this rank begins",
        ),
        (parcel(&[], u64::MAX, "", &[]), "rank 1 failed: it sent a parcel for exchange 18446744073709551615"),
        ([&first[..], &first].concat(), "rank 1 failed: it sent two parcels for one exchange"),
        (parcel(&[7; 2000], 0, "", &[]), "rank 1 failed: it sent a parcel of a group that 2000 numbers name"),
        (parcel(&[0, 0], 0, "", &[]), "rank 1 did not take part in barrier within 3 s"),
        (parcel(&[5, 1, 5, 1], 0, "", &[]), "rank 1 did not take part in barrier within 3 s"),
    ] {
        let said = against(barrier, say(&bytes)).unwrap_err();
        assert!(said.contains(what), "{said}");
    }
}

/// Parcels for unknown groups, a hundred thousand of them, are discarded without a cost.
#[test]
fn parcels_of_no_group_are_passed_over() {
    let barrier = |rank: tcp::TcpRank| {
        let rank: Rank = Box::new(rank);
        rank.barrier().map_err(|error| error.to_string())
    };
    let outcome = against(barrier, |mut stream| {
        let many: Vec<u8> = (0..1000).flat_map(|n| parcel(&[7, n], n, "nothing", &[1; 1000])).collect();
        for _ in 0..100 {
            stream.write_all(&many).unwrap();
        }
        stream.write_all(&parcel(&[], 0, "barrier (0, 0)", &[])).unwrap();
        stream.write_all(&frame(8, &[])).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    assert_eq!(outcome, Ok(()));
}

/// A rank that pauses others gets no parcels, but gets heartbeats. It delays no rank beyond the deadline.
#[test]
fn a_rank_that_pauses_others_is_late() {
    let start = Instant::now();
    let work = |rank: tcp::TcpRank| {
        let rank: Rank = Box::new(rank);
        thread::sleep(Duration::from_millis(500));
        rank.barrier().and_then(|()| rank.barrier()).map_err(|error| error.to_string())
    };
    let mut heard = Vec::new();
    let said = against(work, |mut stream| {
        stream.write_all(&[frame(PAUSE, &[]), parcel(&[], 0, "barrier (0, 0)", &[])].concat()).unwrap();
        let _ = stream.read_to_end(&mut heard);
    });
    assert!(said.unwrap_err().contains("rank 1 did not take part in barrier"));
    assert!(start.elapsed() < DEADLINE + Duration::from_secs(5));
    let is_told = |kind: u8| heard.windows(6).any(|bytes| bytes[..5] == *b"girih" && bytes[5] == kind);
    assert!(is_told(BEAT) && is_told(7) && !is_told(6));

    let work = |rank: tcp::TcpRank| {
        let rank: Rank = Box::new(rank);
        rank.barrier().and_then(|()| rank.barrier()).map_err(|error| error.to_string())
    };
    let outcome = against(work, |mut stream| {
        let first = parcel(&[], 0, "barrier (0, 0)", &[]);
        stream.write_all(&[frame(PAUSE, &[]), frame(RESUME, &[]), first].concat()).unwrap();
        read_until(&mut stream, PARCEL);
        stream.write_all(&[parcel(&[], 1, "barrier (0, 0)", &[]), frame(8, &[])].concat()).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    assert_eq!(outcome, Ok(()));
}

/// Arbitrary bytes in any exchange, and arbitrary frames, give an error that names the rank.
#[test]
fn random_messages_name_the_rank() {
    let messages = (any::<u8>(), prop::collection::vec(any::<u8>(), 0..64), any::<bool>());
    let mut runner = TestRunner::new(ProptestConfig { cases: 40, ..ProptestConfig::default() });
    let outcome = runner.run(&messages, |(kind, bytes, is_parcel)| {
        let (call, n_bytes, work) = OPERATIONS[kind as usize % OPERATIONS.len()];
        // Matching bytes are left out: they would make rank 0 wait for more until the deadline.
        prop_assume!(bytes.len() != n_bytes && (is_parcel || kind > 10 || kind == 6));
        let outcome = match is_parcel {
            true => answered(call, &bytes, work),
            false => against(|rank| work(Box::new(rank)).map_err(|error| error.to_string()), say(&frame(kind, &bytes))),
        };
        let said = outcome.unwrap_err();
        prop_assert!(said.contains("rank 1"), "{}", said);
        Ok(())
    });
    outcome.unwrap();
}

/// Stated lengths beyond all memory cause no allocation.
#[test]
fn declared_lengths_reserve_nothing() {
    for len in [1 << 35, 1 << 63, u64::MAX] {
        let head = [&b"girih\x06"[..], &len.to_le_bytes(), &[0; 8], &[0; 8], &[0; 8], b"few bytes"].concat();
        let said = against(
            |rank: tcp::TcpRank| {
                let all = vec![Parcel::default(); 2];
                girih_comm::all_to_all(rank.transport(), "a test", all).map(drop).map_err(|error| error.to_string())
            },
            |mut stream| {
                stream.write_all(&head).unwrap();
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let _ = stream.read_to_end(&mut Vec::new());
            },
        );
        let said = said.unwrap_err();
        assert!(said.starts_with("rank 1 failed: "), "{said}");
    }
    let failure = against(
        |rank| rank.transport().failure().map_or(Ok(()), |error| Err(error.to_string())),
        |mut stream| {
            stream.write_all(&frame(8, &[])).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        },
    );
    assert_eq!(failure, Ok(()));
}
