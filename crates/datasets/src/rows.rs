//! [`NodeRows`]: features, labels and splits of consecutive nodes.

use std::ops::Range;

use girih_graph_format::{Csr, Matrix, NodeId, places_of};
use girih_machine::{parallel, prefetch};

use crate::{Dataset, DatasetError, Features, Labels, Split};

/// Approximate number of values that one task of [`Features::gather`] writes.
const TASK_VALUES: usize = 1 << 15;
/// Prefetch distance of dense rows, in rows.
const ROWS_AHEAD: usize = 8;
/// Number of bytes of a dense row that are prefetched; the CPU's own prefetcher brings the rest.
const BYTES_AHEAD: usize = 512;

/// Features, labels and splits of consecutive nodes, whose ids count from the first of them.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeRows {
    /// Features of the nodes, if there are features.
    pub features: Option<Features>,
    /// Number of stored values of sparse features of all earlier nodes; 0 for other features.
    pub first_value: usize,
    /// Labels of the nodes, if there are labels.
    pub labels: Option<Labels>,
    /// Nodes of each part, for each split.
    pub splits: Vec<Split>,
}

impl Dataset {
    /// Features, labels and splits of some consecutive nodes; large arrays are shared.
    ///
    /// # Panics
    /// When `nodes` ends beyond the nodes.
    #[must_use]
    pub fn rows(&self, nodes: Range<usize>) -> NodeRows {
        NodeRows {
            first_value: match &self.features {
                Some(Features::Sparse(csr)) => csr.indptr()[nodes.start] as usize,
                _ => 0,
            },
            features: self.features.as_ref().map(|features| features.row_slice(nodes.clone())),
            labels: self.labels.as_ref().map(|labels| labels.row_slice(nodes.clone())),
            splits: self.splits.iter().map(|split| split.row_slice(nodes.clone())).collect(),
        }
    }
}

impl Features {
    /// Bytes of all rows, one after the other as stored, and the number of bytes per row. `None` where rows differ in
    /// size, as sparse ones do.
    #[must_use]
    pub fn stored_rows(&self) -> Option<(&[u8], usize)> {
        match self {
            Self::Dense(rows) => Some((bytemuck::cast_slice(rows.data()), size_of::<f32>() * rows.n_cols())),
            Self::Compressed(rows) => Some((rows.codes(), rows.codec().row_bytes())),
            Self::Sparse(_) => None,
        }
    }

    /// Writes the rows of `nodes` to `out`, one after the other: `nodes.len() × width` values, decoded if compressed.
    /// All threads of rayon's pool take part.
    ///
    /// # Errors
    /// When a node has no row, or compressed rows are damaged; the content of `out` is then unspecified.
    ///
    /// # Panics
    /// When `out` has another length.
    pub fn gather(&self, nodes: &[NodeId], out: &mut [f32]) -> Result<(), DatasetError> {
        let (n_rows, width) = (self.n_rows(), self.width());
        assert_eq!(out.len(), nodes.len() * width, "values of {} rows", nodes.len());
        if let Some(at) = nodes.iter().position(|&node| node as usize >= n_rows) {
            return Err(DatasetError::invalid(format!(
                "node {}, at {at} of the list, of features of {n_rows} rows, counted from 0",
                nodes[at]
            )));
        }
        match self {
            Self::Dense(matrix) => in_tasks(nodes, width, out, |nodes, out| copy_rows(matrix, nodes, out)),
            Self::Sparse(csr) => in_tasks(nodes, width, out, |nodes, out| expand_rows(csr, nodes, out)),
            Self::Compressed(features) => features.gather(nodes, out)?,
        }
        Ok(())
    }

    /// Features of some consecutive nodes, shared.
    ///
    /// # Panics
    /// When `nodes` ends beyond the rows.
    #[must_use]
    pub fn row_slice(&self, nodes: Range<usize>) -> Self {
        match self {
            Self::Dense(matrix) => Self::Dense(matrix.row_slice(nodes)),
            Self::Sparse(csr) => Self::Sparse(csr.row_slice(nodes)),
            Self::Compressed(features) => Self::Compressed(features.rows(nodes)),
        }
    }
}

impl Labels {
    /// Labels of some consecutive nodes.
    ///
    /// # Panics
    /// When `nodes` ends beyond the rows.
    #[must_use]
    pub fn row_slice(&self, nodes: Range<usize>) -> Self {
        match self {
            Self::Single { n_classes, classes } => {
                Self::Single { n_classes: *n_classes, classes: classes[nodes].to_vec() }
            }
            Self::Multi { n_classes, targets } => {
                Self::Multi { n_classes: *n_classes, targets: targets.row_slice(nodes) }
            }
        }
    }
}

impl Split {
    /// Nodes of each part that lie in a range, counted from the start of the range.
    #[must_use]
    pub fn row_slice(&self, nodes: Range<usize>) -> Self {
        let inside = |ids: &[NodeId]| -> Vec<NodeId> {
            ids[places_of(ids, &nodes)].iter().map(|id| id - nodes.start as NodeId).collect()
        };
        Self { train: inside(&self.train), val: inside(&self.val), test: inside(&self.test) }
    }
}

/// Calls `work` with pieces of `nodes` and of their rows of `width` values, in parallel.
fn in_tasks(nodes: &[NodeId], width: usize, out: &mut [f32], work: impl Fn(&[NodeId], &mut [f32]) + Sync) {
    if width == 0 {
        return;
    }
    let rows = (TASK_VALUES / width).max(1);
    parallel::for_each(nodes.chunks(rows).zip(out.chunks_mut(rows * width)), |(nodes, out)| work(nodes, out));
}

fn copy_rows(matrix: &Matrix, nodes: &[NodeId], out: &mut [f32]) {
    let width = matrix.n_cols();
    for (i, (&node, out)) in nodes.iter().zip(out.chunks_exact_mut(width)).enumerate() {
        if let Some(&next) = nodes.get(i + ROWS_AHEAD) {
            let start = matrix.data().as_ptr().wrapping_add(next as usize * width).cast::<u8>();
            (0..(4 * width).min(BYTES_AHEAD)).step_by(64).for_each(|offset| prefetch(start.wrapping_add(offset)));
        }
        out.copy_from_slice(matrix.row(node as usize));
    }
}

fn expand_rows(csr: &Csr, nodes: &[NodeId], out: &mut [f32]) {
    for (&node, out) in nodes.iter().zip(out.chunks_exact_mut(csr.n_cols())) {
        out.fill(0.0);
        csr.row_entries(node as usize).for_each(|(column, value)| out[column as usize] = value);
    }
}
