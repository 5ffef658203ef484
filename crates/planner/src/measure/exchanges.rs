//! Measured exchanges between GPUs, and the slowdown of products that overlap with them.

use std::time::Duration;

use girih_comm::threads::{self, ThreadRank};
use girih_comm::{Collective, CommError, GpuTransport, Transport};
use girih_compute::prelude::*;
use girih_compute::{AdamStep, ComputeError, Dtype, Epilogue, Shape, SparseOperand, StepInputs, Transpose};
use girih_graph_format::{Csr, NodeId, Norm};
use girih_kernels::{Cuda, NcclRank};
use girih_partition::LinkRates;
use girih_trainer::distributed::Links;

use super::{COLUMNS, ROWS, shortest};
use crate::PlannerError;

/// Entries per row of the matrix whose product overlaps with an exchange.
const SCATTERED_DEGREE: usize = 32;
/// Upper bound of the slowdown. Larger slowdowns are measurement noise and are clamped.
pub(super) const SLOWDOWN_MAX: f64 = 0.9;
/// Number of calls that are timed together.
const CALLS: usize = 10;
/// Number of steps that a device observes and captures before it replays them without the host.
const STEPS_BEFORE: usize = 5;
/// Timeout of a GPU that waits for another.
const DEADLINE: Duration = Duration::from_secs(60);

/// Measures exchanges between the GPUs, and the slowdown of products that overlap with them.
pub(super) fn links(gpus: &[Cuda], transport: GpuTransport) -> Result<(Links, f64), PlannerError> {
    let measured = threads::run(gpus.len(), DEADLINE, |world: ThreadRank| -> Result<(Links, f64), CommError> {
        let cuda = &gpus[world.transport().rank()];
        let world = NcclRank::connect(cuda, world, DEADLINE, transport)?;
        Ok((links_of(cuda, &*world)?, slowdown_of(cuda, &*world)?))
    });
    let all = measured.map_err(|failure| PlannerError::Measure(failure.message))?;
    Ok(all[0])
}

/// As [`links`], on one rank. All ranks wait for each other, so that their results differ by noise only.
fn links_of(cuda: &Cuda, world: &dyn Collective<Cuda>) -> Result<Links, CommError> {
    let (rank, size) = (world.rank(), world.size());
    let failed = |error: ComputeError| CommError::Library { operation: "measuring links", message: error.to_string() };
    let zeros = |rows: usize| cuda.zeros(Shape::new(rows, COLUMNS), Dtype::F32).map_err(failed);
    // Rates from a small and a large exchange; `share` is the factor from bytes of the matrix to bytes that count.
    let rates =
        |share: f64, exchange: &mut dyn FnMut(usize) -> Result<(), CommError>| -> Result<LinkRates, CommError> {
            let mut times = [0.0; 2];
            for (time, rows) in times.iter_mut().zip(ROWS) {
                *time = seconds_of(cuda, world, &mut || exchange(rows)).map_err(failed)?;
            }
            let bytes = (ROWS[1] - ROWS[0]) as f64 * (COLUMNS * size_of::<f32>()) as f64 * share;
            Ok(LinkRates { latency: times[0], bytes_per_second: bytes / (times[1] - times[0]).max(1e-9) })
        };
    let others = (size - 1) as f64;
    let mut whole = ROWS.iter().map(|&rows| zeros(rows)).collect::<Result<Vec<_>, _>>()?;
    let mut received = ROWS.iter().map(|&rows| zeros(rows)).collect::<Result<Vec<_>, _>>()?;
    let all = ROWS.iter().map(|&rows| zeros(rows * size)).collect::<Result<Vec<_>, _>>()?;
    let mut gathered = ROWS.iter().map(|&rows| zeros(rows * (size - 1))).collect::<Result<Vec<_>, _>>()?;
    let mut more = ROWS.iter().map(|&rows| zeros(rows * size)).collect::<Result<Vec<_>, _>>()?;
    let at = |rows: usize| usize::from(rows == ROWS[1]);
    let pieces = |rows: usize| vec![rows; size];
    Ok(Links {
        broadcast: rates(1.0, &mut |rows| world.broadcast(0, &mut whole[at(rows)]))?,
        all_reduce: rates(2.0 * others / size as f64, &mut |rows| world.all_reduce(&mut whole[at(rows)]))?,
        all_gather: rates(others, &mut |rows| {
            world.gather_others(&pieces(rows), &whole[at(rows)], &mut gathered[at(rows)])
        })?,
        reduce_scatter: rates(others, &mut |rows| {
            world.reduce_scatter(&pieces(rows), &all[at(rows)], &mut whole[at(rows)])
        })?,
        all_to_all: rates(others, &mut |rows| {
            world.all_to_all(&pieces(rows), &all[at(rows)], &pieces(rows), &mut more[at(rows)])
        })?,
        one_to_one: rates(1.0, &mut |rows| {
            let piece_of = |member: usize| (0..size).map(|i| if i == member { rows } else { 0 }).collect::<Vec<_>>();
            let (next, previous) = (piece_of((rank + 1) % size), piece_of((rank + size - 1) % size));
            world.all_to_all(&next, &whole[at(rows)], &previous, &mut received[at(rows)])
        })?,
    })
}

/// Share of its speed that a GPU loses in sparse products while it exchanges. Computed from the times of the products
/// alone, the exchange alone, and both, as [`Network::slowdown`](girih_trainer::distributed::Network::slowdown)
/// defines it.
fn slowdown_of(cuda: &Cuda, world: &dyn Collective<Cuda>) -> Result<f64, CommError> {
    let size = world.size();
    let failed = |error: ComputeError| CommError::Library { operation: "measuring links", message: error.to_string() };
    let zeros = |rows: usize| cuda.zeros(Shape::new(rows, COLUMNS), Dtype::F32).map_err(failed);
    let graph = scattered(ROWS[1], SCATTERED_DEGREE);
    let scales = graph.scales(Norm::None);
    let operand = SparseOperand { csr: &graph, scales, symmetric: false, names: None };
    let matrix = cuda.upload_sparse(&operand).map_err(failed)?;
    let (x, mut out) = (zeros(ROWS[1])?, zeros(ROWS[1])?);
    let (mine, mut others) = (zeros(ROWS[1])?, zeros(ROWS[1] * (size - 1))?);
    let counts = vec![ROWS[1]; size];
    let mut product = || cuda.spmm((&matrix, Transpose::No), None, &x, Epilogue::default(), &mut out);
    let comm = |error: ComputeError| CommError::Library { operation: "a product", message: error.to_string() };
    let one = seconds_of(cuda, world, &mut || product().map_err(comm)).map_err(failed)?;
    let mut exchange = || world.gather_others(&counts, &mine, &mut others);
    let alone = seconds_of(cuda, world, &mut exchange).map_err(failed)?;
    // Products take longer than the exchange, so that they overlap with all of it.
    let n_products = (2.0 * alone / one).ceil().max(1.0);
    let both = seconds_of(cuda, world, &mut || {
        let pending = world.begin(&mut exchange)?;
        (0..n_products as usize).try_for_each(|_| product()).map_err(comm)?;
        world.finish(pending)
    });
    Ok(slowdown(n_products * one, alone, both.map_err(failed)?))
}

/// Time that work loses to an exchange that overlaps with it, as a share of the exchange's time. The work takes
/// longer.
pub(super) fn slowdown(work: f64, exchange: f64, both: f64) -> f64 {
    ((both - work) / exchange).clamp(0.0, SLOWDOWN_MAX)
}

/// Square matrix with `degree` entries per row, scattered over its columns; duplicates are dropped.
pub(super) fn scattered(n: usize, degree: usize) -> Csr {
    let column = |entry: usize| (entry as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let mut indices: Vec<NodeId> = (0..n * degree).map(|entry| (column(entry) % n as u64) as NodeId).collect();
    let mut indptr = vec![0u64];
    let mut kept = 0;
    for row in 0..n {
        let mut columns = indices[row * degree..(row + 1) * degree].to_vec();
        columns.sort_unstable();
        columns.dedup();
        indices[kept..kept + columns.len()].copy_from_slice(&columns);
        kept += columns.len();
        indptr.push(kept as u64);
    }
    indices.truncate(kept);
    Csr::new(n, n, indptr, indices, None).expect("ascending columns")
}

/// Seconds of an exchange that GPUs begin together, as in training, where products come between exchanges. When
/// exchanges follow each other at once, GPUs drift apart and several copy from one; on four H200 that took two thirds
/// longer.
fn seconds_of(
    cuda: &Cuda,
    world: &dyn Collective<Cuda>,
    exchange: &mut dyn FnMut() -> Result<(), CommError>,
) -> Result<f64, ComputeError> {
    let mut number = cuda.zeros(Shape::new(1, 1), Dtype::F32)?;
    let meetings = repeated(cuda, world, &mut || world.all_reduce(&mut number))?;
    let both = repeated(cuda, world, &mut || {
        world.all_reduce(&mut number)?;
        exchange()
    })?;
    Ok((both - meetings).max(0.0))
}

/// Seconds of one of [`CALLS`] calls within a step that is repeated as in training. After the first steps, the device
/// replays the step without the host.
fn repeated(
    cuda: &Cuda,
    world: &dyn Collective<Cuda>,
    call: &mut dyn FnMut() -> Result<(), CommError>,
) -> Result<f64, ComputeError> {
    let nothing = AdamStep { lr: 0.0, beta1: 0.0, beta2: 0.0, eps: 0.0, decoupled: false, step: 1 };
    let inputs = StepInputs { keys: Vec::new(), optimizer: nothing };
    let failed = |error: CommError| ComputeError::device("an exchange between ranks", error.to_string());
    let mut recording = <Cuda as Backend>::Recording::default();
    let mut step = || (0..CALLS).try_for_each(|_| call()).map_err(failed);
    for _ in 0..STEPS_BEFORE {
        cuda.repeat(&mut recording, &inputs, &mut step)?;
    }
    let seconds = shortest(|| {
        world.barrier().map_err(failed)?;
        cuda.elapsed(|| cuda.repeat(&mut recording, &inputs, &mut step))
    })?;
    Ok(seconds / CALLS as f64)
}
