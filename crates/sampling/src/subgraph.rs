//! [`Subgraph`]: some nodes and the edges among them, on which every layer is computed.
//!
//! ```text
//! layers of a MiniBatch        layers on a Subgraph
//! blocks[0] ─▶ blocks[1]       block ─▶ the same block ─▶ …
//! ```

use girih_graph_format::Csr;

use crate::block::Digest;
use crate::pool::Pool;
use crate::relabel::{NodeSet, RankTable};
use crate::sampler::{check_graph, check_listed};
use crate::{Block, Columns, DrawKey, MiniBatch, NodeId, SampleError};

/// Some nodes of a graph and edges among them: what a training step reads when its layers share one graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subgraph {
    /// A block whose sources are its destinations: row and column `i` are `nodes[i]`. Edge ids are always kept.
    pub block: Block,
    /// What the loss of each node counts; empty where all count alike.
    pub loss_weights: Vec<f32>,
}

impl Subgraph {
    /// All edges among `nodes`, whose order gives local ids. Edges of a row keep the order that they have in the graph.
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
    /// When the graph is no adjacency, a node is not one of its own or is listed twice.
    pub fn induced(graph: &Csr, nodes: &[NodeId]) -> Result<Self, SampleError> {
        check_graph(graph)?;
        check_listed("member", graph.n_rows(), nodes, &mut NodeSet::default())?;
        let mut subgraph = Self::default();
        Inducer::default().induce(graph, nodes, &mut subgraph);
        Ok(subgraph)
    }

    /// The sampled edges of a mini-batch alone: those that its first layer reads, which with
    /// [`Expand::Once`](crate::Expand::Once) are all that were drawn. Nodes for which nothing was drawn have empty
    /// rows.
    ///
    /// # Errors
    /// When there is no block, or the columns of the first are global, so that its nodes are not listed.
    pub fn directional(batch: MiniBatch) -> Result<Self, SampleError> {
        let Some(mut block) = batch.blocks.into_iter().next() else {
            return Err(SampleError::invalid("a mini-batch without blocks has no edges; sample at least one hop"));
        };
        if block.columns == Columns::Global {
            return Err(SampleError::invalid(
                "the inputs of the mini-batch have global columns, so that its nodes are not known; sample with local ones",
            ));
        }
        block.indptr.resize(block.nodes.len() + 1, block.indices.len() as u64);
        block.n_destinations = block.nodes.len();
        Ok(Self { block, loss_weights: Vec::new() })
    }

    /// One graph of several that have no edges between them: nodes and rows of one follow those of another. A node that
    /// is in several is there as often.
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

    /// A number that two subgraphs share only if they are equal, as [`MiniBatch::digest`].
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut digest = Digest::of(std::slice::from_ref(&self.block));
        digest.weights(&self.loss_weights);
        digest.value()
    }
}

/// A way to choose a subgraph for a training step, without seeds: the key alone says which.
///
/// A subgraph is a pure function of graph and key: the same on any number of threads, in any order of batches.
pub trait SubgraphSampler: Send + Sync {
    /// The nodes of the subgraph of a batch alone, ascending, for whoever does not need the edges among them.
    ///
    /// # Errors
    /// As [`sample`](Self::sample).
    fn batch_nodes(&self, graph: &Csr, key: DrawKey) -> Result<Vec<NodeId>, SampleError>;

    /// The subgraph of a batch; its nodes ascend.
    ///
    /// # Errors
    /// When the graph is not one that the sampler was made for, or the key names a batch that there is not.
    fn sample(&self, graph: &Csr, key: DrawKey) -> Result<Subgraph, SampleError> {
        let mut subgraph = Subgraph::default();
        self.sample_into(graph, key, &mut subgraph)?;
        Ok(subgraph)
    }

    /// As [`sample`](Self::sample), into the memory of an earlier subgraph, whose content is lost.
    ///
    /// # Errors
    /// As [`sample`](Self::sample).
    fn sample_into(&self, graph: &Csr, key: DrawKey, subgraph: &mut Subgraph) -> Result<(), SampleError>;
}

/// Finds the edges among nodes, and keeps its memory.
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

/// Appends to a block the rows of `destinations`: the edges whose source `local` knows.
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
