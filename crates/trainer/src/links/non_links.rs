//! [`NonLinks`]: pairs of nodes that no edge joins.

use girih_graph_format::{Csr, NodeId};
use girih_random::Stream;

use super::Link;
use crate::TrainError;

/// Of so many pairs at least one must be no link: drawing again until one is found would otherwise go on for long.
const TRIES_MAX: u128 = 100;

/// Draws pairs of different nodes that no edge of a graph joins, in either direction, each as likely as any other.
/// Edges of every part count, held-out ones also: a pair that is held against links must not be one.
#[derive(Clone, Debug)]
pub struct NonLinks {
    graph: Csr,
    is_symmetric: bool,
}

impl NonLinks {
    /// Of a graph with so many links.
    ///
    /// # Errors
    /// When hardly a pair is no link.
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

    /// The next pair of a stream.
    #[must_use]
    pub fn draw(&self, mut stream: Stream) -> Link {
        let n_nodes = self.graph.n_rows() as u64;
        loop {
            // Ends: enough pairs are no links.
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
