//! [`Parts`]: METIS's parts of a graph, one after the other.

use girih_graph_format::{Csr, NodeId, Permutation};

use crate::simple::visited;
use crate::{Blockwise, Community, Progress, Reorder, ReorderError, clusters};

/// As many parts of nearly equal size as there will be ranks, with few edges between them (METIS's k-way partition: Karypis and
/// Kumar, SIAM J. Sci. Comput. 1998), each a range of ids, and [communities](Community) inside.
///
/// Of [`Blockwise`] orders this is the one that moves neighbours into the same range: what ranks send each other becomes less, and
/// ranges stay of one size. METIS lets parts differ by 3 %, so that a few nodes at the ends of equal ranges belong to the part beside.
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
        let part_of = clusters(graph, self.n_parts)?;
        let mut nodes: Vec<NodeId> = (0..graph.n_rows() as NodeId).collect();
        nodes.sort_by_key(|&v| part_of[v as usize]);
        let by_part = visited(nodes);
        let inside = Blockwise { blocks: self.n_parts, inner: self.inner };
        let inside = inside.order_with(&graph.permuted(&by_part), progress)?;
        Ok(by_part.then(&inside))
    }
}
