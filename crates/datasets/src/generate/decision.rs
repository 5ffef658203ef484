//! Purposes of the draws of a generated graph.

use girih_random::{Key, purpose};

/// Purpose of a draw; no two purposes share draws. The numbers are part of every generated graph, see
/// `docs/draws.md`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Decision {
    /// New ids of nodes.
    Permutation = 1,
    /// Sizes of communities.
    CommunitySize = 2,
    /// Target degrees of nodes.
    Weight = 3,
    /// Ends of edges.
    Pair = 4,
    /// Ends of edges that replace repeated ones.
    UniformPair = 5,
    /// Class centres in feature space.
    Centre = 6,
    /// Noise of features.
    Feature = 7,
    /// Wrong labels.
    Label = 8,
    /// Classes preferred by a community, for several labels per node.
    Taste = 9,
    /// Loadings of features on latent factors.
    Loading = 10,
    /// Latent factors of a node.
    Latent = 11,
    /// Latent factors of a class's centre.
    CentreLatent = 12,
    /// Nodes whose features belong to another class than their own.
    Stray = 13,
    /// Nodes of the target without a label, in a graph with types.
    Unlabelled = 14,
}

impl Decision {
    /// Random key of this decision's draws.
    pub(super) fn key(self, seed: u64) -> Key {
        Key::new(seed, purpose::GENERATOR).child(self as u64)
    }
}

/// Keys of decisions about the nodes of one type, or the edges of one relation; without types, about all of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    seed: u64,
    of: Option<u64>,
}

impl Keys {
    /// Keys for all nodes and edges.
    pub(super) fn of_all(seed: u64) -> Self {
        Self { seed, of: None }
    }

    /// Keys for the node type or relation of a number.
    pub(super) fn of_one(seed: u64, number: usize) -> Self {
        Self { seed, of: Some(number as u64) }
    }

    /// Random key of a decision's draws.
    pub(super) fn key(self, decision: Decision) -> Key {
        let of_all = decision.key(self.seed);
        self.of.map_or(of_all, |number| of_all.child(number))
    }
}
