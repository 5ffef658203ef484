//! [`filtered_rank`]: the rank of an entity among those that are not known to be right, and [`EntityRanks`]: scores of
//! such ranks.

use serde::{Deserialize, Serialize};

/// Rank from 1 of the entity `target` among `scores`, of which those of other entities in `known` do not count (Bordes et
/// al., NeurIPS 2013). Half of the others with an equal score come before: the mean of the best and the worst rank. A score
/// that is not a number is worse for the target than any: before it, if it is another's, and last, if it is its own.
///
/// `known` lists an entity at most once, and may list the target.
///
/// # Panics
/// When an entity has no score.
#[must_use]
pub fn filtered_rank(scores: &[f32], target: usize, known: impl IntoIterator<Item = u32>) -> f64 {
    let own = scores[target];
    let (mut n_not_below, mut n_equal) = counts(scores, own);
    for other in known {
        if other as usize != target {
            let score = scores[other as usize];
            n_not_below -= usize::from(is_not_below(score, own));
            n_equal -= usize::from(score == own);
        }
    }
    // The target itself is among those counted.
    let (n_not_below, n_equal) = (n_not_below - 1, n_equal - usize::from(!own.is_nan()));
    1.0 + (n_not_below - n_equal) as f64 + n_equal as f64 / 2.0
}

/// Numbers of scores that are not below `own`, and of those that equal it.
fn counts(scores: &[f32], own: f32) -> (usize, usize) {
    /// Scores that are counted in 32 bits, in vectors.
    const CHUNK: usize = 4096;
    let (mut not_below, mut equal) = (0, 0);
    for scores in scores.chunks(CHUNK) {
        let (mut of_chunk, mut equal_of_chunk) = (0u32, 0u32);
        for &score in scores {
            of_chunk += u32::from(is_not_below(score, own));
            equal_of_chunk += u32::from(score == own);
        }
        not_below += of_chunk as usize;
        equal += equal_of_chunk as usize;
    }
    (not_below, equal)
}

/// Whether a score is not below another; true if one is not a number.
#[inline(always)]
#[allow(clippy::neg_cmp_op_on_partial_ord, reason = "what is not a number is not below")]
fn is_not_below(score: f32, own: f32) -> bool {
    !(score < own)
}

/// Scores of ranks from 1, as means over questions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EntityRanks {
    /// Mean reciprocal rank.
    pub mrr: f64,
    /// Mean rank.
    pub mean_rank: f64,
    /// Share of ranks of at most 1.
    pub hits_at_1: f64,
    /// Share of ranks of at most 3.
    pub hits_at_3: f64,
    /// Share of ranks of at most 10.
    pub hits_at_10: f64,
}

impl EntityRanks {
    /// Scores of some ranks; `None` without any.
    #[must_use]
    pub fn of(ranks: &[f64]) -> Option<Self> {
        let mean = |of: &dyn Fn(f64) -> f64| ranks.iter().map(|&rank| of(rank)).sum::<f64>() / ranks.len() as f64;
        let hits = |k: f64| mean(&|rank| f64::from(u8::from(rank <= k)));
        (!ranks.is_empty()).then(|| Self {
            mrr: mean(&f64::recip),
            mean_rank: mean(&|rank| rank),
            hits_at_1: hits(1.0),
            hits_at_3: hits(3.0),
            hits_at_10: hits(10.0),
        })
    }
}
