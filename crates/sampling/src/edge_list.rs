//! [`EdgeList`]: a mini-batch as one list of edges, as `PyG` has it.

use std::iter::repeat_n;

use crate::block::check_local;
use crate::{Block, Expand, MiniBatch, NodeId, SampleError, Subgraph};

/// Integer type of ids for other libraries, which read signed ones. Ids lie below 2³¹, so that both types hold them.
pub trait Index: Copy + Default + Send + Sync + 'static {
    /// Id of a node, or its position in a batch.
    fn of(id: NodeId) -> Self;
}

impl Index for i32 {
    #[inline]
    fn of(id: NodeId) -> Self {
        id.cast_signed()
    }
}

impl Index for i64 {
    #[inline]
    fn of(id: NodeId) -> Self {
        Self::from(id)
    }
}

/// Edges of a mini-batch as pairs of local ids, hop after hop from the seeds on; its memory is reused by
/// [`fill`](Self::fill).
///
/// ```
/// use girih_graph_format::{Coo, Duplicates};
/// use girih_sampling::{DrawKey, EdgeList, Expand, NeighborOptions, NeighborSampler, Sampler};
///
/// // 1 → 0 and 2 → 1.
/// let graph = Coo::new(3, 3, vec![0, 1], vec![1, 2], None)?.to_csr(Duplicates::Refuse)?;
/// let options = NeighborOptions { expand: Expand::Once, ..NeighborOptions::default() };
/// let batch = NeighborSampler::new("-1,-1".parse()?, options)?.sample(&graph, &[0], DrawKey::new(0, 0, 0))?;
/// let mut list = EdgeList::<i64>::default();
/// list.fill(&batch, options.expand, None)?;
/// assert_eq!(list.nodes, [0, 1, 2]);
/// assert_eq!(list.edge_index, [1, 2, /* to */ 0, 1]);
/// assert_eq!((list.nodes_by_hop, list.edges_by_hop), (vec![1, 1, 1], vec![1, 1]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EdgeList<I> {
    /// Sources of all edges, then their destinations: `2 × n_edges`, positions in `nodes`.
    pub edge_index: Vec<I>,
    /// Global ids: the seeds, then the nodes that each hop found.
    pub nodes: Vec<I>,
    /// Number of seeds, then of the nodes that each hop found.
    pub nodes_by_hop: Vec<usize>,
    /// Number of edges that each hop drew.
    pub edges_by_hop: Vec<usize>,
    /// Edge of the input block that each listed edge is; empty where they are the same, in the same order.
    pub edge_of: Vec<u32>,
}

impl<I: Index> EdgeList<I> {
    /// Lists the edges of a batch. `expand` is the option of its sampler: nodes must have drawn once, or the batch must
    /// have one block. It is not checked that the sampler had it.
    ///
    /// `seed_rows` is for seeds that are listed repeatedly, which samplers refuse: the batch was then sampled for the
    /// distinct ones, and seed `i` is destination `seed_rows[i]`. Each of its copies has the neighbors of the node;
    /// as a neighbor, the node is its first copy. Every distinct seed must be listed.
    ///
    /// # Errors
    /// When nodes drew anew in every hop, columns are global, or a seed is not a destination.
    ///
    /// # Panics
    /// When nodes drew anew in every hop and `expand` says otherwise; without debug assertions, the list may be wrong.
    pub fn fill(&mut self, batch: &MiniBatch, expand: Expand, seed_rows: Option<&[u32]>) -> Result<(), SampleError> {
        self.clear();
        let Some(block) = batch.blocks.first() else { return Ok(()) };
        if expand == Expand::PerLayer && batch.blocks.len() > 1 {
            return Err(drew_anew());
        }
        check_local(block)?;
        let hops = || batch.blocks.iter().rev();
        self.nodes_by_hop.extend(by_hop(hops().map(|hop| hop.n_destinations).chain([block.nodes.len()])));
        self.edges_by_hop.extend(by_hop(hops().map(Block::n_edges)));
        debug_assert!(batch.blocks[1..].iter().all(|nearer| block.indices.starts_with(&nearer.indices)), "drew once");
        match seed_rows {
            None => self.fill_block(block),
            Some(rows) => self.fill_repeated(block, batch.seeds().len(), rows)?,
        }
        Ok(())
    }

    /// Lists the edges of a subgraph: its nodes are all found at once.
    pub fn fill_subgraph(&mut self, subgraph: &Subgraph) {
        self.clear();
        self.fill_block(&subgraph.block);
        self.nodes_by_hop.push(subgraph.block.nodes.len());
        self.edges_by_hop.push(subgraph.block.n_edges());
    }

    fn clear(&mut self) {
        self.edge_index.clear();
        self.nodes.clear();
        self.nodes_by_hop.clear();
        self.edges_by_hop.clear();
        self.edge_of.clear();
    }

    fn fill_block(&mut self, block: &Block) {
        self.nodes.extend(block.nodes.iter().map(|&id| I::of(id)));
        list_rows(&mut self.edge_index, &block.indptr, &block.indices);
    }

    /// As [`fill_block`](Self::fill_block), with a row for each of the repeated seeds.
    fn fill_repeated(&mut self, block: &Block, n_distinct: usize, rows: &[u32]) -> Result<(), SampleError> {
        let n_rows = block.indptr.len() - 1;
        let first_of = first_places(n_distinct, rows)?;
        let n_repeats = (rows.len() - n_distinct) as u32;
        let place = |local: NodeId| first_of.get(local as usize).copied().unwrap_or(local + n_repeats);
        self.nodes.extend(rows.iter().map(|&row| I::of(block.nodes[row as usize])));
        self.nodes.extend(block.nodes[n_distinct..].iter().map(|&id| I::of(id)));
        let (mut destinations, mut row_of_place) = (Vec::new(), rows.to_vec());
        row_of_place.extend(n_distinct as u32..n_rows as u32);
        for (to, &row) in (0..).zip(&row_of_place) {
            let edges = block.indptr[row as usize] as usize..block.indptr[row as usize + 1] as usize;
            self.edge_index.extend(block.indices[edges.clone()].iter().map(|&source| I::of(place(source))));
            destinations.extend(repeat_n(I::of(to), edges.len()));
            self.edge_of.extend(edges.map(|edge| edge as u32));
        }
        let n_added = destinations.len() - block.n_edges();
        self.edge_index.extend(destinations);
        self.nodes_by_hop[0] += n_repeats as usize;
        if let Some(first) = self.edges_by_hop.first_mut() {
            *first += n_added;
        }
        Ok(())
    }
}

/// Appends the sources of all edges of some rows, then their destinations.
pub(crate) fn list_rows<I: Index>(edge_index: &mut Vec<I>, indptr: &[u64], indices: &[NodeId]) {
    edge_index.reserve(2 * indices.len());
    edge_index.extend(indices.iter().map(|&source| I::of(source)));
    for (row, ends) in (0..).zip(indptr.windows(2)) {
        edge_index.extend(repeat_n(I::of(row), (ends[1] - ends[0]) as usize));
    }
}

/// Differences of numbers that count all up to each hop.
pub(crate) fn by_hop(up_to: impl Iterator<Item = usize>) -> impl Iterator<Item = usize> {
    up_to.scan(0, |before, n| Some(n - std::mem::replace(before, n)))
}

/// First of the places at which each of the distinct seeds is listed.
fn first_places(n_distinct: usize, rows: &[u32]) -> Result<Vec<u32>, SampleError> {
    let mut first_of = vec![u32::MAX; n_distinct];
    for (at, &row) in (0..).zip(rows) {
        let Some(first) = first_of.get_mut(row as usize) else {
            return Err(SampleError::invalid(format!(
                "seed {at} is destination {row} of a batch of {n_distinct} seeds"
            )));
        };
        *first = (*first).min(at);
    }
    if let Some(row) = first_of.iter().position(|&first| first == u32::MAX) {
        return Err(SampleError::invalid(format!("destination {row} is none of the listed seeds")));
    }
    Ok(first_of)
}

/// Error of a batch that is no single list.
pub(crate) fn drew_anew() -> SampleError {
    SampleError::invalid(
        "all nodes of the mini-batch drew anew in every hop, so that it is no single list of edges; read its blocks, or let \
         nodes draw once",
    )
}
