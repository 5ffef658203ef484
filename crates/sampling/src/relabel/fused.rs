//! [`Fused`]: relabelling while edges are drawn (Li et al., 2025, fusion of sampling and toBlockFast).

use super::fast::SourceMap;
use super::{HopPlan, NewNodes, Relabeller, ascend};
use crate::draw::Sink;
use crate::{Block, NodeId};

/// Two bitmaps become one here: rows are known while their edges are drawn, so that nothing asks for destinations.
pub(crate) struct Fused {
    order: NewNodes,
    sources: SourceMap,
}

impl Fused {
    pub(crate) fn new(order: NewNodes) -> Self {
        Self { order, sources: SourceMap::default() }
    }
}

/// Writes the columns of a block as edges come.
struct ColumnSink<'a> {
    sources: &'a mut SourceMap,
    /// Nodes found so far.
    nodes: &'a mut Vec<NodeId>,
    columns: &'a mut Vec<NodeId>,
}

impl Sink for ColumnSink<'_> {
    #[inline(always)]
    fn take(&mut self, sources: &[NodeId]) {
        self.columns.extend(sources.iter().map(|&source| self.sources.insert(source, self.nodes)));
    }
}

impl Relabeller for Fused {
    fn begin(&mut self, n_nodes: usize, seeds: &[NodeId]) {
        self.sources.begin(n_nodes, seeds);
    }

    fn hop(&mut self, plan: HopPlan<'_>, nodes: &mut Vec<NodeId>, block: &mut Block) {
        let (n_old, n_kept) = (nodes.len(), block.indices.len());
        let mut sink = ColumnSink { sources: &mut self.sources, nodes, columns: &mut block.indices };
        plan.run(&mut block.indptr, &mut block.edge_ids, &mut sink);
        if self.order == NewNodes::Ascending {
            let sources = &mut self.sources;
            ascend(nodes, n_old, &mut block.indices[n_kept..], |node, place| sources.place(node, place));
        }
    }
}
