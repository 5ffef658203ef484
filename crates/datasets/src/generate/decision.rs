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
}

impl Decision {
    /// Random key of this decision's draws.
    pub(super) fn key(self, seed: u64) -> Key {
        Key::new(seed, purpose::GENERATOR).child(self as u64)
    }
}
