//! Links of data with a split of edges of their own.

use girih_datasets::{EdgeSplit, HeldOutEdges, Negatives};
use girih_graph_format::Matrix;
use rayon::prelude::*;

use super::{Link, PairList};
use crate::TrainError;
use crate::engine::hits_at;

/// Training links: ascending, each once, without self loops.
pub(crate) fn training_links(split: &EdgeSplit) -> Vec<Link> {
    let ascending = split.train.iter().map(|&[u, v]| [u.min(v), u.max(v)]);
    let mut links: Vec<Link> = ascending.filter(|link| link[0] < link[1]).collect();
    links.par_sort_unstable();
    links.dedup();
    links
}

/// Pairs on which a part is scored while training: its edges, and the negative pairs that they share. Of pairs of their
/// own, each edge has the first.
pub(crate) fn scored_pairs(part: &HeldOutEdges) -> PairList {
    let mut ends = part.edges.clone();
    match &part.negatives {
        Negatives::Shared(pairs) => ends.extend(pairs),
        Negatives::PerEdge { n, destinations } => {
            ends.extend(part.edges.iter().zip(destinations.chunks_exact(*n)).map(|(edge, other)| [edge[0], other[0]]));
        }
    }
    debug_assert_eq!(ends.len(), n_scored_pairs(part));
    PairList { ends, n_links: part.edges.len() }
}

/// Number of the pairs of [`scored_pairs`].
pub(crate) fn n_scored_pairs(part: &HeldOutEdges) -> usize {
    let n_links = part.edges.len();
    match &part.negatives {
        Negatives::Shared(pairs) => n_links + pairs.len(),
        Negatives::PerEdge { .. } => 2 * n_links,
    }
}

/// Hits@k of held-out edges, each scored by the inner product of its embeddings: the share of edges with a larger score
/// than the `k`-th best negative pair (Hu et al., NeurIPS 2020). `None` without edges.
///
/// # Errors
/// When embeddings are not finite, or edges have negative pairs of their own.
///
/// # Panics
/// When `k` is zero, or a node has no embedding.
pub fn hits_of_edges(k: usize, embeddings: &Matrix, part: &HeldOutEdges) -> Result<Option<f64>, TrainError> {
    embeddings.check_finite()?;
    let Negatives::Shared(pairs) = &part.negatives else {
        return Err(TrainError::invalid("hits@k needs negative pairs that all edges share"));
    };
    let scores = |pairs: &[Link]| pairs.par_iter().map(|&pair| score(embeddings, pair)).collect::<Vec<_>>();
    Ok(hits_at(k, &scores(&part.edges), &scores(pairs)))
}

/// Ranks from 1 of held-out edges among negative pairs of their own, each pair scored by the inner product of its
/// embeddings. Half of the negative pairs with an equal score come before (Hu et al., NeurIPS 2020). The scores of one
/// edge at a time are in memory.
///
/// # Errors
/// When embeddings are not finite, or edges share their negative pairs.
///
/// # Panics
/// When a node has no embedding.
pub fn ranks_of_edges(embeddings: &Matrix, part: &HeldOutEdges) -> Result<Vec<f64>, TrainError> {
    embeddings.check_finite()?;
    let Negatives::PerEdge { n, destinations } = &part.negatives else {
        return Err(TrainError::invalid("ranks need negative pairs of each edge's own"));
    };
    let rank = |(&[source, destination], others): (&Link, &[u32])| {
        let own = score(embeddings, [source, destination]);
        let (mut above, mut not_below) = (0u32, 0u32);
        for &other in others {
            let found = score(embeddings, [source, other]);
            above += u32::from(found > own);
            not_below += u32::from(found >= own);
        }
        1.0 + 0.5 * (f64::from(above) + f64::from(not_below))
    };
    Ok(part.edges.par_iter().zip(destinations.par_chunks_exact(*n)).map(rank).collect())
}

/// Inner product of the embeddings of two nodes, in an order of sums that only the width decides.
fn score(embeddings: &Matrix, [u, v]: Link) -> f32 {
    const LANES: usize = 8;
    let (first, second) = (embeddings.row(u as usize), embeddings.row(v as usize));
    let ((a, a_rest), (b, b_rest)) = (first.as_chunks::<LANES>(), second.as_chunks::<LANES>());
    let mut sums = [0.0f32; LANES];
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}
