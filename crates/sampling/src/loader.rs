//! [`Loader`]: the batches of an epoch.

use std::ops::Range;

use girih_graph_format::Csr;
use girih_random::{Key, purpose};

use crate::pool::Pool;
use crate::relabel::NodeSet;
use crate::sampler::{check_graph, check_seeds};
use crate::{DrawKey, MiniBatch, NodeId, SampleError, Sampler};

/// How seeds become batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoaderOptions {
    /// Seeds of a batch; the last batch of an epoch may have fewer.
    pub batch_size: usize,
    /// Bring seeds into another order in each epoch.
    pub shuffle: bool,
    /// Leave out the last batch if it has fewer seeds than the others.
    pub drop_last: bool,
    /// Seed of orders and draws.
    pub seed: u64,
}

impl Default for LoaderOptions {
    fn default() -> Self {
        Self { batch_size: 1024, shuffle: true, drop_last: false, seed: 0 }
    }
}

/// Seeds of an epoch, in order, and where batches begin: plain data, made before anything is sampled. Ranks, threads
/// and a training that goes on after a stop each take the batches that are theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochPlan {
    order: Vec<NodeId>,
    options: LoaderOptions,
    epoch: u32,
}

impl EpochPlan {
    /// The plan of an epoch that goes through `seeds`.
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

    /// The seeds of a batch.
    ///
    /// # Panics
    /// When there are not that many batches.
    #[must_use]
    pub fn seeds(&self, batch: usize) -> &[NodeId] {
        assert!(batch < self.n_batches(), "batch {batch} of {}", self.n_batches());
        let start = batch * self.options.batch_size;
        &self.order[start..(start + self.options.batch_size).min(self.order.len())]
    }

    /// The key of a batch.
    #[must_use]
    pub fn key(&self, batch: usize) -> DrawKey {
        DrawKey::new(self.options.seed, self.epoch, batch as u32)
    }
}

/// Mini-batches epoch by epoch, as `NeighborLoader` of `PyG` or `DataLoader` of DGL give them. An [`Epoch`] samples as
/// it is asked, or [ahead](Epoch::prefetch) on other threads.
///
/// ```
/// use girih_graph_format::Csr;
/// use girih_sampling::{Loader, LoaderOptions, NeighborOptions, NeighborSampler};
///
/// let graph = Csr::empty(10, 10)?;
/// let sampler = NeighborSampler::new("15,10".parse()?, NeighborOptions::default())?;
/// let options = LoaderOptions { batch_size: 4, ..LoaderOptions::default() };
/// let loader = Loader::new(&graph, sampler, (0..10).collect(), options)?;
/// for epoch in 0..2 {
///     for batch in loader.epoch(epoch) {
///         let batch = batch?;
///         assert!(batch.seeds().len() <= 4);
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Loader<'g, S> {
    graph: &'g Csr,
    sampler: S,
    seeds: Vec<NodeId>,
    options: LoaderOptions,
    /// Memory of batches that were sampled ahead.
    memory: Pool<MiniBatch>,
}

impl<'g, S: Sampler> Loader<'g, S> {
    /// A loader of batches for `seeds`, such as the training nodes of a split. More seeds to a batch than there are
    /// make one batch of all of them.
    ///
    /// # Errors
    /// When a seed is no node of the graph or is listed twice, batches have no seeds, there would be more than 2³² of
    /// them, or none because the only one is left out.
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
        Ok(Self { graph, sampler, seeds, options, memory: Pool::default() })
    }

    /// What is sampled from.
    #[must_use]
    pub fn graph(&self) -> &'g Csr {
        self.graph
    }

    /// What samples.
    #[must_use]
    pub fn sampler(&self) -> &S {
        &self.sampler
    }

    /// The seeds of each batch of an epoch.
    #[must_use]
    pub fn plan(&self, epoch: u32) -> EpochPlan {
        EpochPlan::new(self.seeds.clone(), self.options, epoch)
    }

    /// The batches of an epoch, in order. [`nth`](Iterator::nth) and [`skip`](Iterator::skip) do not sample what they
    /// leave out.
    #[must_use]
    pub fn epoch(&self, epoch: u32) -> Epoch<'_, S> {
        let plan = self.plan(epoch);
        let Self { graph, sampler, memory, .. } = self;
        Epoch { graph, sampler, memory, left: 0..plan.n_batches(), plan }
    }
}

/// Brings what an epoch goes through into its order for that epoch.
pub(crate) fn epoch_order(items: &mut [NodeId], seed: u64, epoch: u32) {
    Key::new(seed, purpose::SHUFFLE).child(u64::from(epoch)).stream(0, 0).shuffle(items);
}

/// The batches of one epoch, sampled as they are asked for or [ahead](Epoch::prefetch).
pub struct Epoch<'l, S> {
    pub(crate) graph: &'l Csr,
    pub(crate) sampler: &'l S,
    pub(crate) memory: &'l Pool<MiniBatch>,
    pub(crate) plan: EpochPlan,
    /// Batches that are still to come.
    pub(crate) left: Range<usize>,
}

impl<S: Sampler> Epoch<'_, S> {
    /// Some of the epoch's batches alone: those that are left after a stop, for instance.
    ///
    /// # Panics
    /// When there are not that many batches.
    #[must_use]
    pub fn batches(self, batches: Range<usize>) -> Self {
        let n_batches = self.plan.n_batches();
        assert!(batches.end <= n_batches, "batches {} to {} of {n_batches}", batches.start, batches.end);
        Self { left: batches, ..self }
    }

    /// The next batch in the memory of an earlier one; `None` after the last.
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
