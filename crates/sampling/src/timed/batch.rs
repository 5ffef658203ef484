//! [`TimedBatch`]: the output of a [`TimedSampler`](super::TimedSampler).

use crate::block::Digest;
use crate::{MiniBatch, NodeId};

/// Seed with the time of its question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedSeed {
    /// Global id.
    pub node: NodeId,
    /// Time in ticks, which bounds the times of the edges that the seed sees.
    pub time: i64,
}

/// Mini-batch of a graph with times.
///
/// A node may stand in several trees, and then has an input in each. Node lists of the blocks therefore repeat ids.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimedBatch {
    /// Block for each layer. `edge_ids` are positions of entries in the graph's rows.
    pub blocks: MiniBatch,
    /// Tree of each input node: the position of its seed; 0 where all seeds share their nodes.
    pub trees: Vec<u32>,
    /// Bound of each input node in ticks: its edges are admitted up to this time, or before it.
    pub bounds: Vec<i64>,
    /// Destination of each seed in the last block.
    pub seed_rows: Vec<NodeId>,
}

impl TimedBatch {
    /// 64-bit digest of the batch, equal on every machine: the words of [`MiniBatch::digest`], then trees, bounds and
    /// destinations of seeds, each as length and elements.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut digest = Digest::default();
        digest.word(self.blocks.digest());
        digest.words(self.trees.iter().map(|&tree| u64::from(tree)));
        digest.words(self.bounds.iter().map(|&bound| bound.cast_unsigned()));
        digest.words(self.seed_rows.iter().map(|&row| u64::from(row)));
        digest.value()
    }

    /// Empties the batch and keeps its memory.
    pub(super) fn clear(&mut self, n_hops: usize) {
        self.blocks.reset(n_hops);
        self.trees.clear();
        self.bounds.clear();
        self.seed_rows.clear();
    }
}
