//! [`to_block`]: the baseline operator.

use super::edges::{assemble, foreign_destination, repeated};
use super::hash::NodeMap;
use super::{HopPlan, NewNodes, Relabeller, SampledEdges};
use crate::{Block, NodeId, SampleError};

/// Makes a block from a list of edges, as DGL's `to_block` does. It uses one hash map of destinations, one of sources
/// that begins with the destinations, and a probe for each end of an edge.
///
/// # Errors
/// When a destination is listed twice, an edge ends outside `destinations`, or arrays differ in length.
pub fn to_block(edges: &SampledEdges, destinations: &[NodeId], order: NewNodes) -> Result<Block, SampleError> {
    edges.check()?;
    let mut rows_of = NodeMap::with_capacity_and_hasher(destinations.len(), Default::default());
    for (row, &node) in destinations.iter().enumerate() {
        if rows_of.insert(node, row as NodeId).is_some() {
            return Err(repeated("destination", destinations, row));
        }
    }
    let mut nodes = destinations.to_vec();
    let mut columns_of = rows_of.clone();
    for &source in &edges.sources {
        columns_of.entry(source).or_insert_with(|| {
            nodes.push(source);
            nodes.len() as NodeId - 1
        });
    }
    let mut columns: Vec<NodeId> = edges.sources.iter().map(|source| columns_of[source]).collect();
    let row_of = |(edge, node)| rows_of.get(node).copied().ok_or_else(|| foreign_destination(edge, *node));
    let rows: Vec<NodeId> = edges.destinations.iter().enumerate().map(row_of).collect::<Result<_, _>>()?;
    if order == NewNodes::Ascending {
        ascend(&mut nodes, destinations.len(), &mut columns);
    }
    let mut block = Block::default();
    assemble(&nodes, destinations.len(), &rows, &columns, &edges.edge_ids, &mut block);
    Ok(block)
}

/// Adapter of [`to_block`] to samplers.
pub(crate) struct Classic {
    order: NewNodes,
    edges: SampledEdges,
}

impl Classic {
    pub(crate) fn new(order: NewNodes) -> Self {
        Self { order, edges: SampledEdges::default() }
    }
}

impl Relabeller for Classic {
    fn begin(&mut self, _: usize, _: &[NodeId]) {}

    fn hop(&mut self, plan: HopPlan<'_>, nodes: &mut Vec<NodeId>, block: &mut Block) {
        list_edges(plan, nodes, block, &mut self.edges);
        *block = to_block(&self.edges, nodes, self.order).expect("a sampler's edges end in its destinations");
        nodes.clone_from(&block.nodes);
    }
}

/// Lists the edges that the block has, and then those of the hop, as pairs of global ids.
pub(super) fn list_edges(plan: HopPlan<'_>, nodes: &[NodeId], block: &mut Block, edges: &mut SampledEdges) {
    edges.clear();
    edges.sources.extend(block.indices.iter().map(|&column| nodes[column as usize]));
    edges.edge_ids.extend_from_slice(&block.edge_ids);
    plan.run(&mut block.indptr, &mut edges.edge_ids, &mut edges.sources);
    for (offsets, &node) in block.indptr.windows(2).zip(nodes) {
        edges.destinations.extend(std::iter::repeat_n(node, (offsets[1] - offsets[0]) as usize));
    }
}

/// Sorts new nodes, `nodes[n_old..]`, from the order as first seen into ascending order; columns follow.
fn ascend(nodes: &mut [NodeId], n_old: usize, columns: &mut [NodeId]) {
    let new = &mut nodes[n_old..];
    let mut sorted: Vec<(NodeId, u32)> = new.iter().zip(0..).map(|(&node, seen)| (node, seen)).collect();
    sorted.sort_unstable();
    let mut places = vec![0; sorted.len()];
    for (place, &(node, seen)) in sorted.iter().enumerate() {
        places[seen as usize] = (n_old + place) as NodeId;
        new[place] = node;
    }
    for column in columns {
        if let Some(&place) = (*column as usize).checked_sub(n_old).and_then(|seen| places.get(seen)) {
            *column = place;
        }
    }
}
