//! [`Rule`]: the rule by which a hop draws edges, and the places that they go to.

use girih_machine::prefetch;

use crate::fan_out::Neighbors;
use crate::{Bias, ExcludedEdges, NodeId, Patch};

/// Scope of the draws of a hop: per node, per layer or shared by all nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Draws {
    /// Each node draws neighbors for itself, as many as the fan-out (Hamilton et al., GraphSAGE, NeurIPS 2017,
    /// section 3.1).
    #[default]
    PerNode,
    /// The fan-out is the number of draws of the whole hop. Each draw falls to a node with a chance in proportion to
    /// its degree, or to the weights of its edges. The node then draws that many neighbors for itself; without
    /// replacement, at most all that it has (Cai et al., DSP, PPoPP 2023, layer-wise sampling).
    PerLayer,
    /// Nodes share the drawn numbers: LABOR-0 (Balın and Çatalyürek, NeurIPS 2023, section 3.2). A node of degree `d`
    /// takes each neighbor with the chance `fan-out / d`, so that it gets the fan-out on average. One draw per
    /// neighbor serves all nodes, so that they tend to take equal neighbors. Blocks have weights. A hop reads all
    /// neighbors, and its cost is in proportion to their number.
    Labor,
}

/// Rule by which the edges of one hop are drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule<'a> {
    pub(crate) neighbors: Neighbors,
    pub(crate) draws: Draws,
    pub(crate) replace: bool,
    pub(crate) bias: Option<&'a Bias>,
    pub(crate) excluded: &'a ExcludedEdges,
}

impl Rule<'_> {
    /// Whether nodes draw by the fan-out and with or without replacement alone, as `lanes` do. It names every field, so
    /// that whoever adds one decides here whether lanes may ignore it.
    #[inline]
    pub(crate) fn is_plain(self) -> bool {
        let Self { neighbors: _, draws, replace: _, bias, excluded } = self;
        draws != Draws::Labor && bias.is_none() && excluded.is_empty()
    }
}

/// Rule of a hop, with the fan-outs of its nodes where these are known.
#[derive(Clone, Copy)]
pub(crate) struct HopRule<'a> {
    /// Rule by which all nodes draw.
    pub(crate) rule: Rule<'a>,
    /// Number of draws of each node, which replaces the fan-out of the rule.
    pub(crate) shares: Option<&'a [u32]>,
}

/// Output arrays of a hop; draws are appended.
pub(crate) struct Drawn<'a> {
    /// Offsets of rows; begins with the end of the row before, and gets one more for each node.
    pub(crate) indptr: &'a mut Vec<u64>,
    /// Position of each edge in the graph, if wanted.
    pub(crate) edge_ids: Option<&'a mut Vec<u64>>,
}

/// Rows of edges that nodes draw from.
pub(crate) trait DrawnRows: Copy {
    /// Asks for the memory that [`ranges`](Self::ranges) will read.
    fn ask(self, node: NodeId);

    /// Places in [`sources`](Self::sources) of the edges that each of some nodes may draw: the first, and their number.
    fn ranges(self, nodes: &[NodeId], starts: &mut [u64], degrees: &mut [u32]);

    /// Sources of all edges.
    fn sources(&self) -> &[NodeId];

    /// Id of the edge at a place.
    fn edge(self, place: usize) -> u64;
}

impl DrawnRows for Patch<'_> {
    #[inline(always)]
    fn ask(self, node: NodeId) {
        prefetch(self.rows().indptr().as_ptr().wrapping_add(self.row(node)));
    }

    #[inline(always)]
    fn ranges(self, nodes: &[NodeId], starts: &mut [u64], degrees: &mut [u32]) {
        let indptr = self.rows().indptr();
        for ((&node, first), degree) in nodes.iter().zip(starts).zip(degrees) {
            let (start, end) = (indptr[self.row(node)], indptr[self.row(node) + 1]);
            *first = start;
            *degree = (end - start) as u32;
        }
    }

    #[inline(always)]
    fn sources(&self) -> &[NodeId] {
        self.rows().indices()
    }

    #[inline(always)]
    fn edge(self, place: usize) -> u64 {
        Patch::edge(self, place)
    }
}

/// Consumer of the sources of a hop's edges, in order, some at a time.
pub(crate) trait Sink {
    /// Takes the sources of the next edges. The division into calls is independent of rows.
    fn take(&mut self, sources: &[NodeId]);
}

impl Sink for Vec<NodeId> {
    #[inline(always)]
    fn take(&mut self, sources: &[NodeId]) {
        self.extend_from_slice(sources);
    }
}
