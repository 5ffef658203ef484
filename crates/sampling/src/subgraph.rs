//! [`Subgraph`]: some nodes and the edges among them, shared by all layers.
//!
//! ```text
//! layers of a MiniBatch        layers on a Subgraph
//! blocks[0] ─▶ blocks[1]       block ─▶ the same block ─▶ …
//! ```

use girih_graph_format::Csr;

use crate::block::{Digest, check_local};
use crate::pool::Pool;
use crate::relabel::{NodeSet, RankTable};
use crate::sampler::{check_graph, check_listed};
use crate::{Block, DrawKey, MiniBatch, NodeId, SampleError};

/// Some nodes of a graph and edges among them: the input of a training step whose layers share one graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subgraph {
    /// Block whose sources are its destinations: row and column `i` are `nodes[i]`. Edge ids are always kept.
    pub block: Block,
    /// Weight of each node in the loss; empty where all count alike.
    pub loss_weights: Vec<f32>,
}

impl Subgraph {
    /// Takes all edges among `nodes`, whose order gives local ids. Edges of a row keep their order in the graph.
    ///
    /// ```
    /// use girih_graph_format::{Coo, Duplicates};
    /// use girih_sampling::Subgraph;
    ///
    /// // 0 → 1 → 2 → 3 and 0 → 3.
    /// let graph = Coo::new(4, 4, vec![1, 2, 3, 3], vec![0, 1, 2, 0], None)?.to_csr(Duplicates::Refuse)?;
    /// let subgraph = Subgraph::induced(&graph, &[3, 0, 1])?;
    /// assert_eq!(subgraph.block.row(0), [1]); // 3 ◀─ 0; its edge from 2 is left out
    /// assert_eq!(subgraph.block.row(2), [1]); // 1 ◀─ 0
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the graph is not an adjacency, or a node is not one of its nodes or is listed twice.
    pub fn induced(graph: &Csr, nodes: &[NodeId]) -> Result<Self, SampleError> {
        check_graph(graph)?;
        check_listed("member", graph.n_rows(), nodes, &mut NodeSet::default())?;
        let mut subgraph = Self::default();
        Inducer::default().induce(graph, nodes, &mut subgraph);
        Ok(subgraph)
    }

    /// Takes the sampled edges of a mini-batch alone: the edges that its first layer reads. With
    /// [`Expand::Once`](crate::Expand::Once) these are all edges that were drawn. Nodes that drew nothing have empty
    /// rows.
    ///
    /// # Errors
    /// When there is no block, or the columns of the first are global, so that its nodes are not listed.
    pub fn directional(batch: MiniBatch) -> Result<Self, SampleError> {
        let Some(mut block) = batch.blocks.into_iter().next() else {
            return Err(SampleError::invalid("a mini-batch without blocks has no edges; sample at least one hop"));
        };
        check_local(&block)?;
        block.indptr.resize(block.nodes.len() + 1, block.indices.len() as u64);
        block.n_destinations = block.nodes.len();
        Ok(Self { block, loss_weights: Vec::new() })
    }

    /// Joins several graphs into one that has no edges between them: their nodes and rows follow each other. A node
    /// in several of them occurs several times.
    #[must_use]
    pub fn disjoint(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut parts = parts.into_iter();
        let mut joined = parts.next().unwrap_or_default();
        if joined.block.indptr.is_empty() {
            joined.block.indptr.push(0);
        }
        parts.for_each(|part| joined.append(part));
        joined
    }

    fn append(&mut self, Self { block, loss_weights }: Self) {
        let whole = &mut self.block;
        let (first_node, first_edge) = (whole.nodes.len() as NodeId, whole.indices.len() as u64);
        whole.nodes.extend(block.nodes);
        whole.indptr.extend(block.indptr.iter().skip(1).map(|end| first_edge + end));
        whole.indices.extend(block.indices.iter().map(|column| first_node + column));
        whole.edge_ids.extend(block.edge_ids);
        whole.weights.extend(block.weights);
        (whole.n_destinations, whole.n_columns) = (whole.nodes.len(), whole.nodes.len());
        self.loss_weights.extend(loss_weights);
    }

    /// Global ids of the nodes, in the order of local ids.
    #[must_use]
    pub fn nodes(&self) -> &[NodeId] {
        &self.block.nodes
    }

    /// 64-bit digest of the subgraph: that of a [mini-batch](MiniBatch::digest) of its block, then of `loss_weights`, if
    /// any, as their number and bits.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut digest = Digest::of(std::slice::from_ref(&self.block));
        digest.weights(&self.loss_weights);
        digest.value()
    }
}

/// Sampler of a subgraph for a training step, without seeds: the key alone determines it.
///
/// A subgraph is a pure function of graph and key: equal on any number of threads, in any order of batches.
pub trait SubgraphSampler: Send + Sync {
    /// Nodes of the subgraph of a batch, ascending, without the edges among them.
    ///
    /// # Errors
    /// As [`sample`](Self::sample).
    fn batch_nodes(&self, graph: &Csr, key: DrawKey) -> Result<Vec<NodeId>, SampleError>;

    /// Samples the subgraph of a batch; its nodes ascend.
    ///
    /// # Errors
    /// When the sampler was not made for this graph, or the batch number of the key is out of range.
    fn sample(&self, graph: &Csr, key: DrawKey) -> Result<Subgraph, SampleError> {
        let mut subgraph = Subgraph::default();
        self.sample_into(graph, key, &mut subgraph)?;
        Ok(subgraph)
    }

    /// As [`sample`](Self::sample), but into the memory of an earlier subgraph, whose content is lost.
    ///
    /// # Errors
    /// As [`sample`](Self::sample).
    fn sample_into(&self, graph: &Csr, key: DrawKey, subgraph: &mut Subgraph) -> Result<(), SampleError>;
}

/// Finder of the edges among nodes, with reusable memory.
#[derive(Default)]
pub(crate) struct Inducer {
    places: RankTable,
}

/// Memory of subgraphs that are being sampled.
pub(crate) type InducerPool = Pool<Inducer>;

impl Inducer {
    /// Makes the subgraph of `nodes`, distinct nodes of the graph.
    pub(crate) fn induce(&mut self, graph: &Csr, nodes: &[NodeId], subgraph: &mut Subgraph) {
        self.places.begin(graph.n_rows());
        self.places.mark(nodes);
        self.places.place(nodes);
        subgraph.loss_weights.clear();
        let block = &mut subgraph.block;
        block.clear();
        block.nodes.extend_from_slice(nodes);
        (block.n_destinations, block.n_columns) = (nodes.len(), nodes.len());
        list_edges(graph, nodes, |source| self.places.find(source), block);
    }
}

/// Appends the rows of `destinations` to a block: the edges whose source has a local id in `local`.
pub(crate) fn list_edges(
    graph: &Csr,
    destinations: &[NodeId],
    local: impl Fn(NodeId) -> Option<NodeId>,
    block: &mut Block,
) {
    for &node in destinations {
        let range = graph.row_range(node as usize);
        for (&source, edge) in graph.indices()[range.clone()].iter().zip(range.start as u64..) {
            if let Some(column) = local(source) {
                block.indices.push(column);
                block.edge_ids.push(edge);
            }
        }
        block.indptr.push(block.indices.len() as u64);
    }
}
