//! [`NodeRows`]: what a data set has of some consecutive nodes.

use std::ops::Range;

use girih_graph_format::{NodeId, places_of};

use crate::{Dataset, Features, Labels, Split};

/// What a data set has of some consecutive nodes beside the graph. Nodes are counted from the first of them.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeRows {
    /// Their features, if there are features.
    pub features: Option<Features>,
    /// How many stored values of sparse features the nodes before them have; 0 of others.
    pub first_value: usize,
    /// Their labels, if there are labels.
    pub labels: Option<Labels>,
    /// Of each split, which of them are in which part.
    pub splits: Vec<Split>,
}

impl Dataset {
    /// What this has of some consecutive nodes; large arrays are shared.
    ///
    /// # Panics
    /// When there are not so many nodes.
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
    /// All rows, one behind the other as they are stored, and the bytes of each; `None` where rows differ in size:
    /// sparse ones.
    #[must_use]
    pub fn stored_rows(&self) -> Option<(&[u8], usize)> {
        match self {
            Self::Dense(rows) => Some((bytemuck::cast_slice(rows.data()), size_of::<f32>() * rows.n_cols())),
            Self::Compressed(rows) => Some((rows.codes(), rows.codec().row_bytes())),
            Self::Sparse(_) => None,
        }
    }

    /// Those of some consecutive nodes, shared.
    ///
    /// # Panics
    /// When there are not so many.
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
    /// Those of some consecutive nodes.
    ///
    /// # Panics
    /// When there are not so many.
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
    /// The nodes of each part that lie in a range, counted from its first.
    #[must_use]
    pub fn row_slice(&self, nodes: Range<usize>) -> Self {
        let inside = |ids: &[NodeId]| -> Vec<NodeId> {
            ids[places_of(ids, &nodes)].iter().map(|id| id - nodes.start as NodeId).collect()
        };
        Self { train: inside(&self.train), val: inside(&self.val), test: inside(&self.test) }
    }
}
