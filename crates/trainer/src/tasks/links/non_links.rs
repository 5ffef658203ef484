//! [`NonLinks`]: pairs of nodes that no edge joins.

use girih_graph_format::{Csr, NodeId};
use girih_random::Stream;

use super::Link;
use crate::TrainError;

/// At least one of this many pairs must be a non-link. Otherwise rejection sampling would take too long.
const TRIES_MAX: u128 = 100;

/// Uniform sampler of pairs of different nodes that no edge of a graph joins, in either direction. Edges of all parts
/// count, held-out ones too, since a held-out link is no negative example.
#[derive(Clone, Debug)]
pub struct NonLinks {
    graph: Csr,
    is_symmetric: bool,
}

impl NonLinks {
    /// Sampler for a graph with `n_links` links.
    ///
    /// # Errors
    /// When nearly all pairs are links.
    pub fn new(graph: Csr, n_links: usize) -> Result<Self, TrainError> {
        let n_nodes = graph.n_rows() as u128;
        let n_pairs = n_nodes * n_nodes.saturating_sub(1) / 2;
        let n_others = n_pairs - (n_links as u128).min(n_pairs);
        if n_others == 0 || n_pairs / n_others > TRIES_MAX {
            return Err(TrainError::invalid(format!(
                "{n_links} links join nearly all of {n_pairs} pairs of nodes, and {n_others} are left to hold them against; \
                 link prediction needs a graph of which at least one pair in {TRIES_MAX} is no link"
            )));
        }
        let is_symmetric = graph.is_symmetric();
        Ok(Self { graph, is_symmetric })
    }

    /// Next pair of a stream.
    #[must_use]
    pub fn draw(&self, mut stream: Stream) -> Link {
        let n_nodes = self.graph.n_rows() as u64;
        loop {
            // Terminates, since enough pairs are non-links.
            let (u, v) = (stream.below(n_nodes) as NodeId, stream.below(n_nodes) as NodeId);
            if u != v && !self.is_link([u, v]) {
                return [u, v];
            }
        }
    }

    /// Whether an edge joins two nodes.
    #[must_use]
    pub fn is_link(&self, [u, v]: Link) -> bool {
        let lists = |row: NodeId, column: NodeId| self.graph.row(row as usize).binary_search(&column).is_ok();
        lists(u, v) || (!self.is_symmetric && lists(v, u))
    }
}
