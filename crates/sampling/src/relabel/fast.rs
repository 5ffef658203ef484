//! [`ToBlockFast`]: two bitmaps and one hash map (Li et al., 2025, toBlockFast).

use super::classic::list_edges;
use super::edges::{assemble, foreign_destination, repeated};
use super::hash::NodeMap;
use super::rank::{Bitmap, RankTable};
use super::{HopPlan, NewNodes, Relabeller, SampledEdges, ascend};
use crate::{Block, NodeId, SampleError};

/// Blocks of one batch after the other, hop by hop. The first bitmap holds the destinations of a hop, the second all nodes
/// found so far; a hash map gives the local ids of sources and is kept from hop to hop, in which destinations are
/// sources found before.
///
/// Rows of destinations need the first bitmap alone (the rank of a bit leads to its place), while sources change the
/// second bitmap and the map: both run at once, on two threads where there are.
#[derive(Default)]
pub struct ToBlockFast {
    destinations: RankTable,
    sources: SourceMap,
    nodes: Vec<NodeId>,
    /// Local ids of the destinations and sources of edges.
    rows: Vec<NodeId>,
    columns: Vec<NodeId>,
}

impl ToBlockFast {
    /// A batch begins with its seeds, nodes below `n_nodes`.
    ///
    /// # Errors
    /// When a seed is listed twice or is not below `n_nodes`.
    pub fn begin(&mut self, n_nodes: usize, seeds: &[NodeId]) -> Result<(), SampleError> {
        if let Some(&seed) = seeds.iter().find(|&&seed| seed as usize >= n_nodes) {
            return Err(beyond(seed, n_nodes));
        }
        self.sources.begin(n_nodes, seeds);
        self.destinations.begin(n_nodes);
        self.nodes.clear();
        for (at, &seed) in seeds.iter().enumerate() {
            if self.destinations.contains(seed) {
                return Err(repeated("seed", seeds, at));
            }
            self.destinations.mark(&[seed]);
        }
        self.nodes.extend_from_slice(seeds);
        Ok(())
    }

    /// The next hop's block: its destinations are all nodes found so far.
    ///
    /// # Errors
    /// When an edge ends in no destination or starts beyond the nodes there are, or arrays differ in length.
    pub fn block(&mut self, edges: &SampledEdges, order: NewNodes) -> Result<Block, SampleError> {
        let mut block = Block::default();
        self.block_into(edges, order, &mut block)?;
        Ok(block)
    }

    /// As [`block`](Self::block), into the memory of another block.
    ///
    /// # Errors
    /// As [`block`](Self::block).
    pub fn block_into(&mut self, edges: &SampledEdges, order: NewNodes, block: &mut Block) -> Result<(), SampleError> {
        edges.check()?;
        if let Some(&source) = edges.sources.iter().find(|&&source| source as usize >= self.sources.n_nodes) {
            return Err(beyond(source, self.sources.n_nodes));
        }
        let Self { destinations, sources, nodes, rows, columns } = self;
        let n_destinations = nodes.len();
        destinations.place(nodes);
        columns.clear();
        let (has_rows, ()) = rayon::join(
            || find_rows(destinations, &edges.destinations, rows),
            || columns.extend(edges.sources.iter().map(|&source| sources.insert(source, nodes))),
        );
        has_rows?;
        if order == NewNodes::Ascending {
            ascend(nodes, n_destinations, columns, |node, place| sources.place(node, place));
        }
        destinations.mark(&nodes[n_destinations..]);
        assemble(nodes, n_destinations, rows, columns, &edges.edge_ids, block);
        Ok(())
    }
}

/// Finds the local ids of destinations; most edges have that of the edge before.
fn find_rows(destinations: &RankTable, nodes: &[NodeId], rows: &mut Vec<NodeId>) -> Result<(), SampleError> {
    rows.clear();
    let mut edge = 0;
    for same in nodes.chunk_by(|a, b| a == b) {
        if !destinations.contains(same[0]) {
            return Err(foreign_destination(edge, same[0]));
        }
        rows.resize(edge + same.len(), destinations.get(same[0]));
        edge += same.len();
    }
    Ok(())
}

fn beyond(node: NodeId, n_nodes: usize) -> SampleError {
    SampleError::invalid(format!("node {node} does not exist: there are {n_nodes} nodes, counted from 0"))
}

/// The second bitmap and the map.
#[derive(Default)]
pub(super) struct SourceMap {
    n_nodes: usize,
    seen: Bitmap,
    local: NodeMap,
}

impl SourceMap {
    pub(super) fn begin(&mut self, n_nodes: usize, seeds: &[NodeId]) {
        self.n_nodes = n_nodes;
        self.seen.begin(n_nodes);
        self.local.clear();
        for (&seed, place) in seeds.iter().zip(0..) {
            self.seen.insert(seed);
            self.local.insert(seed, place);
        }
    }

    /// The local id of a source, which is the next one if it is new: one step for both.
    #[inline(always)]
    pub(super) fn insert(&mut self, source: NodeId, nodes: &mut Vec<NodeId>) -> NodeId {
        if !self.seen.insert(source) {
            return self.local[&source];
        }
        let place = nodes.len() as NodeId;
        nodes.push(source);
        self.local.insert(source, place);
        place
    }

    /// Gives a source another local id.
    pub(super) fn place(&mut self, source: NodeId, place: NodeId) {
        self.local.insert(source, place);
    }
}

/// [`ToBlockFast`] at the hand of a sampler.
pub(crate) struct Fast {
    order: NewNodes,
    edges: SampledEdges,
    operator: ToBlockFast,
}

impl Fast {
    pub(crate) fn new(order: NewNodes) -> Self {
        Self { order, edges: SampledEdges::default(), operator: ToBlockFast::default() }
    }
}

impl Relabeller for Fast {
    fn begin(&mut self, n_nodes: usize, seeds: &[NodeId]) {
        self.operator.begin(n_nodes, seeds).expect("a sampler's seeds are checked");
    }

    fn hop(&mut self, plan: HopPlan<'_>, nodes: &mut Vec<NodeId>, block: &mut Block) {
        list_edges(plan, nodes, block, &mut self.edges);
        let relabelled = self.operator.block_into(&self.edges, self.order, block);
        relabelled.expect("a sampler's edges end in its destinations");
        nodes.clone_from(&block.nodes);
    }
}
