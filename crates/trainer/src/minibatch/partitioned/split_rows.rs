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
pub(super) struct RowsOfRanks<B: Backend> {
    /// Communicator that nothing else uses at the same time.
    pub(super) world: Arc<dyn Collective<B>>,
    pub(super) patches: Patches,
    /// Features of this rank, dense or compressed.
    pub(super) own: Features,
    pub(super) spare: SpareReplies,
}

impl<B: Backend> FetchRows for RowsOfRanks<B> {
    fn fetch(&mut self, nodes: &[NodeId]) -> Result<Box<dyn FetchedRows + '_>, ComputeError> {
        let own = self.own.stored_rows().expect("rows of a fixed size");
        let found = RankRows::again(&*self.world, &self.patches, own, self.spare.clone()).find(nodes);
        Ok(Box::new(found.map_err(|error| ComputeError::device("rows of other ranks", error.to_string()))?))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use girih_comm::threads;
    use girih_compute::Cpu;
    use girih_graph_format::Matrix;

    use super::*;
    use crate::TrainError;

    #[test]
    fn rows_come_from_the_hosts_that_have_them() {
        let value = |row: usize, column: usize| (row * 10 + column) as f32;
        let rows = |nodes: std::ops::Range<usize>| {
            let values: Vec<f32> = nodes.clone().flat_map(|row| (0..3).map(move |column| value(row, column))).collect();
            Matrix::new(nodes.len(), 3, values).expect("as many values")
        };
        let outcome = threads::run(3, Duration::from_secs(30), |world| -> Result<_, TrainError> {
            let world: Arc<dyn Collective<Cpu>> = Arc::new(world);
            let (rank, patches) = (world.rank(), Patches::equal(20, 3).expect("patches"));
            let own = patches.range(rank);
            let own = Features::Dense(rows(own.start as usize..own.end as usize));
            let mut fetch = RowsOfRanks { world, patches, own, spare: SpareReplies::default() };
            // A rank may request no rows, or nodes of any rank in any order.
            let lists: [&[NodeId]; 3] = [&[19, 0, 7, 8], &[], &[12, 12, 1]];
            for round in 0..3 {
                let list = lists[(rank + round) % 3];
                let found = fetch.fetch(list)?;
                for (at, &node) in list.iter().enumerate() {
                    let expected = [0, 1, 2].map(|column| value(node as usize, column));
                    assert_eq!(found.row(at), bytemuck::cast_slice::<f32, u8>(&expected));
                }
            }
            Ok(())
        });
        outcome.unwrap_or_else(|failure| panic!("{}", failure.message));
    }
}
