//! [`Fused`]: relabelling while edges are drawn (Li et al., 2025, fusion of sampling and toBlockFast).

use super::rank::Bitmap;
use super::sources::SourceMap;
use super::{HopPlan, NewNodes, Relabeller};
use crate::draw::Sink;
use crate::{Block, NodeId};

/// Relabelling operator that knows rows while their edges are drawn, so that destinations need no look-up. Their
/// bitmap serves the order of new nodes alone.
pub(crate) struct Fused {
    order: NewNodes,
    destinations: Bitmap,
    sources: SourceMap,
}

impl Fused {
    pub(crate) fn new(order: NewNodes) -> Self {
        Self { order, destinations: Bitmap::default(), sources: SourceMap::default() }
    }
}

/// Sink that writes the columns of a block as edges arrive.
struct ColumnSink<'a> {
    sources: &'a mut SourceMap,
    /// Nodes found so far.
    nodes: &'a mut Vec<NodeId>,
    columns: &'a mut Vec<NodeId>,
}

impl Sink for ColumnSink<'_> {
    #[inline(always)]
    fn take(&mut self, sources: &[NodeId]) {
        self.sources.insert(sources, self.nodes, self.columns);
    }
}

impl Relabeller for Fused {
    fn begin(&mut self, n_nodes: usize, seeds: &[NodeId]) {
        self.sources.begin(n_nodes, seeds);
        self.destinations.begin(n_nodes);
        self.destinations.mark(seeds);
    }

    fn hop(&mut self, plan: HopPlan<'_>, nodes: &mut Vec<NodeId>, block: &mut Block) {
        let (n_old, n_kept) = (nodes.len(), block.indices.len());
        let mut sink = ColumnSink { sources: &mut self.sources, nodes, columns: &mut block.indices };
        plan.run(&mut block.indptr, &mut block.edge_ids, &mut sink);
        if self.order == NewNodes::Ascending {
            self.sources.ascend(&self.destinations, nodes, n_old, &mut block.indices[n_kept..]);
            self.destinations.mark(&nodes[n_old..]);
        }
    }
}
