//! [`Parts`]: METIS's parts of a graph, one after the other.

use girih_graph_format::{Csr, NodeId, Permutation};

use crate::clusters::even_parts;
use crate::simple::visited;
use crate::{Blockwise, Community, Progress, Reorder, ReorderError};

/// As many parts as there will be ranks, of nearly equal numbers of nodes and of edges, with few edges between them
/// (METIS's k-way partition with two constraints: Karypis and Kumar, SIAM J. Sci. Comput. 1998, and SC 1998), each a
/// range of ids, and [communities](Community) inside.
///
/// It moves neighbours into the same range, as an order of the whole graph does, and keeps the work of ranges even, as
/// [`Blockwise`] orders do. METIS lets parts differ by a few percent, so that some nodes at the ends of equal ranges
/// belong to the part beside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parts {
    /// Number of parts.
    pub n_parts: usize,
    /// The order inside each.
    pub inner: Community,
}

impl Reorder for Parts {
    fn name(&self) -> String {
        format!("{} parts", self.n_parts)
    }

    fn order_with(&self, graph: &Csr, progress: &Progress<'_>) -> Result<Permutation, ReorderError> {
        let part_of = even_parts(graph, self.n_parts)?;
        let mut nodes: Vec<NodeId> = (0..graph.n_rows() as NodeId).collect();
        nodes.sort_by_key(|&v| part_of[v as usize]);
        let by_part = visited(nodes);
        let inside = Blockwise { blocks: self.n_parts, inner: self.inner };
        let inside = inside.order_with(&graph.permuted(&by_part), progress)?;
        Ok(by_part.then(&inside))
    }
}
