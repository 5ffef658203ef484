//! [`Visits`]: counts of the rows that batches read.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use girih_pipeline::Stage;
use girih_sampling::{Columns, Expand, MiniBatch, NeighborSampler, SeedLoader};

use crate::TierError;

/// Epoch whose batches are presampled. Training never reaches it, and GraphSAINT counts with the next one
/// (`docs/draws.md`).
pub const PRESAMPLED_EPOCH: u32 = u32::MAX - 1;

/// Counts of reads of each node's adjacency row and features by some batches. A batch reads the features of a node
/// once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Visits {
    /// Number of batches.
    pub n_batches: usize,
    /// Number of reads of each node's adjacency row.
    pub rows: Vec<u32>,
    /// Number of reads of each node's features.
    pub features: Vec<u32>,
    /// Number of neighbors that were drawn.
    pub n_draws: u64,
}

/// Mean number of reads per batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reads {
    /// Number of adjacency rows.
    pub rows: f64,
    /// Number of neighbors that are drawn from these rows.
    pub draws: f64,
    /// Number of feature rows.
    pub features: f64,
}

impl Reads {
    /// Reads of each GPU, if `n_gpus` GPUs share a batch.
    #[must_use]
    pub fn among(self, n_gpus: usize) -> Self {
        let share = |reads: f64| reads / n_gpus.max(1) as f64;
        Self { rows: share(self.rows), draws: share(self.draws), features: share(self.features) }
    }
}

impl Visits {
    /// Counts the reads of the first `n_batches` of an epoch, or of all its batches if there are fewer. `n_threads`
    /// threads sample; their number does not affect the result.
    ///
    /// # Errors
    /// When sampling fails, no thread can be started, or inputs have global columns, which list no nodes.
    pub fn of(
        loader: &SeedLoader<'_, NeighborSampler>,
        epoch: u32,
        n_batches: usize,
        n_threads: usize,
    ) -> Result<Self, TierError> {
        let options = loader.sampler().options();
        if options.inputs == Columns::Global {
            return Err(TierError::invalid(
                "batches with global columns do not list the nodes that they read: count with local columns (`Columns::Local`)",
            ));
        }
        let counts = Counts::new(loader.graph().n_rows());
        let epoch = loader.epoch(epoch);
        let n_batches = n_batches.min(epoch.len());
        let stage = Stage::new("sample").workers(n_threads.max(1)).capacity(2 * n_threads.max(1));
        let count = || {
            |batch: girih_sampling::Prefetched| {
                counts.add(&batch, options.expand);
                Ok(())
            }
        };
        std::thread::scope(|scope| {
            let counted = epoch.batches(0..n_batches).prefetch_with(stage, count).start_in(scope);
            let mut counted = counted.map_err(|error| TierError::invalid(error.to_string()))?;
            counted.try_for_each(|batch| batch).map_err(|error| TierError::invalid(error.to_string()))
        })?;
        Ok(counts.finish(n_batches))
    }

    /// Mean reads per batch.
    #[must_use]
    pub fn per_batch(&self) -> Reads {
        let mean = |sum: u64| sum as f64 / self.n_batches.max(1) as f64;
        let total = |counts: &[u32]| counts.iter().map(|&count| u64::from(count)).sum();
        Reads { rows: mean(total(&self.rows)), draws: mean(self.n_draws), features: mean(total(&self.features)) }
    }
}

/// Counters shared by threads; sums of integers do not depend on their order.
struct Counts {
    rows: Vec<AtomicU32>,
    features: Vec<AtomicU32>,
    n_draws: AtomicU64,
}

impl Counts {
    fn new(n_nodes: usize) -> Self {
        let zeros = || (0..n_nodes).map(|_| AtomicU32::new(0)).collect();
        Self { rows: zeros(), features: zeros(), n_draws: AtomicU64::new(0) }
    }

    fn add(&self, batch: &MiniBatch, expand: Expand) {
        let mut nearer = (0, 0);
        for block in batch.blocks.iter().rev() {
            // If nodes are expanded once, a block repeats the rows and edges of the block that is nearer to the
            // seeds.
            let (n_kept_rows, n_kept_edges) = if expand == Expand::Once { nearer } else { (0, 0) };
            for &node in &block.destinations()[n_kept_rows..] {
                self.rows[node as usize].fetch_add(1, Relaxed);
            }
            self.n_draws.fetch_add((block.n_edges() - n_kept_edges) as u64, Relaxed);
            nearer = (block.n_destinations, block.n_edges());
        }
        for &node in batch.inputs() {
            self.features[node as usize].fetch_add(1, Relaxed);
        }
    }

    fn finish(self, n_batches: usize) -> Visits {
        let values = |counts: Vec<AtomicU32>| counts.into_iter().map(AtomicU32::into_inner).collect();
        Visits {
            n_batches,
            rows: values(self.rows),
            features: values(self.features),
            n_draws: self.n_draws.into_inner(),
        }
    }
}
