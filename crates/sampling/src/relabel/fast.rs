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
        edges.check()?;
        if let Some(&source) = edges.sources.iter().find(|&&source| source as usize >= self.sources.n_nodes) {
            return Err(beyond(source, self.sources.n_nodes));
        }
        let n_destinations = self.nodes.len();
        self.destinations.place(&self.nodes);
        let (destinations, sources, nodes) = (&self.destinations, &mut self.sources, &mut self.nodes);
        let (rows, mut columns) = rayon::join(
            || rows_of(destinations, &edges.destinations),
            || edges.sources.iter().map(|&source| sources.insert(source, nodes)).collect::<Vec<_>>(),
        );
        let rows = rows?;
        if order == NewNodes::Ascending {
            ascend(nodes, n_destinations, &mut columns, |node, place| sources.place(node, place));
        }
        self.destinations.mark(&nodes[n_destinations..]);
        Ok(assemble(self.nodes.clone(), n_destinations, &rows, columns, &edges.edge_ids))
    }
}

/// Local ids of destinations.
fn rows_of(destinations: &RankTable, nodes: &[NodeId]) -> Result<Vec<NodeId>, SampleError> {
    let row_of = |(edge, &node): (usize, &NodeId)| {
        if destinations.contains(node) { Ok(destinations.get(node)) } else { Err(foreign_destination(edge, node)) }
    };
    nodes.iter().enumerate().map(row_of).collect()
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
        *block = self.operator.block(&self.edges, self.order).expect("a sampler's edges end in its destinations");
        nodes.clone_from(&block.nodes);
    }
}
