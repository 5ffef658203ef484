//! [`Community`]: nested communities, nodes by falling degree inside.

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

/// Communities within communities, each of them consecutive, as the dendrogram of Louvain's method nests them (Blondel
/// et al., J. Stat. Mech. 2008; orders of this kind: Arai et al., Rabbit Order, IPDPS 2016).
///
/// Communities that are small enough are not opened any further: their nodes come by falling degree, so that the
/// busiest rows and columns of a community meet in few dense tiles. Communities inside one come either by how busy they
/// are or so that neighbours follow each other, whichever leaves more non-zeros in blocks of [`Block::LARGE`] that are
/// [`DENSE`](Self::DENSE) enough for tensor cores. An edge counts in both directions; self-loops do not count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Community {
    /// Communities of at most this many nodes are not opened.
    pub leaf: usize,
    /// How much a community's size counts against it: larger values give smaller communities.
    pub resolution: f64,
}

impl Community {
    /// The share of a block that has to be filled for tensor cores to pay (measured on one GPU of compute capability
    /// 9.0).
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
