//! Items ranked first for every user, in blocks of users.

use std::ops::Range;

use girih_compute::{Backend, Dtype, Epilogue, Shape, Transpose};
use girih_graph_format::{Csr, FormatError, NodeId};

use crate::TrainError;
use crate::engine::TOP_K;
use crate::tape::Pool;

/// Bytes of the scores of a block of users: about a last-level cache.
const BLOCK_BYTES: usize = 16 << 20;

/// Returns the [`TOP_K`] items of each of `users` with the largest inner products of embeddings. They are ordered
/// best first, and by id if equal. `met` lists items to leave out, for a range of users. The result has `TOP_K` ids
/// for each user; see [`LossOps::top_k_rows`](girih_compute::LossOps::top_k_rows).
///
/// # Errors
/// When the backend fails.
pub(crate) fn top_items<B: Backend>(
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

#[cfg(test)]
mod tests {
    use girih_compute::prelude::*;
    use girih_compute::{Cpu, NO_COLUMN};
    use girih_graph_format::{Coo, Duplicates, Matrix};
    use girih_random::Key;
    use proptest::prelude::*;

    use super::*;

    /// Random embeddings of small whole numbers, whose products are exact and often equal, and random training items.
    fn case(n_users: usize, n_items: usize, width: usize, seed: u64) -> (Matrix, Csr) {
        let mut stream = Key::new(seed, u32::MAX).stream(0, 0);
        let values: Vec<f32> = (0..(n_users + n_items) * width).map(|_| stream.below(5) as f32 - 2.0).collect();
        let n_met = n_users * n_items / 3;
        let users = (0..n_met).map(|_| stream.below(n_users as u64) as u32).collect();
        let items = (0..n_met).map(|_| stream.below(n_items as u64) as u32).collect();
        let met = Coo::new(n_users, n_items, users, items, None).unwrap().to_csr(Duplicates::Merge).unwrap();
        (Matrix::new(n_users + n_items, width, values).unwrap(), met)
    }

    /// Items of a user outside of the training items, from a full sort.
    fn sorted(embeddings: &Matrix, met: &Csr, user: usize) -> Vec<u32> {
        let score = |item: u32| -> f32 {
            let row = embeddings.row(met.n_rows() + item as usize);
            embeddings.row(user).iter().zip(row).map(|(u, i)| u * i).sum()
        };
        let mut items: Vec<u32> = (0..met.n_cols() as u32).filter(|item| !met.row(user).contains(item)).collect();
        items.sort_by(|&a, &b| score(b).partial_cmp(&score(a)).unwrap().then(a.cmp(&b)));
        items.resize(items.len().max(TOP_K), NO_COLUMN);
        items.truncate(TOP_K);
        items
    }

    proptest! {
        #[test]
        fn the_first_items_are_those_of_a_full_sort(
            (n_users, n_items, width, seed) in (1..60usize, 1..90usize, 1..12usize, any::<u64>()),
        ) {
            let (embeddings, met) = case(n_users, n_items, width, seed);
            let cpu = Cpu::new();
            let on_device = cpu.upload(&embeddings, Dtype::F32).unwrap();
            let of_block = |users: Range<usize>| met.block(users, 0..n_items);
            let (mut pool, middle) = (Pool::default(), n_users / 3);
            let mut of_users = |users| {
                top_items(&cpu, &mut pool, &on_device, (n_users, n_items), users, of_block).unwrap()
            };
            let top = of_users(0..n_users);
            prop_assert_eq!(&[of_users(0..middle), of_users(middle..n_users)].concat(), &top);
            prop_assert_eq!(top.len(), n_users * TOP_K);
            for (user, found) in top.chunks_exact(TOP_K).enumerate() {
                prop_assert_eq!(found, &sorted(&embeddings, &met, user)[..], "user {}", user);
            }
        }
    }

    #[test]
    fn users_of_several_blocks_are_all_ranked() {
        let n_items = BLOCK_BYTES / size_of::<f32>() / 2;
        let values: Vec<f32> = (0..5 + n_items).map(|row| if row < 5 { 1.0 } else { -(row as f32) }).collect();
        let cpu = Cpu::new();
        let embeddings = cpu.upload(&Matrix::new(5 + n_items, 1, values).unwrap(), Dtype::F32).unwrap();
        let nothing_met = |users: Range<usize>| Csr::empty(users.len(), n_items);
        let top = top_items(&cpu, &mut Pool::default(), &embeddings, (5, n_items), 0..5, nothing_met).unwrap();
        assert_eq!(top.len(), 5 * TOP_K);
        for found in top.chunks_exact(TOP_K) {
            assert_eq!(found, (0..TOP_K as u32).collect::<Vec<_>>());
        }
    }
}
