//! [`RankOptions`]: how ranks share the work, and [`GraphPlacement`]: where mini-batches find graph and features.

use std::time::Duration;

use girih_comm::GpuTransport;
use girih_compute::Dtype;
use girih_datasets::DatasetError;
use girih_graph_format::Buffer;
use girih_partition::{BlockPlan, Cuts, Exchange, ProcessGrid, Stages};

use crate::TrainError;

/// Placement of graph and features on ranks, for mini-batches. Full-batch training partitions both by its plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GraphPlacement {
    /// Each rank holds the whole graph and all features.
    #[default]
    Replicated,
    /// Each rank holds the rows of its own nodes, and requests the rows of other ranks (Cai et al., DSP, PPoPP 2023).
    Patches,
    /// Each rank holds the whole graph and the features of its own nodes, and requests the features of other ranks.
    SplitFeatures,
}

impl GraphPlacement {
    /// Name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Replicated => "replicated",
            Self::Patches => "patches",
            Self::SplitFeatures => "split-features",
        }
    }
}

/// Options by which ranks share the work.
#[derive(Clone, Copy, Debug)]
pub struct RankOptions {
    /// Grid of the partition: it says which rank holds which block.
    pub grid: ProcessGrid,
    /// Exchange of the operands of products: whole panels, or only the rows that are read.
    pub exchange: Exchange,
    /// Partition of the nodes over ranks.
    pub cuts: Cuts,
    /// Stages in which operands are sent, as in [`BlockPlan::in_stages`].
    pub stages: Stages,
    /// Maximal number of row chunks of a product, as in [`BlockPlan::in_chunks`].
    pub chunks: usize,
    /// Type in which `f32` operands are sent: `f32`, or rounded to `bf16` in half the bytes. Products also multiply
    /// them in this type.
    pub wire: Dtype,
    /// Transport of rows between GPUs. With `None`, NCCL carries rows of matrices, and the fastest transport carries
    /// rows of patches.
    pub transport: Option<GpuTransport>,
    /// Placement of graph and features, for mini-batches.
    pub layout: GraphPlacement,
    /// Time that a rank waits for another before it fails.
    pub deadline: Duration,
}

impl RankOptions {
    /// Options with equal cuts, a stage for each step, one chunk, operands in `f32`, and no transport given.
    #[must_use]
    pub fn new(grid: ProcessGrid, exchange: Exchange, deadline: Duration) -> Self {
        let (cuts, stages, wire) = (Cuts::Equal, Stages::Steps, Dtype::F32);
        Self {
            grid,
            exchange,
            cuts,
            stages,
            chunks: 1,
            wire,
            transport: None,
            layout: GraphPlacement::default(),
            deadline,
        }
    }

    /// Plan for a graph of `n_nodes` nodes. Only weighted cuts read `offsets`.
    pub(crate) fn plan(
        &self,
        n_nodes: usize,
        offsets: impl FnOnce() -> Result<Buffer<u64>, DatasetError>,
    ) -> Result<BlockPlan, TrainError> {
        let plan = match self.cuts {
            Cuts::Equal => BlockPlan::new(&self.grid, n_nodes)?,
            Cuts::Weighted => BlockPlan::of_graph(&self.grid, &offsets()?, self.cuts)?,
        };
        Ok(plan.in_stages(self.stages).in_chunks(self.chunks))
    }

    /// Hash of everything that ranks must agree on: these options, `settings` and the version of the program.
    pub(crate) fn hash(&self, settings: &str) -> u32 {
        let (Self { grid, exchange, cuts, stages, chunks, wire, layout, .. }, version) =
            (self, env!("CARGO_PKG_VERSION"));
        let agreed = format!("{version} {settings} {grid} {exchange} {cuts} {stages} {chunks} {wire:?} {layout:?}");
        crc32fast::hash(agreed.as_bytes())
    }
}
