//! [`EdgeSplit`]: a data set's own split of edges, for link prediction.

use girih_graph_format::{Csr, NodeId, Permutation};
use girih_machine::parallel;

use crate::DatasetError;

/// Two nodes: source and destination, as the data names them.
pub type Edge = [NodeId; 2];

/// Edges to train on, which the graph has, and held-out ones with the pairs that they are ranked among.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeSplit {
    /// Edges of the graph.
    pub train: Vec<Edge>,
    /// Edges that choose the epoch.
    pub val: HeldOutEdges,
    /// Edges whose scores are reported.
    pub test: HeldOutEdges,
}

/// Held-out edges of one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldOutEdges {
    /// The edges, in the order of the data.
    pub edges: Vec<Edge>,
    /// Negative pairs.
    pub negatives: Negatives,
}

/// Negative pairs that held-out edges are ranked among.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Negatives {
    /// Pairs for all edges of the part.
    Shared(Vec<Edge>),
    /// Pairs of each edge's own: its source with other destinations.
    PerEdge {
        /// Number of pairs per edge, at least 1.
        n: usize,
        /// Destinations (edges × `n`, row-major).
        destinations: Vec<NodeId>,
    },
}

impl EdgeSplit {
    /// Held-out parts with their names.
    #[must_use]
    pub fn held_out(&self) -> [(&'static str, &HeldOutEdges); 2] {
        [("val", &self.val), ("test", &self.test)]
    }

    /// Checks that all nodes exist, and that the graph has every training edge, in either direction.
    pub(crate) fn validate(&self, graph: &Csr) -> Result<(), DatasetError> {
        check_train(&self.train, graph)?;
        self.held_out().into_iter().try_for_each(|(_, part)| part.validate(graph.n_rows()))
    }

    /// The split with node `v` renamed to `order.map(v)`.
    pub(super) fn permuted(&self, order: &Permutation) -> Self {
        let renamed = |edges: &[Edge]| edges.iter().map(|edge| edge.map(|v| order.map(v))).collect();
        let part = |part: &HeldOutEdges| HeldOutEdges {
            edges: renamed(&part.edges),
            negatives: match &part.negatives {
                Negatives::Shared(pairs) => Negatives::Shared(renamed(pairs)),
                Negatives::PerEdge { n, destinations } => {
                    Negatives::PerEdge { n: *n, destinations: destinations.iter().map(|&v| order.map(v)).collect() }
                }
            },
        };
        Self { train: renamed(&self.train), val: part(&self.val), test: part(&self.test) }
    }

    /// Adds all edges and pairs to a hash.
    pub(super) fn add_to(&self, hash: &mut crc32fast::Hasher) {
        hash.update(bytemuck::cast_slice(&self.train));
        for (_, part) in self.held_out() {
            hash.update(&(part.edges.len() as u64).to_le_bytes());
            hash.update(bytemuck::cast_slice(&part.edges));
            match &part.negatives {
                Negatives::Shared(pairs) => hash.update(bytemuck::cast_slice(pairs)),
                Negatives::PerEdge { destinations, .. } => hash.update(bytemuck::cast_slice(destinations)),
            }
        }
    }
}

impl HeldOutEdges {
    /// Number of negative pairs.
    #[must_use]
    pub fn n_negatives(&self) -> usize {
        match &self.negatives {
            Negatives::Shared(pairs) => pairs.len(),
            Negatives::PerEdge { destinations, .. } => destinations.len(),
        }
    }

    /// Checks that all nodes exist, and that each edge has its negative pairs.
    pub(crate) fn validate(&self, n_nodes: usize) -> Result<(), DatasetError> {
        check_nodes(&self.edges, n_nodes, "edge")?;
        match &self.negatives {
            Negatives::Shared(pairs) if pairs.is_empty() && !self.edges.is_empty() => Err(DatasetError::invalid(
                format!("no negative pair for {} edges; expected at least one", self.edges.len()),
            )),
            Negatives::Shared(pairs) => check_nodes(pairs, n_nodes, "negative pair"),
            Negatives::PerEdge { n, destinations } => {
                let n_edges = self.edges.len();
                if *n == 0 || n_edges.checked_mul(*n) != Some(destinations.len()) {
                    return Err(DatasetError::invalid(format!(
                        "{} negative destinations for {n_edges} edges; expected as many for each, and at least one",
                        destinations.len()
                    )));
                }
                match parallel::position(destinations, |&v| v as usize >= n_nodes) {
                    None => Ok(()),
                    Some(at) => {
                        let (edge, place, node) = (at / n, at % n, destinations[at]);
                        Err(DatasetError::invalid(format!(
                            "negative destination {place} of edge {edge}: node {node} does not exist; there are {n_nodes} nodes"
                        )))
                    }
                }
            }
        }
    }
}

/// Checks that the graph has every training edge, in either direction.
pub(crate) fn check_train(train: &[Edge], graph: &Csr) -> Result<(), DatasetError> {
    check_nodes(train, graph.n_rows(), "edge")?;
    let has = |row: NodeId, column: NodeId| graph.row(row as usize).binary_search(&column).is_ok();
    match parallel::position(train, |&[u, v]| !has(u, v) && !has(v, u)) {
        None => Ok(()),
        Some(at) => {
            let [u, v] = train[at];
            Err(DatasetError::invalid(format!(
                "edge {at}, from {u} to {v}, is not in the graph, which has the edges that train"
            )))
        }
    }
}

fn check_nodes(pairs: &[Edge], n_nodes: usize, what: &str) -> Result<(), DatasetError> {
    match parallel::position(pairs, |pair| pair.iter().any(|&v| v as usize >= n_nodes)) {
        None => Ok(()),
        Some(at) => {
            let [u, v] = pairs[at];
            let node = u.max(v);
            Err(DatasetError::invalid(format!("{what} {at}: node {node} does not exist; there are {n_nodes} nodes")))
        }
    }
}
