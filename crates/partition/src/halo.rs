//! [`Halo`]: the rows of other ranks that a rank's own rows read.

use girih_graph_format::{Csr, NodeId, places_of};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::BlockPlan;
use crate::schedule::touched;

/// Halo plan for aggregations other than sums (attention, maxima, sequences): for each rank, the rows of other ranks
/// that its own rows read. Ranks of equal replica number exchange them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Halo {
    ranks: Vec<RankHalo>,
}

/// Halo of one rank. Lists over peers are in the order of [`BlockPlan::peers`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankHalo {
    /// Ids of all nodes that the rank's own rows read, ascending; own nodes included.
    pub rows: Vec<NodeId>,
    /// Number of `rows` that each peer holds; `rows` has them peer by peer.
    pub received: Vec<usize>,
    /// Own rows that each peer reads, by peer, as indices from the first own row.
    pub sent: Vec<Vec<NodeId>>,
}

impl Halo {
    /// The halo of every rank of `plan` in `adjacency`.
    ///
    /// # Panics
    /// When the adjacency has another size than the plan.
    #[must_use]
    pub fn new(plan: &BlockPlan, adjacency: &Csr) -> Self {
        assert_eq!((adjacency.n_rows(), adjacency.n_cols()), (plan.n_nodes, plan.n_nodes), "a plan for this adjacency");
        let n_ranks = plan.ranks.len();
        let mut halo = Self { ranks: vec![RankHalo { rows: vec![], received: vec![], sent: vec![] }; n_ranks] };
        for replica in 0..plan.grid.replication() {
            let peers: Vec<usize> = plan.peers(replica).collect();
            let rows_of = |&rank: &usize| touched(adjacency, plan.ranks[rank].own.clone(), &(0..plan.n_nodes));
            let rows: Vec<Vec<NodeId>> = peers.par_iter().map(rows_of).collect();
            for (&rank, rows) in peers.iter().zip(rows) {
                for &peer in &peers {
                    let own = &plan.ranks[peer].own;
                    let of_peer = places_of(&rows, own);
                    halo.ranks[rank].received.push(of_peer.len());
                    let local = rows[of_peer].iter().map(|&id| id - own.start as NodeId).collect();
                    halo.ranks[peer].sent.push(local);
                }
                halo.ranks[rank].rows = rows;
            }
        }
        halo
    }

    /// Halo of a rank.
    #[must_use]
    pub fn of(&self, rank: usize) -> &RankHalo {
        &self.ranks[rank]
    }
}
