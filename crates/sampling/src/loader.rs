//! [`SeedLoader`]: the batches of an epoch.

use std::ops::Range;
use std::sync::Arc;

use girih_graph_format::Csr;
use girih_random::{Key, purpose};

use crate::pool::Pool;
use crate::relabel::NodeSet;
use crate::sampler::{check_graph, check_seeds};
use crate::{DrawKey, MiniBatch, NodeId, SampleError, Sampler};

/// Options of the division of seeds into batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoaderOptions {
    /// Number of seeds of a batch; the last batch of an epoch may have fewer.
    pub batch_size: usize,
    /// Shuffle the seeds in each epoch.
    pub shuffle: bool,
    /// Leave out the last batch if it has fewer seeds than the others.
    pub drop_last: bool,
    /// Random seed of orders and draws.
    pub seed: u64,
}

impl Default for LoaderOptions {
    fn default() -> Self {
        Self { batch_size: 1024, shuffle: true, drop_last: false, seed: 0 }
    }
}

/// Seeds of an epoch, in order, with the offsets of batches. The plan is plain data, made before anything is sampled.
/// Ranks, threads and a resumed training each take their own batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochPlan {
    order: Vec<NodeId>,
    options: LoaderOptions,
    epoch: u32,
}

impl EpochPlan {
    /// Makes the plan of an epoch over `seeds`.
    #[must_use]
    pub fn new(seeds: Vec<NodeId>, options: LoaderOptions, epoch: u32) -> Self {
        let mut order = seeds;
        if options.shuffle {
            epoch_order(&mut order, options.seed, epoch);
        }
        Self { order, options, epoch }
    }

    /// Number of batches.
    #[must_use]
    pub fn n_batches(&self) -> usize {
        if self.options.drop_last {
            self.order.len() / self.options.batch_size
        } else {
            self.order.len().div_ceil(self.options.batch_size)
        }
    }

    /// Seeds of a batch.
    ///
    /// # Panics
    /// When `batch` is not below the number of batches.
    #[must_use]
    pub fn seeds(&self, batch: usize) -> &[NodeId] {
        assert!(batch < self.n_batches(), "batch {batch} of {}", self.n_batches());
        let start = batch * self.options.batch_size;
        &self.order[start..(start + self.options.batch_size).min(self.order.len())]
    }

    /// Key of a batch.
    #[must_use]
    pub fn key(&self, batch: usize) -> DrawKey {
        DrawKey::new(self.options.seed, self.epoch, batch as u32)
    }
}

/// Mini-batches epoch by epoch, as `NeighborLoader` of `PyG` or `DataLoader` of DGL give them. An [`Epoch`] samples
/// on demand, or [ahead](Epoch::on_threads) on other threads.
///
/// ```
/// use girih_graph_format::Csr;
/// use girih_sampling::{SeedLoader, LoaderOptions, NeighborOptions, NeighborSampler};
///
/// let graph = Csr::empty(10, 10)?;
/// let sampler = NeighborSampler::new("15,10".parse()?, NeighborOptions::default())?;
/// let options = LoaderOptions { batch_size: 4, ..LoaderOptions::default() };
/// let loader = SeedLoader::new(&graph, sampler, (0..10).collect(), options)?;
/// for epoch in 0..2 {
///     for batch in loader.epoch(epoch) {
///         let batch = batch?;
///         assert!(batch.seeds().len() <= 4);
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SeedLoader<'g, S> {
    graph: &'g Csr,
    sampler: Arc<S>,
    seeds: Vec<NodeId>,
    options: LoaderOptions,
    /// Memory of prefetched batches.
    memory: Arc<Pool<MiniBatch>>,
}

impl<'g, S: Sampler> SeedLoader<'g, S> {
    /// Makes a loader of batches for `seeds`, such as the training nodes of a split. A batch size above the number of
    /// seeds gives one batch of all of them.
    ///
    /// # Errors
    /// When a seed is not a node of the graph or is listed twice, the batch size is zero, there would be more than
    /// 2³² batches, or none because the only one is left out.
    pub fn new(graph: &'g Csr, sampler: S, seeds: Vec<NodeId>, options: LoaderOptions) -> Result<Self, SampleError> {
        check_graph(graph)?;
        check_seeds(graph.n_rows(), &seeds, &mut NodeSet::default())?;
        if options.batch_size == 0 {
            return Err(SampleError::invalid("the batch size is 0: give at least 1"));
        }
        if options.drop_last && seeds.len() < options.batch_size {
            return Err(SampleError::invalid(format!(
                "{} seeds make no whole batch of {}, and an incomplete one is to be left out; take smaller batches, or keep \
                 the last one",
                seeds.len(),
                options.batch_size
            )));
        }
        Ok(Self { graph, sampler: Arc::new(sampler), seeds, options, memory: Arc::default() })
    }

    /// Graph that is sampled.
    #[must_use]
    pub fn graph(&self) -> &'g Csr {
        self.graph
    }

    /// Sampler of the batches.
    #[must_use]
    pub fn sampler(&self) -> &S {
        &self.sampler
    }

    /// Seeds of each batch of an epoch.
    #[must_use]
    pub fn plan(&self, epoch: u32) -> EpochPlan {
        EpochPlan::new(self.seeds.clone(), self.options, epoch)
    }

    /// Batches of an epoch, in order. [`nth`](Iterator::nth) and [`skip`](Iterator::skip) do not sample the batches
    /// that they skip.
    #[must_use]
    pub fn epoch(&self, epoch: u32) -> Epoch<'_, S> {
        let plan = self.plan(epoch);
        let Self { graph, sampler, memory, .. } = self;
        Epoch { graph, sampler, memory, left: 0..plan.n_batches(), plan }
    }
}

/// Brings the items of an epoch into its order.
pub(crate) fn epoch_order(items: &mut [NodeId], seed: u64, epoch: u32) {
    Key::new(seed, purpose::SHUFFLE).child(u64::from(epoch)).stream(0, 0).shuffle(items);
}

/// Batches of one epoch, sampled on demand or [ahead](Epoch::on_threads).
pub struct Epoch<'l, S> {
    pub(crate) graph: &'l Csr,
    pub(crate) sampler: &'l Arc<S>,
    pub(crate) memory: &'l Arc<Pool<MiniBatch>>,
    pub(crate) plan: EpochPlan,
    /// Numbers of the remaining batches.
    pub(crate) left: Range<usize>,
}

impl<S: Sampler> Epoch<'_, S> {
    /// Restricts the epoch to some of its batches, such as the remaining ones after a stop.
    ///
    /// # Panics
    /// When the range ends beyond the batches of the epoch.
    #[must_use]
    pub fn batches(self, batches: Range<usize>) -> Self {
        let n_batches = self.plan.n_batches();
        assert!(batches.end <= n_batches, "batches {} to {} of {n_batches}", batches.start, batches.end);
        Self { left: batches, ..self }
    }

    /// Samples the next batch into the memory of an earlier one; `None` after the last.
    pub fn next_into(&mut self, batch: &mut MiniBatch) -> Option<Result<(), SampleError>> {
        let at = self.left.next()?;
        Some(self.sampler.sample_into(self.graph, self.plan.seeds(at), self.plan.key(at), batch))
    }
}

impl<S: Sampler> Iterator for Epoch<'_, S> {
    type Item = Result<MiniBatch, SampleError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut batch = MiniBatch::default();
        self.next_into(&mut batch).map(|sampled| sampled.map(|()| batch))
    }

    fn nth(&mut self, n: usize) -> Option<Self::Item> {
        self.left.start = self.left.start.saturating_add(n).min(self.left.end);
        self.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl<S: Sampler> ExactSizeIterator for Epoch<'_, S> {}
