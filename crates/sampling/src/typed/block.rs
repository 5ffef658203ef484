//! [`TypedBatch`] and [`TypedBlock`]: the output of a [`TypedSampler`](super::TypedSampler).

use crate::NodeId;
use crate::block::Digest;

/// Mini-batch of a typed graph: the nodes of each type, and a block for each layer.
///
/// Nodes of a type are numbered by their positions in its list, in all blocks alike: those that a block reads are the first
/// of the list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TypedBatch {
    /// Nodes of each type by their ids inside the type, in the order in which hops found them.
    pub nodes: Vec<Vec<NodeId>>,
    /// Blocks in the order in which layers are computed; the destinations of the last are the seeds.
    pub blocks: Vec<TypedBlock>,
}

/// Edges of one layer, from sources to destinations of each type. Destinations are sources as well.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TypedBlock {
    /// Number of sources of each node type.
    pub n_sources: Vec<usize>,
    /// Number of destinations of each node type.
    pub n_destinations: Vec<usize>,
    /// Edges of each edge type.
    pub relations: Vec<RelationRows>,
}

/// Edges of one type in a block: a row for each destination of its destination type.
#[derive(Clone, Debug, PartialEq)]
pub struct RelationRows {
    /// Offsets of rows; one more element than there are rows.
    pub indptr: Vec<u64>,
    /// Source of each edge, as a local id of the source type, row after row in the order of the draws.
    pub indices: Vec<NodeId>,
    /// Position of each edge in the relation's `indices`; empty unless asked for.
    pub edge_ids: Vec<u64>,
}

impl Default for RelationRows {
    fn default() -> Self {
        Self { indptr: vec![0], indices: Vec::new(), edge_ids: Vec::new() }
    }
}

impl RelationRows {
    /// Sources of row `v`, in the order of the draws.
    ///
    /// # Panics
    /// When there is no such row.
    #[must_use]
    pub fn row(&self, v: usize) -> &[NodeId] {
        &self.indices[self.indptr[v] as usize..self.indptr[v + 1] as usize]
    }

    /// Empties all arrays and keeps their memory.
    pub(super) fn clear(&mut self) {
        self.indptr.clear();
        self.indptr.push(0);
        self.indices.clear();
        self.edge_ids.clear();
    }

    /// Takes the rows of another block, into its own memory.
    pub(super) fn copy_from(&mut self, other: &Self) {
        self.indptr.clone_from(&other.indptr);
        self.indices.clone_from(&other.indices);
        self.edge_ids.clone_from(&other.edge_ids);
    }

    /// Appends `n` rows without edges.
    pub(super) fn add_empty(&mut self, n: usize) {
        let end = self.indptr.last().copied().unwrap_or(0);
        self.indptr.resize(self.indptr.len() + n, end);
    }
}

impl TypedBlock {
    /// Number of edges of all types.
    #[must_use]
    pub fn n_edges(&self) -> usize {
        self.relations.iter().map(|rows| rows.indices.len()).sum()
    }
}

impl TypedBatch {
    /// Seeds of the batch, which are nodes of the type `target`, in the order given to the sampler.
    ///
    /// # Panics
    /// When there is no such type.
    #[must_use]
    pub fn seeds(&self, target: usize) -> &[NodeId] {
        let n_seeds = self.blocks.last().map_or(0, |block| block.n_destinations[target]);
        &self.nodes[target][..n_seeds]
    }

    /// Number of edges of all blocks.
    #[must_use]
    pub fn n_edges(&self) -> usize {
        self.blocks.iter().map(TypedBlock::n_edges).sum()
    }

    /// 64-bit digest of the batch, equal on every machine, by the hash of [`MiniBatch::digest`](crate::MiniBatch::digest).
    ///
    /// The words are the number of blocks, then those of each block, from the inputs on:
    /// - 0;
    /// - the sources of each node type, as length and ids inside the type;
    /// - `indptr`, `indices` and `edge_ids` of each edge type, each as length and elements;
    /// - the number of destinations of each node type.
    ///
    /// So a graph of one node type and one edge type has the digest of its homogeneous batch.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut digest = Digest::default();
        digest.word(self.blocks.len() as u64);
        for block in &self.blocks {
            digest.word(0);
            for (nodes, &n) in self.nodes.iter().zip(&block.n_sources) {
                digest.words(nodes[..n].iter().map(|&v| u64::from(v)));
            }
            for rows in &block.relations {
                digest.words(rows.indptr.iter().copied());
                digest.words(rows.indices.iter().map(|&v| u64::from(v)));
                digest.words(rows.edge_ids.iter().copied());
            }
            block.n_destinations.iter().for_each(|&n| digest.word(n as u64));
        }
        digest.value()
    }

    /// Empties the batch for `n_hops` blocks of a graph with these numbers of types, and keeps memory.
    pub(super) fn reset(&mut self, n_hops: usize, (n_node_types, n_edge_types): (usize, usize)) {
        self.nodes.resize_with(n_node_types, Vec::new);
        self.nodes.iter_mut().for_each(Vec::clear);
        self.blocks.resize_with(n_hops, TypedBlock::default);
        for block in &mut self.blocks {
            block.relations.resize_with(n_edge_types, RelationRows::default);
            block.relations.iter_mut().for_each(RelationRows::clear);
        }
    }
}
