//! [`Edges`]: the edges of a list as arrays, before the meaning of their ids is known.

use std::collections::BTreeSet;

use crate::NodeId;
use crate::file::number::integer;

/// Edges of a chunk, or of all chunks.
#[derive(Debug, Default)]
pub(super) struct Edges {
    pub(super) sources: Vec<NodeId>,
    pub(super) targets: Vec<NodeId>,
    /// Weight of each edge; empty without weights.
    pub(super) weights: Vec<f32>,
    /// Time of each edge, as digits and the number of those behind the point; empty unless times are read.
    pub(super) times: Vec<(i64, u8)>,
    /// Row-major features of the edges; empty unless they are read.
    pub(super) features: Vec<f32>,
    /// Keys of dictionaries that are not used.
    pub(super) other_keys: BTreeSet<Vec<u8>>,
    pub(super) index: RowNumbers,
}

/// Check whether a column counts its rows.
#[derive(Debug, Default)]
pub(super) struct RowNumbers {
    first_last: Option<(u64, u64)>,
    is_broken: bool,
}

impl RowNumbers {
    /// Appends the number of a row.
    pub(super) fn push(&mut self, field: &[u8]) {
        self.first_last = match (integer(field), self.first_last) {
            (Some(n), None) => Some((n, n)),
            (Some(n), Some((first, last))) => {
                self.is_broken |= last.checked_add(1) != Some(n);
                Some((first, n))
            }
            (None, before) => {
                self.is_broken = true;
                before
            }
        };
    }
}

/// Whether the numbers of all chunks, in order, count from 0 or 1 without a gap.
pub(super) fn count_rows(chunks: &[Edges]) -> bool {
    let mut ends = chunks.iter().filter_map(|chunk| chunk.index.first_last);
    let Some((first, mut last)) = ends.next() else { return false };
    let follow = ends.all(|(next, end)| std::mem::replace(&mut last, end).checked_add(1) == Some(next));
    first <= 1 && follow && !chunks.iter().any(|chunk| chunk.index.is_broken)
}
