//! Values of edges, requested from the ranks that hold them.

use girih_comm::Payload;
use girih_compute::Backend;

use crate::exchange::{exchange, messages};
use crate::wire::by_owner;
use crate::{CollectiveError, RankGraph};

impl<B: Backend> RankGraph<'_, B> {
    /// Values of edges from the ranks that hold them. `edge_ids` are positions in the whole graph
    /// ([`Block::edge_ids`](girih_sampling::Block::edge_ids)), and the result has their order. All ranks call this
    /// together.
    ///
    /// # Errors
    /// When the rows of a rank have no values, or a rank fails.
    pub fn values(&mut self, edge_ids: &[u64]) -> Result<Vec<f32>, CollectiveError> {
        let owners: Vec<usize> = edge_ids.iter().map(|&edge| self.owner_of_edge(edge)).collect();
        let mut requests = messages(self.world);
        edge_ids.iter().zip(&owners).for_each(|(edge, &owner)| requests[owner].extend(edge.to_le_bytes()));
        let asked = exchange(self.world, &mut self.tally.shuffle, requests)?;
        let reply = |(rank, message): (usize, &girih_comm::Parcel)| self.values_for(rank, message);
        let replies = asked.iter().enumerate().map(reply).collect::<Result<_, _>>()?;
        let received = exchange(self.world, &mut self.tally.reshuffle, replies)?;
        Ok(by_owner(&received, &owners, "values of edges")?)
    }

    /// Rank whose rows contain an edge of the whole graph.
    fn owner_of_edge(&self, edge: u64) -> usize {
        self.first_edges.partition_point(|&first| first <= edge).saturating_sub(1).min(self.world.size() - 1)
    }

    /// Values of this rank's edges for the request in `message` of `rank`.
    fn values_for(&self, rank: usize, message: &[u8]) -> Result<Vec<u8>, CollectiveError> {
        let first = self.first_edges[self.world.rank()];
        let message = Payload::new(message, rank, "positions of edges");
        let edges = message.clone().rest::<u64>()?;
        let mut reply = Vec::with_capacity(4 * edges.len());
        for edge in edges {
            let values = self.values.ok_or_else(|| {
                CollectiveError::layout(format!(
                    "rank {rank} asks for values of edges that have none here; give them to all ranks"
                ))
            })?;
            let value = edge.checked_sub(first).and_then(|at| values.get(usize::try_from(at).ok()?));
            let value = value.ok_or_else(|| message.malformed(format!("edge {edge} is not of this rank")))?;
            reply.extend(value.to_le_bytes());
        }
        Ok(reply)
    }
}
