//! [`ToBlockFast`]: two bitmaps and one hash map (Li et al., 2025, toBlockFast).

use super::classic::list_edges;
use super::edges::{assemble, foreign_destination, repeated};
use super::rank::RankTable;
use super::sources::SourceMap;
use super::{HopPlan, NewNodes, Relabeller, SampledEdges};
use crate::{Block, NodeId, SampleError};

/// Operator that makes the blocks of one batch after the other, hop by hop. The first bitmap holds the destinations
/// of a hop, the second all nodes found so far. A hash map gives the local ids of sources. It is kept from hop to
/// hop, as the destinations of a hop are sources found before.
///
/// Rows of destinations need the first bitmap alone: the rank of a bit leads to the local id. Sources change the
/// second bitmap and the map. So both run at once, on two threads if available.
#[derive(Default)]
pub struct ToBlockFast {
    order: NewNodes,
    n_nodes: usize,
    destinations: RankTable,
    sources: SourceMap,
    nodes: Vec<NodeId>,
    /// Local ids of the destinations and sources of edges.
    rows: Vec<NodeId>,
    columns: Vec<NodeId>,
}

impl ToBlockFast {
    /// Makes an operator whose blocks list new nodes in `order`.
    #[must_use]
    pub fn new(order: NewNodes) -> Self {
        Self { order, ..Self::default() }
    }

    /// Begins a batch with its seeds, which are nodes below `n_nodes`.
    ///
    /// # Errors
    /// When a seed is listed twice or is not below `n_nodes`.
    pub fn begin(&mut self, n_nodes: usize, seeds: &[NodeId]) -> Result<(), SampleError> {
        if let Some(&seed) = seeds.iter().find(|&&seed| seed as usize >= n_nodes) {
            return Err(beyond(seed, n_nodes));
        }
        self.n_nodes = n_nodes;
        self.destinations.begin(n_nodes);
        self.nodes.clear();
        for (at, &seed) in seeds.iter().enumerate() {
            if self.destinations.set().contains(seed) {
                return Err(repeated("seed", seeds, at));
            }
            self.destinations.mark(&[seed]);
        }
        self.sources.begin(n_nodes, seeds);
        self.nodes.extend_from_slice(seeds);
        Ok(())
    }

    /// Makes the block of the next hop: its destinations are all nodes found so far.
    ///
    /// # Errors
    /// When an edge ends outside the destinations, a source is not below `n_nodes`, or arrays differ in length.
    pub fn block(&mut self, edges: &SampledEdges) -> Result<Block, SampleError> {
        let mut block = Block::default();
        self.block_into(edges, &mut block)?;
        Ok(block)
    }

    /// As [`block`](Self::block), but into the memory of another block.
    ///
    /// # Errors
    /// As [`block`](Self::block).
    pub fn block_into(&mut self, edges: &SampledEdges, block: &mut Block) -> Result<(), SampleError> {
        edges.check()?;
        if let Some(&source) = edges.sources.iter().find(|&&source| source as usize >= self.n_nodes) {
            return Err(beyond(source, self.n_nodes));
        }
        let Self { order, destinations, sources, nodes, rows, columns, .. } = self;
        let n_destinations = nodes.len();
        destinations.place(nodes);
        columns.clear();
        let mut has_rows = Ok(());
        rayon::in_place_scope(|scope| {
            scope.spawn(|_| has_rows = find_rows(destinations, &edges.destinations, rows));
            sources.insert(&edges.sources, nodes, columns);
        });
        has_rows?;
        if *order == NewNodes::Ascending {
            sources.ascend(destinations.set(), nodes, n_destinations, columns);
        }
        destinations.mark(&nodes[n_destinations..]);
        assemble(nodes, n_destinations, rows, columns, &edges.edge_ids, block);
        Ok(())
    }
}

/// Finds the local ids of destinations; most edges have the destination of the edge before.
fn find_rows(destinations: &RankTable, nodes: &[NodeId], rows: &mut Vec<NodeId>) -> Result<(), SampleError> {
    rows.clear();
    let mut edge = 0;
    for same in nodes.chunk_by(|a, b| a == b) {
        let row = destinations.find(same[0]).ok_or_else(|| foreign_destination(edge, same[0]))?;
        rows.resize(edge + same.len(), row);
        edge += same.len();
    }
    Ok(())
}

fn beyond(node: NodeId, n_nodes: usize) -> SampleError {
    SampleError::invalid(format!("node {node} does not exist: there are {n_nodes} nodes, counted from 0"))
}

/// Adapter of [`ToBlockFast`] to samplers.
pub(crate) struct Fast {
    edges: SampledEdges,
    operator: ToBlockFast,
}

impl Fast {
    pub(crate) fn new(order: NewNodes) -> Self {
        Self { edges: SampledEdges::default(), operator: ToBlockFast::new(order) }
    }
}

impl Relabeller for Fast {
    fn begin(&mut self, n_nodes: usize, seeds: &[NodeId]) {
        self.operator.begin(n_nodes, seeds).expect("a sampler's seeds are checked");
    }

    fn hop(&mut self, plan: HopPlan<'_>, nodes: &mut Vec<NodeId>, block: &mut Block) {
        list_edges(plan, nodes, block, &mut self.edges);
        let relabelled = self.operator.block_into(&self.edges, block);
        relabelled.expect("a sampler's edges end in its destinations");
        nodes.clone_from(&block.nodes);
    }
}
