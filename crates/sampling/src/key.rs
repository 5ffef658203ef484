//! [`DrawKey`]: which mini-batch is drawn.

use girih_random::{Key, Stream, purpose};

use crate::NodeId;

/// What the draws of one mini-batch depend on, beside the graph and the seeds: two batches with equal keys draw equal
/// neighbours for a node, on any thread, rank or device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DrawKey {
    /// The user's seed.
    pub seed: u64,
    /// Epochs before this one.
    pub epoch: u32,
    /// Batches of this epoch before this one, over all ranks.
    pub batch: u32,
}

/// What draws are for. Numbers are part of every result, see `docs/formats.md`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scheme {
    /// Neighbours of single nodes.
    Neighbors = 1,
    /// Steps of walks.
    Walks = 2,
    /// Nodes of a subgraph.
    SaintNodes = 3,
    /// Edges of a subgraph.
    SaintEdges = 4,
    /// Where the walks of a subgraph begin.
    SaintRoots = 5,
    /// Nodes of a layer.
    Layer = 6,
}

impl DrawKey {
    /// The key of a batch.
    #[must_use]
    pub fn new(seed: u64, epoch: u32, batch: u32) -> Self {
        Self { seed, epoch, batch }
    }

    /// The draws of a hop.
    pub(crate) fn hop(self, scheme: Scheme, hop: u32) -> HopDraws {
        let key = Key::new(self.seed, purpose::SAMPLING).child(scheme as u64).child(u64::from(self.epoch));
        HopDraws { key, batch: self.batch, hop }
    }
}

/// The draws of one hop of one batch: a stream for each node, or for whatever else is numbered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HopDraws {
    pub(crate) key: Key,
    pub(crate) batch: u32,
    pub(crate) hop: u32,
}

impl HopDraws {
    /// The draws of `node`, or of another number, in order.
    pub(crate) fn stream(self, node: NodeId) -> Stream {
        self.key.stream((u64::from(self.hop) << 32) | u64::from(node), u64::from(self.batch) << 32)
    }

    /// The draws that belong to no node but to the whole hop, in order.
    pub(crate) fn shared(self) -> Stream {
        self.stream(NodeId::MAX)
    }
}
