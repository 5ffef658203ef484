//! Collectives and exchanges of rows.

use super::*;
use girih_comm::threads::{self, ThreadRank};
use girih_comm::{Collective, GpuTransport, Traffic, Transport};
use girih_compute::prelude::*;
use girih_compute::testing::piece;
use girih_compute::{Cpu, Dtype, Shape};
use girih_graph_format::Matrix;
use girih_kernels::{Cuda, Device};
use girih_planner::measure;
use girih_tests::gpus::{Failure, deadline, gpus, ranks_per_gpu, several};

/// Results of all collective operations on one rank, and its traffic.
fn operations<B: Backend>(
    backend: &B,
    world: &dyn Collective<B>,
    (dtype, cols): (Dtype, usize),
) -> Result<(Vec<Matrix>, Traffic), Failure> {
    let (rank, size) = (world.rank(), world.size());
    // Small integers: sums are exact in any order.
    let filled = |rows: usize, salt: usize| -> Result<B::Matrix, Failure> {
        let values: Vec<f32> = (0..rows * cols).map(|i| ((i * 7 + rank * 3 + salt) % 11) as f32 - 5.0).collect();
        Ok(backend.upload(&Matrix::new(rows, cols, values).expect("as many values"), dtype)?)
    };
    let zeros = |rows: usize| backend.zeros(Shape::new(rows, cols), dtype);
    let mut left = Vec::new();
    let before = world.traffic();

    let mut x = filled(33, 1)?;
    world.broadcast(size - 1, &mut x)?;
    left.push(backend.download(&x)?);

    let mut x = filled(29, 2)?;
    world.all_reduce(&mut x)?;
    left.push(backend.download(&x)?);

    // Uneven row counts; the first is zero.
    let rows: Vec<usize> = (0..size).map(|i| 5 * i).collect();
    let (input, mut out) = (filled(rows.iter().sum(), 3)?, zeros(rows[rank])?);
    world.reduce_scatter(&rows, &input, &mut out)?;
    left.push(backend.download(&out)?);

    let (input, mut out) = (filled(rows[rank], 4)?, zeros(rows.iter().sum())?);
    world.all_gather(&rows, &input, &mut out)?;
    left.push(backend.download(&out)?);
    let mut others = zeros(rows.iter().sum::<usize>() - rows[rank])?;
    world.gather_others(&rows, &input, &mut others)?;
    left.push(backend.download(&others)?);

    let sent: Vec<usize> = (0..size).map(|to| rank + 2 * to).collect();
    let received: Vec<usize> = (0..size).map(|from| from + 2 * rank).collect();
    let (input, mut out) = (filled(sent.iter().sum(), 5)?, zeros(received.iter().sum())?);
    world.all_to_all(&sent, &input, &received, &mut out)?;
    left.push(backend.download(&out)?);

    // Two operations in flight; in the second only one rank contributes rows.
    let alone: Vec<usize> = (0..size).map(|i| if i == 0 { 40 } else { 0 }).collect();
    let (first, second) = (filled(rows[rank], 8)?, filled(alone[rank], 9)?);
    let (mut all, mut one) = (zeros(rows.iter().sum())?, zeros(40)?);
    let begun = [
        world.begin(&mut || world.all_gather(&rows, &first, &mut all))?,
        world.begin(&mut || world.all_gather(&alone, &second, &mut one))?,
    ];
    begun.into_iter().try_for_each(|pending| world.finish(pending))?;
    left.extend([backend.download(&all)?, backend.download(&one)?]);

    // Two groups, in descending order; then each rank alone.
    let group = world.split(rank % 2, size - rank)?;
    let mut x = filled(17, 6)?;
    group.all_reduce(&mut x)?;
    group.broadcast(group.size() - 1, &mut x)?;
    left.push(backend.download(&x)?);
    let alone = world.split(rank, 0)?;
    let (input, mut out) = (filled(3, 7)?, zeros(3)?);
    alone.all_gather(&[3], &input, &mut out)?;
    alone.all_reduce(&mut out)?;
    left.push(backend.download(&out)?);

    let words = world.all_gather_bytes(&[rank as u8; 3])?;
    assert_eq!(words, (0..size).map(|i| vec![i as u8; 3]).collect::<Vec<_>>());
    world.barrier()?;
    let after = world.traffic();
    Ok((left, Traffic { sent: after.sent - before.sent, received: after.received - before.received }))
}

#[test]
fn gpus_exchange_what_cpus_do() {
    let cases = [(Dtype::F32, 47), (Dtype::F32, 64), (Dtype::Bf16, 13)];
    for (transport, case) in piece(transports().into_iter().flat_map(|by| cases.map(|case| (by, case)))) {
        let Some(gpus) = several() else { return };
        let on_host = |world: ThreadRank| operations::<Cpu>(&Cpu::new(), &world, case);
        let expected = threads::run(gpus.len(), deadline(), on_host).expect("ranks on the CPU");
        let on_gpu = |world: ThreadRank| {
            let cuda = &gpus[world.transport().rank()];
            operations(cuda, &*connect(cuda, world, transport)?, case)
        };
        let found =
            threads::run(gpus.len(), deadline(), on_gpu).unwrap_or_else(|failure| panic!("{}", failure.message));
        for (rank, (expected, found)) in expected.iter().zip(&found).enumerate() {
            assert_eq!(expected, found, "rank {rank}, {case:?} by {transport}");
        }
    }
}

/// The default transport is measured once and then reused; a single GPU has no choice.
#[test]
fn the_faster_transport_is_chosen() {
    let Some(n) = several().map(|gpus| gpus.len()) else { return };
    let chosen = |n| measure::transport((&gpus(1)[0], n), || Ok(gpus(n))).expect("GPUs that are measured");
    assert_eq!(chosen(1), GpuTransport::Nccl);
    let seconds = |transport| {
        let figures = measure::figures(&gpus(n), transport).expect("GPUs that are measured");
        println!("{transport}: {figures:?}");
        measure::with_safety_margin(Some(transport), figures.panel_seconds(n, 64 << 20))
    };
    let fastest = match transports().len() {
        2 if seconds(GpuTransport::Peer) < seconds(GpuTransport::Nccl) => GpuTransport::Peer,
        _ => GpuTransport::Nccl,
    };
    assert_eq!(chosen(n), fastest);
}

/// Rows are overwritten as soon as their exchange is finished, on GPUs with unequal load.
#[test]
fn rows_are_read_before_they_are_overwritten() {
    const ROWS: usize = 4096;
    const COLS: usize = 256;
    const ROUNDS: usize = 20;
    for transport in transports() {
        let Some(gpus) = several() else { return };
        let outcome = threads::run(gpus.len(), deadline(), |world| -> Result<(), Failure> {
            let cuda = &gpus[world.transport().rank()];
            let world = connect(cuda, world, transport)?;
            let (rank, size) = (world.rank(), world.size());
            let filled =
                |value: usize| Matrix::new(ROWS, COLS, vec![value as f32; ROWS * COLS]).expect("as many values");
            let (mut x, ones) = (cuda.upload(&filled(rank), Dtype::F32)?, cuda.upload(&filled(1), Dtype::F32)?);
            let mut rounds = Vec::new();
            for _ in 0..ROUNDS {
                let mut all = cuda.zeros(Shape::new(size * ROWS, COLS), Dtype::F32)?;
                let pending = world.begin(&mut || world.all_gather(&vec![ROWS; size], &x, &mut all))?;
                world.finish(pending)?;
                cuda.add_scaled(1.0, &ones, &mut x)?;
                for _ in 0..8 * rank {
                    cuda.add_scaled(0.0, &ones, &mut x)?;
                }
                rounds.push(all);
            }
            for (round, all) in rounds.iter().enumerate() {
                let found = cuda.download(all)?;
                for (from, rows) in found.data().chunks(ROWS * COLS).enumerate() {
                    let expected = (from + round) as f32;
                    assert!(
                        rows.iter().all(|&x| x == expected),
                        "round {round}, rank {rank} from {from} by {transport}"
                    );
                }
            }
            Ok(())
        });
        outcome.unwrap_or_else(|failure| panic!("{}", failure.message));
    }
}

/// Rows are freed as soon as an exchange is over for their rank, while other ranks may start it later. The driver
/// must not copy from freed memory.
#[test]
fn rows_are_read_before_they_are_freed() {
    const ROWS: usize = 64;
    const COLS: usize = 64;
    const ROUNDS: usize = 500;
    for transport in transports() {
        let Some(gpus) = several() else { return };
        let outcome = threads::run(gpus.len(), deadline(), |world| -> Result<(), Failure> {
            let cuda = &gpus[world.transport().rank()];
            let world = connect(cuda, world, transport)?;
            let mut received = Vec::new();
            for round in 0..ROUNDS {
                let root = round % world.size();
                let filled = Matrix::new(ROWS, COLS, vec![round as f32; ROWS * COLS]).expect("as many values");
                let mut x = match world.rank() == root {
                    true => cuda.upload(&filled, Dtype::F32)?,
                    false => cuda.zeros(Shape::new(ROWS, COLS), Dtype::F32)?,
                };
                world.broadcast(root, &mut x)?;
                if world.rank() != root {
                    received.push((round, x));
                }
            }
            for (round, x) in received {
                let found = cuda.download(&x)?;
                assert!(found.data().iter().all(|&x| x == round as f32), "round {round} by {transport}");
            }
            Ok(())
        });
        outcome.unwrap_or_else(|failure| panic!("{}", failure.message));
    }
}

#[test]
fn ranks_want_a_gpu_each_unless_they_are_asked_to_share() {
    let Some(_) = gpus(1).pop().filter(|_| ranks_per_gpu() == 1) else { return };
    let outcome = threads::run(2, deadline(), |world| -> Result<(), Failure> {
        let cuda = Cuda::new(Device::open(0).expect("the first GPU"));
        connect(&cuda, world, GpuTransport::Nccl)?;
        Ok(())
    });
    let message = outcome.expect_err("both ranks are on one GPU").message;
    assert!(message.contains("ranks 0 and 1 are on the same GPU"), "{message}");
}
