//! [`RowsOfRanks`]: feature rows in the memory of hosts, each of which holds those of its own rank.
//!
//! ```text
//! GPU     the hottest rows ───────────────────────────────────────────────▶ rows of a batch
//! host    ids of the others ──▶ their hosts ──▶ rows ──▶ pinned memory ──▶ ╯
//! ```
//! Rows that no GPU caches are requested from host to host, a batch ahead of the step. Compressed features are sent
//! as codes (Cai et al., DSP, PPoPP 2023, section 4, where cold features do not fit in one host).

use std::sync::Arc;

use girih_collective_sampling::{RankRows, SpareReplies};
use girih_comm::Collective;
use girih_compute::{Backend, ComputeError};
use girih_datasets::Features;
use girih_features::{FetchRows, FetchedRows};
use girih_graph_format::NodeId;
use girih_partition::Patches;

/// Source of feature rows that are spread over the hosts of all ranks.
pub struct RowsOfRanks<B: Backend> {
    /// Communicator that nothing else uses at the same time.
    pub world: Arc<dyn Collective<B>>,
    /// Nodes of each rank.
    pub patches: Patches,
    /// Features of this rank, dense or compressed.
    pub own: Features,
    /// Buffers of earlier replies.
    pub spare: SpareReplies,
}

impl<B: Backend> FetchRows for RowsOfRanks<B> {
    fn fetch(&mut self, nodes: &[NodeId]) -> Result<Box<dyn FetchedRows + '_>, ComputeError> {
        let own = self.own.stored_rows().expect("rows of a fixed size");
        let found = RankRows::again(&*self.world, &self.patches, own, self.spare.clone()).find(nodes);
        Ok(Box::new(found.map_err(|error| ComputeError::device("rows of other ranks", error.to_string()))?))
    }
}
