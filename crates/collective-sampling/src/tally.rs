//! [`Tally`]: bytes and messages sent, by stage.

use std::ops::AddAssign;

/// Bytes and messages sent to other ranks. Messages of a rank to itself are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Number of bytes.
    pub bytes: u64,
    /// Number of non-empty messages.
    pub messages: u64,
}

impl AddAssign for Sent {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.messages += other.messages;
    }
}

/// Bytes and messages sent by one rank in each stage, and counts of its requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Frontiers to their owners, and the shares of draws where nodes divide the draws of a hop. Also the positions
    /// of edges in requests for values.
    pub shuffle: Sent,
    /// Row weights, by which nodes divide the draws of a hop.
    pub weights: Sent,
    /// Draws back to the requesting rank, and values of edges.
    pub reshuffle: Sent,
    /// Walks to the owners of their next nodes, and their steps back to the rank that began them.
    pub walks: Sent,
    /// Node ids in requests for rows.
    pub requests: Sent,
    /// Feature rows.
    pub rows: Sent,
    /// Frontier nodes, over all hops.
    pub frontier_nodes: u64,
    /// Frontier nodes in the rank's own patch.
    pub own_frontier_nodes: u64,
    /// Distinct feature rows requested.
    pub wanted_rows: u64,
    /// Requested rows in the rank's own patch.
    pub own_rows: u64,
}

impl Tally {
    /// Stages of sampling blocks and gathering their rows, in this order: shuffle, weights, reshuffle, requests,
    /// rows.
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
