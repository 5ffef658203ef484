//! Attention over the entries of a sparse matrix, forward and backward, with one pass over the entries in each
//! direction.
//!
//! No array of `nnz` elements is stored. In the forward pass, the scores of a row fill a buffer as long as the row,
//! become coefficients, and weight the gathered values. The backward pass recomputes the coefficients from the
//! log-sums of the rows: once along the rows (for the destinations), and once along the columns (for the sources and
//! values):
//!
//! ```text
//! share            α = exp(e - log_sum[i])
//! gradient of e    α · (mask · ⟨grad[i], values[j]⟩ - ⟨grad[i], out[i]⟩)        per head
//! ```
//! The second term is the mean of the first one over the row. It follows from the stored result (as in Dao et al.,
//! NeurIPS 2022, for dense attention).
//!
//! - `table`: operands as rows of whole vectors.
//! - `score`: scores of entries, and their backward pass.
//! - `entries`: coefficients, masks, dot products and sums of a block of entries.
//! - `forward`, `backward`: the passes.

mod backward;
mod entries;
mod forward;
mod score;
mod table;

pub(crate) use self::backward::backward;
pub(crate) use self::forward::forward;
use super::matrix::as_f32;
use crate::{Dropout, GlobalIds};

/// Number of entries in a block. Their gathered rows stay in L1.
const BLOCK: usize = 64;
/// Prefetch distance in entries.
const AHEAD: usize = 64;

/// Dropout masks for a pass along rows or columns.
#[derive(Clone, Copy)]
struct Masks<'a> {
    dropout: Option<Dropout>,
    /// Global ids of rows and columns, if the pattern is a submatrix of a larger one.
    names: Option<&'a GlobalIds>,
    /// If true, the pass goes along columns of the pattern: its rows are columns of the pattern.
    transposed: bool,
}
