//! [`Block`] and [`MiniBatch`]: the output of samplers.
//!
//! ```text
//! seeds [7, 2], fan-out 2,2                              local ids     0  1 │ 2  3 │ 4
//!                                                        nodes         7  2 │ 3  9 │ 5      blocks[0]
//! hop 0:  7 ◀─ 3, 9     2 ◀─ 7, 9                        nodes         7  2 │ 3  9          blocks[1]
//! hop 1:  7 ◀─ 9, 2     2 ◀─ 7, 3    3 ◀─ 5    9 ◀─ 2    destinations  7  2                 seeds
//! ```
//! The sources of a block are its destinations, followed by the nodes that are new in it. So the node list of each
//! block begins with the list of the next block, and a node has the same local id in all of them.

use std::ops::Range;

use girih_graph_format::{Csr, FormatError};

use crate::{NodeId, SampleError};

/// Index space of a block's columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Columns {
    /// Positions in [`Block::nodes`].
    #[default]
    Local,
    /// Nodes of the graph: the layer reads its operand, such as features, in place.
    Global,
}

/// Bipartite graph from sources to destinations, where destinations are sources as well. Row `v` lists the sources of
/// the edges that end in destination `v`, in the order of the draws. A draw with replacement may list a source twice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Block {
    /// Global ids: destinations, then the other sources. With global columns, the destinations alone.
    pub nodes: Vec<NodeId>,
    /// Number of destinations, which is the number of rows.
    pub n_destinations: usize,
    /// Number of columns: the length of `nodes`, or the number of the graph's nodes when columns are global.
    pub n_columns: usize,
    /// Offsets of rows; `n_destinations + 1` elements.
    pub indptr: Vec<u64>,
    /// Column of each edge, row after row.
    pub indices: Vec<NodeId>,
    /// Position of each edge in the graph's `indices`; empty unless asked for.
    pub edge_ids: Vec<u64>,
    /// Weight of each edge, for samplers that correct for the edges they leave out. The weighted sum over the edges
    /// of a row then has the sum over all edges of that node in the graph as its expectation. Empty where the mean
    /// over the edges of a row stands for the mean over all.
    pub weights: Vec<f32>,
    /// Index space of `indices`.
    pub columns: Columns,
}

impl Block {
    /// Global ids of the destinations.
    #[must_use]
    pub fn destinations(&self) -> &[NodeId] {
        &self.nodes[..self.n_destinations]
    }

    /// Number of edges.
    #[must_use]
    pub fn n_edges(&self) -> usize {
        self.indices.len()
    }

    /// Columns of row `v`, in the order of the draws.
    ///
    /// # Panics
    /// When `v >= n_destinations`.
    #[must_use]
    pub fn row(&self, v: usize) -> &[NodeId] {
        &self.indices[self.indptr[v] as usize..self.indptr[v + 1] as usize]
    }

    /// Global id of the node that an entry of `indices` stands for.
    ///
    /// # Panics
    /// When columns are local and `column` is not below their number.
    #[must_use]
    pub fn node_of_column(&self, column: NodeId) -> NodeId {
        match self.columns {
            Columns::Local => self.nodes[column as usize],
            Columns::Global => column,
        }
    }

    /// Converts the block to a matrix of `n_destinations × n_columns`, whose columns ascend within a row. A source
    /// that a row lists several times becomes one entry: the sum of its edges' weights or, without weights, their
    /// number.
    ///
    /// # Errors
    /// When the block's arrays were changed and no longer form a matrix.
    pub fn to_csr(&self) -> Result<Csr, FormatError> {
        let (mut indptr, mut indices, mut values) = (vec![0u64], Vec::with_capacity(self.n_edges()), Vec::new());
        let mut row = Vec::new();
        for v in 0..self.n_destinations {
            row.clear();
            let edges = self.indptr[v] as usize..self.indptr[v + 1] as usize;
            row.extend(edges.map(|e| (self.indices[e], self.weights.get(e).copied().unwrap_or(1.0))));
            row.sort_by_key(|&(column, _)| column);
            for same in row.chunk_by(|(a, _), (b, _)| a == b) {
                indices.push(same[0].0);
                values.push(same.iter().map(|(_, weight)| weight).sum::<f32>());
            }
            indptr.push(indices.len() as u64);
        }
        let is_binary = self.weights.is_empty() && indices.len() == self.n_edges();
        let values = (!is_binary).then(|| values.into());
        Csr::new(self.n_destinations, self.n_columns, indptr, indices, values)
    }

    /// Takes some of the rows, and the nodes that these rows need: the rows' own nodes, then their other sources, in
    /// the order of this block. Also returns the positions in this block of the nodes that the new block needs; with
    /// global columns these are the rows.
    fn of_rows(&self, rows: &[usize]) -> (Self, Vec<usize>) {
        let edges = |row: usize| self.indptr[row] as usize..self.indptr[row + 1] as usize;
        let mut part = Self { n_destinations: rows.len(), columns: self.columns, indptr: vec![0], ..Self::default() };
        for &row in rows {
            part.indices.extend_from_slice(&self.indices[edges(row)]);
            part.edge_ids.extend(self.edge_ids.get(edges(row)).into_iter().flatten());
            part.weights.extend(self.weights.get(edges(row)).into_iter().flatten());
            part.indptr.push(part.indices.len() as u64);
        }
        let mut kept = rows.to_vec();
        if self.columns == Columns::Local {
            kept = renumbered(&mut part.indices, self.nodes.len(), kept);
        }
        part.nodes = kept.iter().map(|&at| self.nodes[at]).collect();
        part.n_columns = if self.columns == Columns::Local { kept.len() } else { self.n_columns };
        (part, kept)
    }

    /// Empties all arrays and keeps their memory.
    pub(crate) fn clear(&mut self) {
        self.nodes.clear();
        self.indptr.clear();
        self.indptr.push(0);
        self.indices.clear();
        self.edge_ids.clear();
        self.weights.clear();
        (self.n_destinations, self.n_columns, self.columns) = (0, 0, Columns::Local);
    }
}

/// Refuses the input block of a mini-batch whose nodes are not listed.
pub(crate) fn check_local(inputs: &Block) -> Result<(), SampleError> {
    if inputs.columns == Columns::Local {
        return Ok(());
    }
    Err(SampleError::invalid(
        "the inputs of the mini-batch have global columns, so that its nodes are not known; sample with local ones",
    ))
}

/// Renumbers columns, which are below `n_columns`: first the ones in `first`, then all other listed columns in order.
/// Returns the old columns in the order of their new numbers.
fn renumbered(columns: &mut [NodeId], n_columns: usize, first: Vec<usize>) -> Vec<usize> {
    const ABSENT: NodeId = NodeId::MAX;
    const LISTED: NodeId = NodeId::MAX - 1;
    let (mut numbers, mut kept) = (vec![ABSENT; n_columns], first);
    kept.iter().zip(0..).for_each(|(&at, number)| numbers[at] = number);
    for &column in &*columns {
        let number = &mut numbers[column as usize];
        *number = if *number == ABSENT { LISTED } else { *number };
    }
    for (at, number) in numbers.iter_mut().enumerate().filter(|(_, number)| **number == LISTED) {
        *number = kept.len() as NodeId;
        kept.push(at);
    }
    columns.iter_mut().for_each(|column| *column = numbers[*column as usize]);
    kept
}

/// Input of a training step: a block for each layer, the input layer first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MiniBatch {
    /// Blocks in the order in which layers are computed; the destinations of the last are the seeds.
    pub blocks: Vec<Block>,
}

impl MiniBatch {
    /// Seeds of the batch, in the order given to the sampler.
    #[must_use]
    pub fn seeds(&self) -> &[NodeId] {
        self.blocks.last().map_or(&[], Block::destinations)
    }

    /// Global ids of the nodes whose features the first layer reads by local id. With global columns, only the nodes
    /// that the first layer computes; its columns name the other nodes that it reads.
    #[must_use]
    pub fn inputs(&self) -> &[NodeId] {
        self.blocks.first().map_or(&[], |block| &block.nodes)
    }

    /// Number of edges of all blocks.
    #[must_use]
    pub fn n_edges(&self) -> usize {
        self.blocks.iter().map(Block::n_edges).sum()
    }

    /// Restricts the batch to some of its seeds, given by their positions: equal rows, for these nodes alone. Ranks
    /// use it to divide a batch whose layers are drawn for all of its seeds together.
    ///
    /// # Panics
    /// When the batch has fewer seeds.
    #[must_use]
    pub fn of_seeds(&self, seeds: Range<usize>) -> Self {
        assert!(seeds.end <= self.seeds().len(), "seeds {seeds:?} of {}", self.seeds().len());
        let mut rows: Vec<usize> = seeds.collect();
        let part_of = |block: &Block| {
            let (part, nodes) = block.of_rows(&rows);
            rows = nodes;
            part
        };
        let mut blocks: Vec<Block> = self.blocks.iter().rev().map(part_of).collect();
        blocks.reverse();
        Self { blocks }
    }

    /// 64-bit digest of the batch, equal on every machine. Two different batches have equal digests with a chance of
    /// 2⁻⁶⁴. It is the last `h` of
    ///
    /// ```text
    /// h = 0xcbf29ce484222325
    /// for each 64-bit word w:   h = (h xor w) · 0x9e3779b97f4a7c15 mod 2⁶⁴;   h = h xor ⌊h / 2³²⌋
    /// ```
    /// The words are the number of blocks, then those of each block, from the inputs on:
    /// - 0 for local columns or 1 for global ones, plus 2 with weights;
    /// - `nodes`, `indptr`, `indices` and `edge_ids`, each as length and elements;
    /// - the number of destinations;
    /// - `weights`, if any, as their number and bits.
    #[must_use]
    pub fn digest(&self) -> u64 {
        Digest::of(&self.blocks).value()
    }

    /// Resizes the batch to `n_hops` empty blocks, which keep the memory of earlier ones.
    pub(crate) fn reset(&mut self, n_hops: usize) {
        self.blocks.resize_with(n_hops, Block::default);
        self.blocks.iter_mut().for_each(Block::clear);
    }
}

/// Digest of several mini-batches: of their number and their digests, in order.
#[must_use]
pub fn digest_of(digests: &[u64]) -> u64 {
    let mut digest = Digest::default();
    digest.words(digests.iter().copied());
    digest.value()
}

/// Hash of 64-bit words in order, as [`MiniBatch::digest`] defines it.
pub(crate) struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    /// Digest of blocks.
    pub(crate) fn of(blocks: &[Block]) -> Self {
        let mut digest = Self::default();
        digest.word(blocks.len() as u64);
        for block in blocks {
            digest.word(block.columns as u64 + if block.weights.is_empty() { 0 } else { 2 });
            digest.words(block.nodes.iter().map(|&v| u64::from(v)));
            digest.words(block.indptr.iter().copied());
            digest.words(block.indices.iter().map(|&v| u64::from(v)));
            digest.words(block.edge_ids.iter().copied());
            digest.word(block.n_destinations as u64);
            digest.weights(&block.weights);
        }
        digest
    }

    pub(crate) fn value(&self) -> u64 {
        self.0
    }

    /// Adds weights, if there are any.
    pub(crate) fn weights(&mut self, weights: &[f32]) {
        if !weights.is_empty() {
            self.words(weights.iter().map(|weight| u64::from(weight.to_bits())));
        }
    }

    pub(crate) fn word(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }

    /// Adds the length and the elements of an array.
    pub(crate) fn words(&mut self, words: impl ExactSizeIterator<Item = u64>) {
        self.word(words.len() as u64);
        words.for_each(|word| self.word(word));
    }
}
