//! Rows in the host memory of several ranks, each of which has those of its patch; hot rows are on GPUs.
//!
//! ```text
//! hot     fetched once, before the first batch ──▶ every GPU
//! others  ids ──▶ host ──▶ one thread: ask the ranks that have them ──▶ all cores: fill a pinned buffer
//!                                                                       ──▶ copy ──▶ as rows of one host
//! ```
//! All ranks fetch a batch together; a rank that needs no rows takes part, too. The trainer implements the fetch
//! ([`FetchRows`]), so that this module is independent of hosts. From pinned buffers on it works as
//! [`staged`](super::staged).

use cudarc::driver::{CudaEvent, DriverError};
use girih_compute::ComputeError;
use girih_features::{FeatureStore, FetchRows, FetchedRows, Holder, Placement, SplitRows, StoredAs};
use girih_graph_format::NodeId;
use rayon::prelude::*;

use super::cache::DeviceCache;
use super::code_book::CodeBook;
use super::group::Group;
use super::row_checks::OPERATION;
use super::row_sources::{Dense, Form};
use super::staged::Staged;
use super::threads::{Batch, Buffers, ROW_BYTES_MAX, StagedGather, StagedWorker};
use super::uva::Rows;
use crate::Cuda;

/// Bytes of a pinned buffer: enough for all cores to share its filling.
const BUFFER_BYTES: usize = 16 << 20;
/// Fewest rows that a core copies.
const ROWS_AT_ONCE: usize = 256;
/// Bytes of rows that are fetched for GPUs at a time.
const FETCHED_BYTES: usize = 64 << 20;

/// Store of rows in the host memory of all ranks; `None` for codes that devices do not decode, and for rows that are
/// too long.
pub(super) fn split_rows(
    cuda: &Cuda,
    SplitRows { n_rows, stored, mut fetch }: SplitRows<'_>,
    placement: &Placement,
) -> Result<Option<Box<dyn FeatureStore<Cuda>>>, ComputeError> {
    let (form, row_bytes) = match stored {
        StoredAs::Dense(cols, dtype) => {
            let form = Dense { cols, dtype };
            (Form::Dense(form), form.row_bytes())
        }
        StoredAs::Codes(codes, dtype) => {
            let Some(book) = CodeBook::upload(cuda, OPERATION, codes, dtype)? else { return Ok(None) };
            (Form::Codes(book), codes.codec().row_bytes())
        }
    };
    if row_bytes > ROW_BYTES_MAX {
        return Ok(None);
    }
    check_placed(placement)?;
    let offset = |row| (row * row_bytes) as u64;
    let placed = Rows { operation: OPERATION, n_rows, offset: &offset, mark: 0 };
    let mut read = |nodes: &[NodeId]| fetch_all(&mut *fetch, nodes, row_bytes);
    let group = Group::of(cuda, OPERATION, placement)?;
    let hot = DeviceCache::beside_host(cuda, &placed, &mut read, (placement, &group))?;
    cuda.store_of(form, (n_rows, row_bytes), hot, || {
        let mut fetch = Some(fetch);
        let threads = StagedGather::new(cuda, OPERATION, (1, BUFFER_BYTES), || {
            let fetch = fetch.take().expect("there is one thread");
            Fetcher { fetch, row_bytes }
        })?;
        Ok(Staged::new(threads, row_bytes, true))
    })
    .map(Some)
}

/// Fails if a placement gives a GPU rows that others do not have.
fn check_placed(placement: &Placement) -> Result<(), ComputeError> {
    let is_for_all = |holder: Holder| matches!(holder, Holder::EveryGpu | Holder::Host);
    if placement.spans().iter().all(|span| is_for_all(span.holder)) {
        return Ok(());
    }
    Err(ComputeError::argument(OPERATION, "rows that hosts hold in parts are cached on every GPU, or on none"))
}

/// Fetches the rows of `nodes`, of `row_bytes` bytes on the device each, as consecutive buffers. All ranks ask for
/// the same.
fn fetch_all(fetch: &mut dyn FetchRows, nodes: &[NodeId], row_bytes: usize) -> Result<Vec<Vec<u8>>, ComputeError> {
    let mut piece = |nodes: &[NodeId]| -> Result<Vec<u8>, ComputeError> {
        let mut rows = vec![0; nodes.len() * row_bytes];
        fill(&*fetch.fetch(nodes)?, 0, (&mut rows, row_bytes));
        Ok(rows)
    };
    nodes.chunks((FETCHED_BYTES / row_bytes.max(1)).max(1)).map(&mut piece).collect()
}

/// Copies a row to a destination that may be longer; the rest is set to zero.
fn spread(stored: &[u8], row: &mut [u8]) {
    let (values, padding) = row.split_at_mut(stored.len());
    values.copy_from_slice(stored);
    padding.fill(0);
}

/// Fetch of rows from the ranks that have them.
struct Fetcher {
    fetch: Box<dyn FetchRows>,
    /// Bytes of a row on the device.
    row_bytes: usize,
}

impl StagedWorker for Fetcher {
    fn share_of(&mut self, batch: &Batch, buffers: &mut Buffers) -> Result<CudaEvent, ComputeError> {
        let Self { fetch, row_bytes } = self;
        let failed = Cuda::failed(buffers.operation);
        let ids = batch.ids.wait().map_err(&failed)?;
        let found = fetch.fetch(ids)?;
        copy_to(batch, (&*found, ids.len(), *row_bytes), buffers).map_err(failed)
    }
}

/// Copies `n` rows to the destination of a batch; returns an event behind the copies.
fn copy_to(
    batch: &Batch,
    (found, n, row_bytes): (&dyn FetchedRows, usize, usize),
    buffers: &mut Buffers,
) -> Result<CudaEvent, DriverError> {
    buffers.stream.wait(&batch.ready)?;
    let at_once = BUFFER_BYTES / row_bytes.max(1);
    for first in (0..n).step_by(at_once) {
        let (n, to) = (at_once.min(n - first), batch.to + (first * row_bytes) as u64);
        buffers.bring(n * row_bytes, to, |rows| fill(found, first, (rows, row_bytes)))?;
    }
    buffers.stream.record_event(None)
}

/// Copies the rows from `first` on, on all cores.
fn fill(found: &dyn FetchedRows, first: usize, (rows, row_bytes): (&mut [u8], usize)) {
    if row_bytes > 0 {
        let rows = rows.par_chunks_exact_mut(row_bytes).enumerate().with_min_len(ROWS_AT_ONCE);
        rows.for_each(|(at, row)| spread(found.row(first + at), row));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_in_parts_are_cached_on_every_gpu_or_on_none() {
        let refused = check_placed(&Placement::of_features(&[0, 1, 2, 3], (2, 2, 0), 2)).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "rows by id: rows that hosts hold in parts are cached on every GPU, or on none"
        );
    }

    /// Rows of three bytes that tell which they are.
    struct Numbered(Vec<[u8; 3]>);

    impl FetchedRows for Numbered {
        fn row(&self, at: usize) -> &[u8] {
            &self.0[at]
        }
    }

    #[test]
    fn rows_fill_a_buffer_in_order_with_zeros_between_them() {
        let found = Numbered((0..1000).map(|at| [at as u8, (at >> 8) as u8, 7]).collect());
        for (first, n, row_bytes) in [(0, 1000, 3), (0, 1000, 16), (990, 10, 4), (5, 0, 8)] {
            let mut rows = vec![0xff; n * row_bytes];
            fill(&found, first, (&mut rows, row_bytes));
            for (at, row) in rows.chunks(row_bytes).enumerate() {
                assert_eq!((&row[..3], row[3..].iter().max().unwrap_or(&0)), (found.row(first + at), &0));
            }
        }
    }
}
