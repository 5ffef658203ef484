//! [`Parts`]: order by the parts of a METIS partition.

use girih_graph_format::{Csr, NodeId, Permutation};

use crate::clusters::even_parts;
use crate::simple::visited;
use crate::{Blockwise, Community, Progress, Reorder, ReorderError};

/// Order by parts, one per rank, with nearly equal numbers of nodes and of edges, and few edges between parts
/// (METIS's k-way partition with two constraints: Karypis and Kumar, SIAM J. Sci. Comput. 1998, and SC 1998). Each
/// part is a range of ids, and has [communities](Community) inside.
///
/// It moves neighbors into one range, as an order of the whole graph does, and balances the work of ranges, as
/// [`Blockwise`] orders do. METIS lets part sizes differ by a few percent, so some nodes at the ends of equal ranges
/// belong to the adjacent part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parts {
    /// Number of parts.
    pub n_parts: usize,
    /// Order inside each part.
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
