//! Attention over the entries of a sparse matrix, forward and backward, in one pass over the entries each way.
//!
//! Nothing of `nnz` elements is stored. Forward, a row's scores fill a buffer as long as the row, become shares, and
//! weigh the gathered values. Backward, shares are computed again from the rows' log-sums, once along the rows (for the
//! destinations) and once along the columns (for the sources and values):
//!
//! ```text
//! share            α = exp(e - log_sum[i])
//! gradient of e    α · (mask · ⟨grad[i], values[j]⟩ - ⟨grad[i], out[i]⟩)        per head
//! ```
//! The second term is the mean over the row of the first, which the result holds already (as in Dao et al., NeurIPS
//! 2022, for dense attention).
//!
//! - `table`: operands as rows of whole vectors.
//! - `score`: what an entry scores, and the way back.
//! - `entries`: shares, masks, dot products and sums of a block of entries.
//! - `forward`, `backward`: the passes.

mod backward;
mod entries;
mod forward;
mod score;
mod table;

pub(crate) use self::backward::backward;
pub(crate) use self::forward::forward;
use super::element::as_f32;
use crate::checks::AttentionShapes;
use crate::{Attention, Cpu, Dropout, EntryNames};

/// Entries that are worked on together: their gathered rows stay in L1.
const BLOCK: usize = 64;
/// Entries whose rows are fetched ahead.
const AHEAD: usize = 64;

/// The shapes of the operands.
pub(crate) fn shapes(attention: &Attention<'_, Cpu>) -> AttentionShapes {
    AttentionShapes {
        graph: attention.graph.shape(),
        heads: attention.heads,
        destination: attention.destination.shape(),
        source: attention.source.shape(),
        vector: attention.vector.map(super::CpuMatrix::shape),
        values: attention.values.shape(),
    }
}

/// What a pass over rows or columns knows of its direction.
#[derive(Clone, Copy)]
struct Masks<'a> {
    dropout: Option<Dropout>,
    /// What the entries are called, where the pattern is a piece of a larger one.
    names: Option<&'a EntryNames>,
    /// The pass goes along columns of the pattern: what it calls a row is an entry's column.
    transposed: bool,
}
