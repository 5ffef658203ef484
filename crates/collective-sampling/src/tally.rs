//! [`Tally`]: what was sent, stage by stage.

use std::ops::AddAssign;

/// Messages to other ranks, and their bytes. What a rank has for itself is not sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Their bytes.
    pub bytes: u64,
    /// How many had any.
    pub messages: u64,
}

impl AddAssign for Sent {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.messages += other.messages;
    }
}

/// What one rank has sent in each stage, and how much it had to ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Frontiers to their owners; where nodes divide the draws of a hop, their shares; and positions of edges whose
    /// values are wanted.
    pub shuffle: Sent,
    /// The weights of rows, by which nodes divide the draws of a hop.
    pub weights: Sent,
    /// What was drawn, back to who asked, and values of edges.
    pub reshuffle: Sent,
    /// Walks to the owners of their next nodes, and the steps that they took back to who began them.
    pub walks: Sent,
    /// Ids of nodes whose rows are wanted.
    pub requests: Sent,
    /// Rows of features.
    pub rows: Sent,
    /// Nodes that drew, over all hops.
    pub frontier_nodes: u64,
    /// Of these, nodes of the rank's own patch.
    pub own_frontier_nodes: u64,
    /// Rows of features that were wanted.
    pub wanted_rows: u64,
    /// Of these, rows of the rank's own patch.
    pub own_rows: u64,
}

impl Tally {
    /// The stages of sampling blocks and of gathering their rows, in the order in which they come: shuffle, weights,
    /// reshuffle, requests, rows.
    #[must_use]
    pub fn stages(&self) -> [Sent; 5] {
        [self.shuffle, self.weights, self.reshuffle, self.requests, self.rows]
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.shuffle += other.shuffle;
        self.weights += other.weights;
        self.reshuffle += other.reshuffle;
        self.walks += other.walks;
        self.requests += other.requests;
        self.rows += other.rows;
        self.frontier_nodes += other.frontier_nodes;
        self.own_frontier_nodes += other.own_frontier_nodes;
        self.wanted_rows += other.wanted_rows;
        self.own_rows += other.own_rows;
    }
}
