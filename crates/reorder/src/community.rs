//! [`Community`]: order by nested communities, with nodes by falling degree inside.

mod chain;
mod coarsen;
mod dendrogram;
mod local_moves;
mod network;

use girih_graph_format::{Csr, Permutation};

use self::dendrogram::{Dendrogram, Siblings};
use crate::quality::{Block, coverage_of};
use crate::simple::visited;
use crate::{Progress, Reorder, ReorderError, square, undirected};

/// Order by nested communities, each of which is consecutive, as in the dendrogram of Louvain's method (Blondel et
/// al., J. Stat. Mech. 2008; orders of this kind: Arai et al., Rabbit Order, IPDPS 2016).
///
/// Small communities are not opened any further. Their nodes are in falling order of degree, so that the busiest rows
/// and columns of a community meet in few dense tiles. Two orders of the communities inside one are tried: by number
/// of edges, and as chains of neighbors. The one with more non-zeros in blocks of [`Block::LARGE`] that are
/// [`DENSE`](Self::DENSE) enough for tensor cores wins. An edge counts in both directions; self-loops do not count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Community {
    /// Maximum number of nodes of a community that is not opened.
    pub leaf: usize,
    /// Resolution of the modularity, above 0: larger values give smaller communities.
    pub resolution: f64,
}

impl Community {
    /// Minimum density of a block for which tensor cores pay (measured on one GPU of compute capability 9.0).
    pub const DENSE: f64 = 0.02;
}

impl Default for Community {
    fn default() -> Self {
        Self { leaf: 64, resolution: 1.0 }
    }
}

impl Reorder for Community {
    fn name(&self) -> String {
        "community".to_owned()
    }

    fn order_with(&self, graph: &Csr, progress: &Progress<'_>) -> Result<Permutation, ReorderError> {
        square(graph)?;
        if !(self.resolution > 0.0 && self.resolution.is_finite()) {
            return Err(ReorderError::invalid(format!("a resolution of {}; it is a positive number", self.resolution)));
        }
        let graph = undirected(graph);
        let dendrogram = Dendrogram::new(&graph, self.resolution, progress);
        let [busiest, chained] = [Siblings::Busiest, Siblings::Chained]
            .map(|siblings| visited(dendrogram.order(&graph, self.leaf, siblings)));
        let covered = |order: &Permutation| coverage_of(&graph, order, Block::LARGE, Self::DENSE);
        Ok(if covered(&chained) > covered(&busiest) { chained } else { busiest })
    }
}
