//! Items ranked first for every user, in blocks of users.

use std::ops::Range;

use girih_compute::{Backend, Dtype, Epilogue, Shape, Transpose};
use girih_graph_format::{Csr, FormatError, NodeId};

use crate::TrainError;
use crate::engine::TOP_K;
use crate::tape::Pool;

/// Bytes of the scores of a block of users: about a last-level cache.
pub const BLOCK_BYTES: usize = 16 << 20;

/// Returns the [`TOP_K`] items of each of `users` with the largest inner products of embeddings. They are ordered
/// best first, and by id if equal. `met` lists items to leave out, for a range of users. The result has `TOP_K` ids
/// for each user; see [`LossOps::top_k_rows`](girih_compute::LossOps::top_k_rows).
///
/// # Errors
/// When the backend fails.
pub fn top_items<B: Backend>(
    backend: &B,
    pool: &mut Pool<B>,
    embeddings: &B::Matrix,
    (n_users, n_items): (usize, usize),
    users: Range<usize>,
    met: impl Fn(Range<usize>) -> Result<Csr, FormatError>,
) -> Result<Vec<NodeId>, TrainError> {
    let block_len = (BLOCK_BYTES / (n_items * size_of::<f32>())).max(1);
    let items = rows(backend, pool, embeddings, n_users..n_users + n_items)?;
    let mut top = Vec::with_capacity(users.len() * TOP_K);
    for start in users.clone().step_by(block_len) {
        let block = start..(start + block_len).min(users.end);
        let of_users = rows(backend, pool, embeddings, block.clone())?;
        let mut scores = pool.take(backend, Shape::new(block.len(), n_items), Dtype::F32)?;
        let (no, yes) = (Transpose::No, Transpose::Yes);
        backend.gemm((&of_users, no), None, (&items, yes), Epilogue::default(), &mut scores)?;
        top.extend(backend.top_k_rows(&scores, TOP_K, &met(block)?)?);
        pool.give(backend, of_users);
        pool.give(backend, scores);
    }
    pool.give(backend, items);
    Ok(top)
}

/// Consecutive rows of a matrix.
fn rows<B: Backend>(
    backend: &B,
    pool: &mut Pool<B>,
    matrix: &B::Matrix,
    range: Range<usize>,
) -> Result<B::Matrix, TrainError> {
    let shape = Shape::new(range.len(), backend.shape(matrix).cols);
    let ids = backend.upload_ids(&range.map(|row| row as NodeId).collect::<Vec<_>>())?;
    let mut out = pool.take(backend, shape, Dtype::F32)?;
    backend.gather_rows(matrix, &ids, &mut out)?;
    Ok(out)
}
