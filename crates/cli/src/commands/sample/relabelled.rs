//! [`Relabelled`]: time that relabelling takes of a batch.

use std::time::{Duration, Instant};

use girih_sampling::relabel::{NewNodes, Relabel, SampledEdges, ToBlockFast, to_block};
use girih_sampling::{Block, Columns, MiniBatch, SampleError};

/// Relabels sampled edges a second time, to time the step.
#[derive(Default)]
pub(super) struct Relabelled {
    fast: ToBlockFast,
    edges: SampledEdges,
    block: Block,
}

impl Relabelled {
    /// Relabelling time of a batch. `None` if ids are assigned while edges are drawn, or stay global.
    pub(super) fn time(
        &mut self,
        n_nodes: usize,
        batch: &MiniBatch,
        relabel: Relabel,
    ) -> Result<Option<Duration>, SampleError> {
        let is_fast = match relabel {
            Relabel::ToBlock => false,
            Relabel::ToBlockFast => true,
            Relabel::Fused | Relabel::Rank => return Ok(None),
        };
        if is_fast {
            self.fast.begin(n_nodes, batch.seeds())?;
        }
        let mut took = Duration::ZERO;
        for block in batch.blocks.iter().rev().filter(|block| block.columns == Columns::Local) {
            self.list(block);
            let start = Instant::now();
            if is_fast {
                self.fast.block_into(&self.edges, &mut self.block)?;
            } else {
                self.block = to_block(&self.edges, block.destinations(), NewNodes::Ascending)?;
            }
            took += start.elapsed();
        }
        Ok(Some(took))
    }

    /// Lists the edges of a block in global ids.
    fn list(&mut self, block: &Block) {
        self.edges.clear();
        for (row, &destination) in block.destinations().iter().enumerate() {
            let columns = block.row(row);
            self.edges.destinations.extend(std::iter::repeat_n(destination, columns.len()));
            self.edges.sources.extend(columns.iter().map(|&column| block.node_of_column(column)));
        }
    }
}
