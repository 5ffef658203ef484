//! Properties of collective operations over any transport. `laws!(run, cases)` is the test suite for ranks that `run`
//! starts.

use girih_comm::Collective;
use girih_compute::prelude::*;
use girih_compute::{Cpu, Dtype};
use girih_graph_format::Matrix;
use proptest::prelude::*;

pub type Rank = Box<dyn Collective<Cpu>>;
pub type Device = <Cpu as Memory>::Matrix;

/// Element `i` of the matrix of rank `rank`: a small integer, so that sums are exact in any storage type.
pub fn value(rank: usize, i: usize) -> f32 {
    ((rank * 7 + i * 3) % 11) as f32 - 5.0
}

pub fn matrix(rank: usize, rows: usize, cols: usize, dtype: Dtype) -> Device {
    let values: Vec<f32> = (0..rows * cols).map(|i| value(rank, i)).collect();
    Cpu::new().upload(&Matrix::new(rows, cols, values).unwrap(), dtype).unwrap()
}

pub fn zeros(rows: usize, cols: usize, dtype: Dtype) -> Device {
    matrix(0, rows, cols, dtype)
}

pub fn values(matrix: &Device) -> Vec<f32> {
    Cpu::new().download(matrix).unwrap().data().to_vec()
}

pub fn dtype() -> impl Strategy<Value = Dtype> {
    prop_oneof![Just(Dtype::F32), Just(Dtype::Bf16)]
}

/// Number of rows of each rank's row block.
pub fn pieces() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0..5usize, 1..9)
}

macro_rules! laws {
    ($run:path, $cases:literal) => {
        use std::time::{Duration, Instant};

        use girih_comm::{CommError, Traffic};
        use girih_compute::Dtype;
        use proptest::prelude::*;
        use $run as run;

        use crate::laws::*;

        const SOON: Duration = Duration::from_secs(20);

        fn on_ranks<T: Send>(n: usize, work: impl Fn(Rank) -> Result<T, CommError> + Sync) -> Vec<T> {
            run(n, SOON, work).unwrap_or_else(|failure| panic!("{}", failure.message))
        }

        proptest! {
            #![proptest_config(ProptestConfig { cases: $cases, ..ProptestConfig::default() })]

            #[test]
            fn a_broadcast_makes_all_equal_the_root(n in 1..9usize, root in 0..9usize, rows in 0..5usize, dtype in dtype()) {
                let root = root % n;
                let results = on_ranks(n, |comm| {
                    let mut mine = matrix(comm.rank(), rows, 3, dtype);
                    comm.broadcast(root, &mut mine)?;
                    Ok((values(&mine), comm.traffic()))
                });
                let bytes = (rows * 3 * dtype.n_bytes()) as u64;
                for (rank, (found, traffic)) in results.into_iter().enumerate() {
                    prop_assert_eq!(found, values(&matrix(root, rows, 3, dtype)));
                    let sent = if rank == root { (n as u64 - 1) * bytes } else { 0 };
                    prop_assert_eq!(traffic, Traffic { sent, received: if rank == root { 0 } else { bytes } });
                }
            }

            #[test]
            fn sums_are_sums_and_the_same_everywhere(n in 1..9usize, rows in 0..6usize, cols in 0..4usize, dtype in dtype()) {
                let results = on_ranks(n, |comm| {
                    let mut mine = matrix(comm.rank(), rows, cols, dtype);
                    comm.all_reduce(&mut mine)?;
                    Ok(values(&mine))
                });
                let expected: Vec<f32> = (0..rows * cols).map(|i| (0..n).map(|rank| value(rank, i)).sum()).collect();
                for found in results {
                    prop_assert_eq!(&found, &expected);
                }
            }

            #[test]
            fn scattered_sums_gathered_are_an_all_reduce(rows in pieces(), dtype in dtype()) {
                let (n, all) = (rows.len(), rows.iter().sum());
                let results = on_ranks(n, |comm| {
                    let input = matrix(comm.rank(), all, 2, dtype);
                    let mut piece = zeros(rows[comm.rank()], 2, dtype);
                    comm.reduce_scatter(&rows, &input, &mut piece)?;
                    let mut gathered = zeros(all, 2, dtype);
                    comm.all_gather(&rows, &piece, &mut gathered)?;
                    let mut others = zeros(all - rows[comm.rank()], 2, dtype);
                    comm.gather_others(&rows, &piece, &mut others)?;
                    let mut reduced = input;
                    comm.all_reduce(&mut reduced)?;
                    Ok((values(&gathered), values(&others), values(&reduced)))
                });
                for (rank, (gathered, others, reduced)) in results.into_iter().enumerate() {
                    let (before, own) = (rows[..rank].iter().sum::<usize>(), rows[rank]);
                    let without_own = [&reduced[..2 * before], &reduced[2 * (before + own)..]].concat();
                    prop_assert_eq!(&gathered, &reduced);
                    prop_assert_eq!(others, without_own);
                }
            }

            /// Every row block reaches its destination and no other rank. Sending the rows back restores the input.
            #[test]
            fn all_to_all_is_a_transpose(counts in prop::collection::vec(prop::collection::vec(0..4usize, 5), 5), n in 1..6usize) {
                let sent = |rank: usize| counts[rank][..n].to_vec();
                let received = |rank: usize| -> Vec<usize> { (0..n).map(|from| counts[from][rank]).collect() };
                let results = on_ranks(n, |comm| {
                    let (out_rows, in_rows) = (sent(comm.rank()), received(comm.rank()));
                    let outgoing = matrix(comm.rank(), out_rows.iter().sum(), 2, Dtype::F32);
                    let mut incoming = zeros(in_rows.iter().sum(), 2, Dtype::F32);
                    comm.all_to_all(&out_rows, &outgoing, &in_rows, &mut incoming)?;
                    let mut back = zeros(out_rows.iter().sum(), 2, Dtype::F32);
                    comm.all_to_all(&in_rows, &incoming, &out_rows, &mut back)?;
                    let messages = out_rows.iter().map(|&len| vec![comm.rank() as u8; len].into()).collect();
                    let messages: Vec<u8> = comm.all_to_all_bytes(messages)?.iter().flat_map(|m| m.to_vec()).collect();
                    let expected: Vec<u8> = in_rows.iter().enumerate().flat_map(|(from, &len)| vec![from as u8; len]).collect();
                    Ok((values(&incoming), values(&back) == values(&outgoing) && messages == expected))
                });
                for (rank, (incoming, returned)) in results.into_iter().enumerate() {
                    prop_assert!(returned);
                    let mut expected = Vec::new();
                    for from in 0..n {
                        let first: usize = counts[from][..rank].iter().sum();
                        expected.extend((2 * first..2 * (first + counts[from][rank])).map(|i| value(from, i)));
                    }
                    prop_assert_eq!(incoming, expected);
                }
            }

            #[test]
            fn groups_are_by_colour_and_in_the_order_of_keys(n in 1..9usize, n_colours in 1..4usize) {
                let results = on_ranks(n, |comm| {
                    let (colour, key) = (comm.rank() % n_colours, n - comm.rank());
                    let group = comm.split(colour, key)?;
                    let inner = group.split(0, group.rank())?;
                    let members = inner.all_gather_bytes(&[comm.rank() as u8])?;
                    Ok((group.rank(), members.concat()))
                });
                for (rank, (place, members)) in results.into_iter().enumerate() {
                    let expected: Vec<u8> = (0..n as u8).rev().filter(|other| *other as usize % n_colours == rank % n_colours).collect();
                    prop_assert_eq!(&members, &expected);
                    prop_assert_eq!(members[place] as usize, rank);
                }
            }
        }

        #[test]
        fn a_rank_that_fails_is_named_to_all_and_nobody_waits() {
            let start = Instant::now();
            let failure = run(4, SOON, |comm| {
                if comm.rank() == 2 {
                    return Err("the disk is full".to_owned());
                }
                comm.barrier().map_err(|error| error.to_string())
            })
            .unwrap_err();
            assert_eq!((failure.rank, failure.error.as_deref()), (2, Some("the disk is full")));
            assert!(start.elapsed() < Duration::from_secs(5), "it took {:?}", start.elapsed());
        }

        #[test]
        fn a_rank_that_panics_is_named() {
            let failure = run(3, SOON, |comm| {
                assert!(comm.rank() != 1, "row 7 is missing");
                comm.barrier()
            })
            .unwrap_err();
            assert_eq!((failure.rank, failure.error), (1, None));
            assert!(failure.message.contains("row 7 is missing"), "{}", failure.message);
        }

        #[test]
        fn a_rank_that_does_not_come_is_waited_for_until_the_deadline() {
            let deadline = Duration::from_millis(200);
            let failure = run(3, deadline, |comm| {
                if comm.rank() == 1 {
                    std::thread::sleep(Duration::from_secs(2));
                }
                comm.barrier()
            })
            .unwrap_err();
            assert!(failure.message.contains("rank 1 did not take part in barrier"), "{}", failure.message);
        }

        #[test]
        fn a_deadline_beyond_all_clocks_is_none() {
            let ranks = run(2, Duration::MAX, |comm| {
                comm.barrier().map(|()| comm.rank())
            });
            assert_eq!(ranks.unwrap(), [0, 1]);
        }

        #[test]
        fn ranks_that_call_different_things_are_told() {
            let failure = run(2, SOON, |comm| {
                let mut mine = zeros(2, 2 + comm.rank(), Dtype::F32);
                if comm.rank() == 0 { comm.broadcast(0, &mut mine) } else { comm.all_reduce(&mut mine) }
            })
            .unwrap_err();
            assert!(failure.message.contains("broadcast") && failure.message.contains("all-reduce"), "{}", failure.message);
            let failure = run(2, SOON, |comm| {
                comm.all_reduce(&mut zeros(2, 2 + comm.rank(), Dtype::F32))
            })
            .unwrap_err();
            assert!(matches!(failure.error, Some(CommError::Mismatch { .. })), "{}", failure.message);
        }

        #[test]
        fn pieces_that_do_not_fit_are_refused() {
            let failure = run(2, SOON, |comm| {
                comm.reduce_scatter(&[1, 2], &zeros(4, 1, Dtype::F32), &mut zeros(1, 1, Dtype::F32))
            })
            .unwrap_err();
            assert!(failure.message.contains("reduce-scatter: pieces of [1, 2] rows"), "{}", failure.message);
        }
    };
}
pub(crate) use laws;
