//! [`Labels`]: classes or targets of nodes.

use girih_graph_format::{Matrix, NodeId};
use girih_machine::parallel;

use crate::DatasetError;

/// Class of a node whose label is not known.
pub const UNLABELLED: u32 = u32::MAX;

/// Node labels.
#[derive(Clone, Debug, PartialEq)]
pub enum Labels {
    /// One class per node.
    Single {
        /// Number of classes.
        n_classes: usize,
        /// Class of every node, or [`UNLABELLED`].
        classes: Vec<u32>,
    },
    /// Any number of classes per node.
    Multi {
        /// Number of classes.
        n_classes: usize,
        /// `n_nodes × n_classes`, each value 0 or 1.
        targets: Matrix,
    },
}

impl Labels {
    /// Labels of one class per node; the largest class gives the number of classes.
    #[must_use]
    pub fn single(classes: Vec<u32>) -> Self {
        let n_classes = classes.iter().filter(|&&c| c != UNLABELLED).max().map_or(0, |&c| c as usize + 1);
        Self::Single { n_classes, classes }
    }

    /// Number of classes.
    #[must_use]
    pub fn n_classes(&self) -> usize {
        match self {
            Self::Single { n_classes, .. } | Self::Multi { n_classes, .. } => *n_classes,
        }
    }

    /// Number of nodes that have a row of labels.
    #[must_use]
    pub fn n_nodes(&self) -> usize {
        match self {
            Self::Single { classes, .. } => classes.len(),
            Self::Multi { targets, .. } => targets.n_rows(),
        }
    }

    /// Whether node `v` has a known label.
    ///
    /// # Panics
    /// When `v >= n_nodes`.
    #[must_use]
    pub fn is_labelled(&self, v: NodeId) -> bool {
        match self {
            Self::Single { classes, .. } => classes[v as usize] != UNLABELLED,
            Self::Multi { .. } => true,
        }
    }

    /// Labels of some nodes, in the order given.
    ///
    /// # Panics
    /// When one of `nodes` is not a node.
    #[must_use]
    pub fn of_nodes(&self, nodes: &[NodeId]) -> Self {
        match self {
            Self::Single { n_classes, classes } => {
                let classes = nodes.iter().map(|&node| classes[node as usize]).collect();
                Self::Single { n_classes: *n_classes, classes }
            }
            Self::Multi { n_classes, targets } => {
                let values: Vec<f32> = nodes.iter().flat_map(|&node| targets.row(node as usize)).copied().collect();
                let targets =
                    Matrix::new(nodes.len(), *n_classes, values).expect("a row of as many columns for each node");
                Self::Multi { n_classes: *n_classes, targets }
            }
        }
    }

    /// Checks that each of `n_nodes` nodes has a row, with existing classes or targets of 0 and 1.
    pub(crate) fn validate(&self, n_nodes: usize) -> Result<(), DatasetError> {
        if self.n_nodes() != n_nodes {
            return Err(DatasetError::invalid(format!(
                "there are {} labels for {n_nodes} nodes; each node needs one",
                self.n_nodes()
            )));
        }
        match self {
            Self::Single { n_classes, classes } => validate_classes(*n_classes, classes),
            Self::Multi { n_classes, targets } => validate_targets(*n_classes, targets),
        }
    }
}

/// Checks that all known classes exist.
fn validate_classes(n_classes: usize, classes: &[u32]) -> Result<(), DatasetError> {
    let outside = |&c: &u32| c != UNLABELLED && c as usize >= n_classes;
    match classes.iter().position(outside) {
        None => Ok(()),
        Some(v) => Err(DatasetError::invalid(format!(
            "node {v} has class {}; there are {n_classes} classes, numbered from 0",
            classes[v]
        ))),
    }
}

/// Checks the width of the targets, and that each is 0 or 1.
fn validate_targets(n_classes: usize, targets: &Matrix) -> Result<(), DatasetError> {
    if targets.n_cols() != n_classes {
        return Err(DatasetError::invalid(format!("{} columns of targets for {n_classes} classes", targets.n_cols())));
    }
    match parallel::position(targets.data(), |&t| t != 0.0 && t != 1.0) {
        None => Ok(()),
        Some(at) => Err(DatasetError::invalid(format!(
            "node {}, class {}: the target is {}; targets are 0 or 1",
            at / n_classes,
            at % n_classes,
            targets.data()[at]
        ))),
    }
}
