//! [`Rank`]: relabelling without a hash map.
//!
//! ```text
//! sources of a hop     9 2 5 9 12        a bit for each:   2 5 9 12
//! seen before          2 9               new, ascending:   5 12         places   2 → 0, 9 → 1, 5 → 2, 12 → 3
//! ```
//! Sources set bits while they are drawn. One pass over the words then finds the new nodes in ascending order. The
//! look-up of a source depends on the size of the graph. While an array with an element per node fits the caches, it
//! is a read of that array. Beyond that, the rank of the source's bit is an index into an array of the nodes found.

use girih_machine::zeros;

use super::{HopPlan, Relabeller};
use crate::draw::Sink;
use crate::{Block, NodeId};

/// Number of bits of a word.
const WORD: usize = 64;
/// Number of words that share a flag; the flag tells whether any of them may have a bit.
const CHUNK: usize = 64;
/// Largest number of nodes for which all words are scanned, which costs less than setting a flag for each source. Up
/// to this size, an array with four bytes per node is faster than ranks; it fits half of a last-level cache.
const SMALL_MAX: usize = 1 << 22;

/// Set of nodes as a bitmap. In a large graph, scanning and clearing cost time only where bits are set.
#[derive(Default)]
pub(super) struct Bitmap {
    /// Words of bits; a whole number of chunks.
    words: Vec<u64>,
    /// Flag of each chunk, true if it may have bits; empty for a small graph.
    is_touched: Vec<bool>,
}

impl Bitmap {
    /// Empties the set, and resizes it for nodes below `n_nodes`.
    pub(super) fn begin(&mut self, n_nodes: usize) {
        let n_chunks = n_nodes.div_ceil(WORD * CHUNK);
        let n_flags = if n_nodes > SMALL_MAX { n_chunks } else { 0 };
        if (n_chunks * CHUNK, n_flags) != (self.words.len(), self.is_touched.len()) {
            *self = Self { words: vec![0; n_chunks * CHUNK], is_touched: vec![false; n_flags] };
            return;
        }
        for chunk in 0..n_chunks {
            if self.take_touched(chunk) {
                self.words[chunk * CHUNK..(chunk + 1) * CHUNK].fill(0);
            }
        }
    }

    #[inline(always)]
    pub(super) fn contains(&self, node: NodeId) -> bool {
        self.words.get(node as usize / WORD).is_some_and(|word| word >> (node % 64) & 1 == 1)
    }

    /// Adds a node; returns whether it is new.
    #[inline(always)]
    pub(super) fn insert(&mut self, node: NodeId) -> bool {
        let is_new = !self.contains(node);
        self.mark(&[node]);
        is_new
    }

    /// Bits of the 64 nodes of word `at`.
    #[inline(always)]
    pub(super) fn word(&self, at: usize) -> u64 {
        self.words[at]
    }

    pub(super) fn n_words(&self) -> usize {
        self.words.len()
    }

    /// Position of a node's bit: its word, and a mask of the bits of that word that stand for smaller nodes.
    #[inline(always)]
    pub(super) fn word_and_bits_below(node: NodeId) -> (usize, u64) {
        (node as usize / WORD, !(u64::MAX << (node % 64)))
    }

    /// Adds nodes, new or not.
    #[inline(always)]
    pub(super) fn mark(&mut self, nodes: &[NodeId]) {
        for &node in nodes {
            self.words[node as usize / WORD] |= 1 << (node % 64);
        }
        if !self.is_touched.is_empty() {
            nodes.iter().for_each(|&node| self.is_touched[node as usize / (WORD * CHUNK)] = true);
        }
    }

    fn n_chunks(&self) -> usize {
        self.words.len() / CHUNK
    }

    /// Whether a chunk may have bits.
    fn is_touched(&self, chunk: usize) -> bool {
        self.is_touched.get(chunk).copied().unwrap_or(true)
    }

    /// Whether a chunk may have bits; clears the flag, as the caller clears the bits.
    fn take_touched(&mut self, chunk: usize) -> bool {
        self.is_touched.get_mut(chunk).is_none_or(std::mem::take)
    }

    /// Marks that a chunk may have bits.
    fn touch(&mut self, chunk: usize) {
        if let Some(is_touched) = self.is_touched.get_mut(chunk) {
            *is_touched = true;
        }
    }

    /// Positions of words that may have bits, ascending.
    pub(super) fn touched_words(&self) -> impl Iterator<Item = usize> + use<'_> {
        let chunks = (0..self.n_chunks()).filter(|&chunk| self.is_touched(chunk));
        chunks.flat_map(|chunk| chunk * CHUNK..(chunk + 1) * CHUNK)
    }
}

/// Appends the nodes that have a bit in a word, ascending.
#[inline(always)]
pub(super) fn push_bits(word: usize, mut bits: u64, nodes: &mut Vec<NodeId>) {
    nodes.extend((0..bits.count_ones()).map(|_| {
        let node = (word * WORD) as NodeId + bits.trailing_zeros();
        bits &= bits - 1;
        node
    }));
}

/// Map from the nodes of a set to numbers: the set's bits, the number of bits before each word, and the numbers in
/// the order of the bits.
#[derive(Default)]
pub(crate) struct RankTable {
    set: Bitmap,
    before: Vec<u32>,
    places: Vec<NodeId>,
}

impl RankTable {
    /// Empties the set, and resizes it for nodes below `n_nodes`.
    pub(crate) fn begin(&mut self, n_nodes: usize) {
        self.set.begin(n_nodes);
        self.before.resize(self.set.words.len(), 0);
    }

    /// Nodes that have a number.
    pub(super) fn set(&self) -> &Bitmap {
        &self.set
    }

    /// Adds nodes to the set.
    pub(crate) fn mark(&mut self, nodes: &[NodeId]) {
        self.set.mark(nodes);
    }

    /// Numbers the nodes of the set by their positions in `nodes`, which lists each of them.
    pub(crate) fn place(&mut self, nodes: &[NodeId]) {
        let mut n_before = 0;
        for word in self.set.touched_words() {
            self.before[word] = n_before;
            n_before += self.set.words[word].count_ones();
        }
        self.places.resize(nodes.len(), 0);
        for (&node, place) in nodes.iter().zip(0..) {
            let rank = self.rank(node);
            self.places[rank] = place;
        }
    }

    /// Numbers the nodes of the set in ascending order, and lists them.
    pub(crate) fn enumerate(&mut self, nodes: &mut Vec<NodeId>) {
        nodes.clear();
        self.set.touched_words().for_each(|word| push_bits(word, self.set.words[word], nodes));
        self.place(nodes);
    }

    /// Number of a node of the set.
    #[inline(always)]
    pub(crate) fn get(&self, node: NodeId) -> NodeId {
        self.places[self.rank(node)]
    }

    /// Number of a node, if it is in the set.
    #[inline(always)]
    pub(crate) fn find(&self, node: NodeId) -> Option<NodeId> {
        self.set.contains(node).then(|| self.get(node))
    }

    /// Number of nodes of the set below `node`.
    #[inline(always)]
    fn rank(&self, node: NodeId) -> usize {
        let (word, below) = Bitmap::word_and_bits_below(node);
        (self.before[word] + (self.set.words[word] & below).count_ones()) as usize
    }
}

/// Map from global to local ids of the nodes found so far.
enum Places {
    /// Local id of each node of the graph; unspecified for nodes not found.
    Positions(Vec<NodeId>),
    Ranks(RankTable),
}

impl Default for Places {
    fn default() -> Self {
        Self::Positions(Vec::new())
    }
}

/// Adapter of the operator to samplers.
#[derive(Default)]
pub(crate) struct Rank {
    /// Sources of this hop.
    marked: Bitmap,
    /// Nodes found before this hop.
    seen: Bitmap,
    places: Places,
}

impl Rank {
    /// Sink of a hop that appends sources to `sources`, as global ids until [`apply`](Self::apply).
    pub(crate) fn sink<'a>(&'a mut self, sources: &'a mut Vec<NodeId>) -> MarkSink<'a> {
        MarkSink { marked: &mut self.marked, sources }
    }

    /// Ends a hop: appends the new nodes that sinks have taken to `nodes`, ascending, and numbers them.
    pub(crate) fn settle(&mut self, nodes: &mut Vec<NodeId>) {
        let n_old = nodes.len();
        self.list_new(nodes);
        self.places.add(nodes, n_old);
    }

    /// Replaces sources of an ended hop by their local ids.
    pub(crate) fn apply(&self, sources: &mut [NodeId]) {
        self.places.apply(sources);
    }

    /// Adds the nodes of this hop to those found before, and appends the new ones, ascending, to `nodes`.
    fn list_new(&mut self, nodes: &mut Vec<NodeId>) {
        for chunk in 0..self.marked.n_chunks() {
            if !self.marked.take_touched(chunk) {
                continue;
            }
            self.seen.touch(chunk);
            for word in chunk * CHUNK..(chunk + 1) * CHUNK {
                let marked = std::mem::take(&mut self.marked.words[word]);
                push_bits(word, marked & !self.seen.words[word], nodes);
                self.seen.words[word] |= marked;
            }
        }
    }
}

/// Sink that keeps sources as they are, and marks them.
pub(crate) struct MarkSink<'a> {
    marked: &'a mut Bitmap,
    sources: &'a mut Vec<NodeId>,
}

impl Sink for MarkSink<'_> {
    #[inline(always)]
    fn take(&mut self, sources: &[NodeId]) {
        self.sources.extend_from_slice(sources);
        self.marked.mark(sources);
    }
}

impl Places {
    /// Begins a batch with `seeds` of a graph of `n_nodes`.
    fn begin(&mut self, n_nodes: usize, seeds: &[NodeId]) {
        match self {
            Self::Positions(positions) if n_nodes <= SMALL_MAX => {
                if positions.len() < n_nodes {
                    *positions = zeros(n_nodes);
                }
            }
            Self::Ranks(table) if n_nodes > SMALL_MAX => table.begin(n_nodes),
            Self::Positions(_) => {
                let mut table = RankTable::default();
                table.begin(n_nodes);
                *self = Self::Ranks(table);
            }
            Self::Ranks(_) => *self = Self::Positions(zeros(n_nodes)),
        }
        self.add(seeds, 0);
    }

    /// Adds the new nodes `nodes[n_old..]` with their positions as local ids.
    fn add(&mut self, nodes: &[NodeId], n_old: usize) {
        match self {
            Self::Positions(positions) => {
                for (&node, place) in nodes[n_old..].iter().zip(n_old as NodeId..) {
                    positions[node as usize] = place;
                }
            }
            Self::Ranks(table) => {
                table.mark(&nodes[n_old..]);
                table.place(nodes);
            }
        }
    }

    /// Replaces sources, all of which were found, by their local ids.
    fn apply(&self, sources: &mut [NodeId]) {
        match self {
            Self::Positions(positions) => sources.iter_mut().for_each(|source| *source = positions[*source as usize]),
            Self::Ranks(table) => sources.iter_mut().for_each(|source| *source = table.get(*source)),
        }
    }
}

impl Relabeller for Rank {
    fn begin(&mut self, n_nodes: usize, seeds: &[NodeId]) {
        self.marked.begin(n_nodes);
        self.seen.begin(n_nodes);
        self.seen.mark(seeds);
        self.places.begin(n_nodes, seeds);
    }

    fn hop(&mut self, plan: HopPlan<'_>, nodes: &mut Vec<NodeId>, block: &mut Block) {
        let n_kept = block.indices.len();
        plan.run(&mut block.indptr, &mut block.edge_ids, &mut self.sink(&mut block.indices));
        self.settle(nodes);
        self.apply(&mut block.indices[n_kept..]);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranks_and_positions_number_alike(
            seeds in prop::collection::btree_set(0..20_000u32, 0..50),
            new in prop::collection::btree_set(0..20_000u32, 0..300),
        ) {
            let new: Vec<NodeId> = new.difference(&seeds).copied().collect();
            let seeds: Vec<NodeId> = seeds.into_iter().rev().collect();
            let nodes: Vec<NodeId> = seeds.iter().chain(&new).copied().collect();
            let expected: BTreeMap<NodeId, NodeId> = nodes.iter().copied().zip(0..).collect();
            let mut table = RankTable::default();
            table.begin(20_000);
            for mut places in [Places::Positions(vec![7; 20_000]), Places::Ranks(table)] {
                places.add(&seeds, 0);
                places.add(&nodes, seeds.len());
                let mut columns: Vec<NodeId> = expected.keys().copied().collect();
                places.apply(&mut columns);
                prop_assert_eq!(columns, expected.values().copied().collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_bitmap_forgets_what_an_earlier_batch_left() {
        let mut set = Bitmap::default();
        set.begin(5000);
        assert!(set.insert(4999) && !set.insert(4999) && !set.contains(4998) && !set.contains(1_000_000_000));
        set.begin(100_000);
        assert!(!set.contains(4999) && set.insert(99_999));
        for (n_nodes, n_touched) in [(100_000, 25 * CHUNK), (SMALL_MAX + 1, CHUNK)] {
            set.begin(n_nodes);
            set.mark(&[99_999]);
            assert_eq!(set.touched_words().count(), n_touched);
            set.begin(n_nodes);
            assert!(!set.contains(99_999));
        }
    }
}
