//! Internal items whose laws the tests of `tests/` check.
//!
//! These are steps of ranks and of batches: blocks of the adjacency, draws, agreement among ranks. No caller has a use
//! for them, but their laws are sharper than what a whole run shows. Tests are programs of their own, which see public
//! items only. Tests in `src` would need no such module, but the compiler would compile the crate twice.

use std::sync::Arc;

use girih_compute::{Backend, ComputeError, Epilogue, Transpose};

pub use crate::config::supported::reasons;
pub use crate::data::partitioned_adjacency::PartitionedAdjacency;
pub use crate::distributed::data::PartitionedData;
pub use crate::distributed::job::check_alike;
pub use crate::distributed::train::{Agreement, Asked, next_apart};
pub use crate::estimate::symbolic::SymbolicRank;
pub use crate::minibatch::batches::Batches;
pub use crate::minibatch::batches::epoch::SeedLists;
pub use crate::minibatch::host_batch::{HostGraphs, HostLoss};
pub use crate::minibatch::inference::{Chunks, Nodes};
pub use crate::minibatch::partitioned::devices::{BATCHES, PatchDevices, Trial};
pub use crate::minibatch::partitioned::split_rows::RowsOfRanks;
pub use crate::minibatch::tiers::{Placements, frequencies_and_reads};
pub use crate::minibatch::timed::links::parts_of;
pub use crate::tape::ranks::blocks::{BlockSource, Blocks, PanelExchange, Panels};
pub use crate::tape::ranks::first::run_on_first;
pub use crate::tape::ranks::operand::{EpilogueBackward, LazyGemm, LocalOperand};
pub use crate::tasks::links::epochs::LinkEpochs;
pub use crate::tasks::links::scorer::held_out;
pub use crate::tasks::recommend::batch::nodes_of_share;
pub use crate::tasks::recommend::rank::{BLOCK_BYTES, top_items};
pub use crate::tasks::recommend::triples::Triples;
pub use crate::tasks::triples::{QueryList, TripleEpochs};

use crate::TrainError;
use crate::config::RankOptions;
use crate::distributed::{PartitionedGraph, Ranks, SymbolicGraph};
use crate::engine::RunState;
use crate::estimate::symbolic::SymbolicBlocks;
use crate::tape::{Gradients, ParamId, Params, Pool};

/// Graph of a rank, with blocks from `adjacency`.
pub fn partitioned_graph<B: Backend>(ranks: Arc<Ranks<B>>, adjacency: Arc<dyn BlockSource<B>>) -> PartitionedGraph<B> {
    PartitionedGraph::new(ranks, adjacency)
}

/// `out = op(Â)·X`, for a rank's own `rows` of `X` and own rows of `out`; all ranks call it together.
///
/// # Errors
/// When the backend or another rank fails.
pub fn multiply<B: Backend>(
    backend: &B,
    pool: &mut Pool<B>,
    (graph, transpose): (&PartitionedGraph<B>, Transpose),
    rows: LocalOperand<'_, B>,
    out: &mut B::Matrix,
) -> Result<(), ComputeError> {
    graph.multiply(backend, pool, transpose, rows, &Epilogue::default(), out)
}

/// Blocks of the ranks of a plan, in a dry run.
///
/// # Errors
/// When there are more ranks than nodes.
pub fn symbolic_blocks(
    graph: &SymbolicGraph,
    n_nodes: usize,
    ranks: &RankOptions,
) -> Result<SymbolicBlocks, TrainError> {
    graph.cut(n_nodes, ranks)
}

/// Parameters, gradients and free buffers of a run.
pub fn parts_of_run<'r, B: Backend>(state: &'r RunState<'_, B>) -> (&'r Params<B>, &'r Gradients<B>, &'r Pool<B>) {
    (&state.params, &state.gradients, &state.pool)
}

/// Loses the buffer of a gradient, as a step does that fails while it writes the gradient.
pub fn lose_gradient<B: Backend>(state: &mut RunState<'_, B>, id: ParamId) {
    drop(state.gradients.take(id));
}
