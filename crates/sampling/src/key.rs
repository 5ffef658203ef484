//! [`DrawKey`]: random key of a mini-batch.

use girih_random::{Key, Stream, bounded_word, purpose};

use crate::NodeId;

/// Key of the draws of one mini-batch. Draws depend on the key, the graph and the seeds alone: two batches with equal
/// keys draw equal neighbors for a node, on any thread, rank or device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DrawKey {
    /// Random seed of the user.
    pub seed: u64,
    /// Number of epochs before this one.
    pub epoch: u32,
    /// Number of batches of this epoch before this one, over all ranks.
    pub batch: u32,
}

/// Purpose of draws. The numbers are part of every result, see `docs/draws.md`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scheme {
    /// Neighbors of single nodes.
    Neighbors = 1,
    /// Steps of walks.
    Walks = 2,
    /// Nodes of a subgraph.
    SaintNodes = 3,
    /// Edges of a subgraph.
    SaintEdges = 4,
    /// Starts of the walks of a subgraph.
    SaintRoots = 5,
    /// Nodes of a layer.
    Layer = 6,
    /// Neighbors of nodes in a tree of one seed.
    Trees = 7,
}

impl DrawKey {
    /// Makes the key of a batch.
    #[must_use]
    pub fn new(seed: u64, epoch: u32, batch: u32) -> Self {
        Self { seed, epoch, batch }
    }

    /// Draws of a hop.
    pub(crate) fn hop(self, scheme: Scheme, hop: u32) -> HopDraws {
        HopDraws { key: self.below(scheme), batch: self.batch, hop }
    }

    /// Draws of a hop in the tree of one seed, given by its position in the batch.
    pub(crate) fn of_tree(self, tree: u32, hop: u32) -> HopDraws {
        HopDraws { key: self.below(Scheme::Trees).child(u64::from(tree)), batch: self.batch, hop }
    }

    /// Random key of neighbor draws, for kernels that compute counters themselves.
    #[must_use]
    pub fn of_neighbors(self) -> Key {
        self.below(Scheme::Neighbors)
    }

    /// Random key of walk steps, for kernels that compute counters themselves.
    #[must_use]
    pub fn of_walks(self) -> Key {
        self.below(Scheme::Walks)
    }

    fn below(self, scheme: Scheme) -> Key {
        Key::new(self.seed, purpose::SAMPLING).child(scheme as u64).child(u64::from(self.epoch))
    }
}

/// Draws of one hop of one batch: a stream for each node, or for other numbered items.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HopDraws {
    pub(crate) key: Key,
    pub(crate) batch: u32,
    pub(crate) hop: u32,
}

impl HopDraws {
    /// Stream of `node`, or of another number, from its beginning.
    pub(crate) fn stream(self, node: NodeId) -> Stream {
        self.stream_from(node, 0)
    }

    /// Stream of `node` after its first `n_drawn` draws of 64 bits.
    pub(crate) fn stream_after(self, node: NodeId, n_drawn: u32) -> Stream {
        let mut stream = self.stream_from(node, n_drawn / 2);
        if n_drawn % 2 == 1 {
            stream.next_u64();
        }
        stream
    }

    /// Stream of `node`, from a block of it on.
    fn stream_from(self, node: NodeId, block: u32) -> Stream {
        self.key.stream((u64::from(self.hop) << 32) | u64::from(node), (u64::from(self.batch) << 32) | u64::from(block))
    }

    /// Draws of positions among the neighbors of `node`, in order.
    pub(crate) fn positions(self, node: NodeId) -> Positions {
        Positions { draws: self, node, words: self.stream(node), n_drawn: 0 }
    }

    /// Stream of draws that belong to the whole hop, and to no node.
    pub(crate) fn shared(self) -> Stream {
        self.stream(NodeId::MAX)
    }
}

/// Draws of positions, one word each. Where a word would favour some positions, 64 bits of a reserved block replace
/// it.
pub(crate) struct Positions {
    draws: HopDraws,
    node: NodeId,
    words: Stream,
    n_drawn: u32,
}

impl Positions {
    /// Draws the next position below `bound`.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        let draw = self.n_drawn;
        self.n_drawn += 1;
        let spare = || self.draws.stream_from(self.node, SPARE_BLOCKS | draw);
        bounded_word(self.words.next_u32(), bound).unwrap_or_else(|| spare().below(u64::from(bound)) as u32)
    }
}

/// First of the reserved blocks of a stream, for draws that single words do not decide.
const SPARE_BLOCKS: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_that_a_word_does_not_decide_take_spare_bits() {
        let (draws, node) = (DrawKey::new(1, 2, 3).hop(Scheme::Neighbors, 4), 5);
        // About half of all words do not decide.
        let bound = (1 << 31) + 1;
        let mut positions = draws.positions(node);
        let mut n_spare = 0;
        for i in 0..1000 {
            let block = |block: u32| draws.key.block((4 << 32) | 5, (3 << 32) | u64::from(block));
            let product = u64::from(block(i / 4)[i as usize % 4]) * u64::from(bound);
            let is_spare = product % (1 << 32) < (1 << 32) % u64::from(bound);
            let [low, high, ..] = block((1 << 31) + i);
            let bits = (u128::from(high) << 32) | u128::from(low);
            let spare = (bits * u128::from(bound)) >> 64;
            let expected = if is_spare { spare as u32 } else { (product >> 32) as u32 };
            assert_eq!(positions.below(bound), expected, "draw {i}");
            n_spare += u32::from(is_spare);
        }
        assert!((400..600).contains(&n_spare), "{n_spare}");
    }
}
