//! [`NodeRows`]: features, labels and splits of consecutive nodes.

use std::ops::Range;

use girih_graph_format::{NodeId, places_of};

use crate::{Dataset, Features, Labels, Split};

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
