//! [`PrefetchedEpoch`]: batches that threads sample ahead of their consumer.

use std::iter::FusedIterator;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use girih_graph_format::Csr;
use girih_pipeline::{Items, Pipeline, Stage, StageError};

use crate::pool::Pool;
use crate::{Epoch, EpochPlan, MiniBatch, SampleError, Sampler};

impl<'l, S: Sampler> Epoch<'l, S> {
    /// As [`on_threads`](Self::on_threads), for pipelines of one's own: on the threads of `stage`, which borrow graph and
    /// sampler.
    ///
    /// `stage` sets the number of threads, and the number of batches that may wait for the consumer: as many as there
    /// are threads, or twice that. The result is a [`Pipeline`] that has not been started, so further stages, such as
    /// gathering features, may follow. The number in an error counts from the first remaining batch of this epoch.
    ///
    /// ```
    /// use girih_graph_format::Csr;
    /// use girih_pipeline::Stage;
    /// use girih_sampling::{SeedLoader, LoaderOptions, NeighborOptions, NeighborSampler};
    ///
    /// let graph = Csr::empty(10, 10)?;
    /// let sampler = NeighborSampler::new("15,10".parse()?, NeighborOptions::default())?;
    /// let options = LoaderOptions { batch_size: 4, ..LoaderOptions::default() };
    /// let loader = SeedLoader::new(&graph, sampler, (0..10).collect(), options)?;
    /// std::thread::scope(|scope| {
    ///     let sample = Stage::new("sample").workers(2).capacity(4);
    ///     for batch in loader.epoch(0).prefetch(sample).start_in(scope)? {
    ///         let batch = batch?; // as good as a MiniBatch
    ///         assert_eq!(batch.seeds(), loader.plan(0).seeds(batch.number()));
    ///     }
    ///     Ok::<_, Box<dyn std::error::Error>>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prefetch(self, stage: impl Into<Stage>) -> Pipeline<'l, Prefetched, SampleError> {
        self.prefetch_with(stage, || Ok)
    }

    /// As [`prefetch`](Self::prefetch), but the thread that sampled a batch also transforms it at once, while it is
    /// in that core's caches. `make` runs once on each thread, and returns the function that the thread applies to
    /// its batches.
    pub fn prefetch_with<T, W>(
        self,
        stage: impl Into<Stage>,
        make: impl Fn() -> W + Send + Sync + 'l,
    ) -> Pipeline<'l, T, SampleError>
    where
        T: Send + 'l,
        W: FnMut(Prefetched) -> Result<T, SampleError>,
    {
        let Self { graph, sampler, memory, plan, left } = self;
        let plan = Arc::new(plan);
        Pipeline::new(left).stage(stage, move || {
            let (plan, mut work) = (Arc::clone(&plan), make());
            move |number| work(Prefetched::sample(graph, &**sampler, memory, &plan, number)?)
        })
    }

    /// Samples the epoch's batches ahead, in order, on threads of its own. Each thread makes whole batches, of which
    /// twice as many as threads may wait for the consumer. Memory of consumed batches is reused.
    ///
    /// The result owns all that it reads: it shares the sampler and the arrays of the graph. Dropping it stops its
    /// threads, and waits for them. A failure takes the place of its batch, and ends the epoch.
    ///
    /// ```
    /// use girih_graph_format::Csr;
    /// use girih_sampling::{SeedLoader, LoaderOptions, NeighborOptions, NeighborSampler};
    ///
    /// let graph = Csr::empty(10, 10)?;
    /// let sampler = NeighborSampler::new("15,10".parse()?, NeighborOptions::default())?;
    /// let options = LoaderOptions { batch_size: 4, ..LoaderOptions::default() };
    /// let loader = SeedLoader::new(&graph, sampler, (0..10).collect(), options)?;
    /// for batch in loader.epoch(0).on_threads(2)? {
    ///     let batch = batch?; // as good as a MiniBatch
    ///     assert_eq!(batch.seeds(), loader.plan(0).seeds(batch.number()));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When there are no threads, or the system refuses one.
    pub fn on_threads(self, n_threads: usize) -> Result<PrefetchedEpoch, SampleError>
    where
        S: 'static,
    {
        let Self { graph, sampler, memory, plan, left } = self;
        let shared = (graph.clone(), Arc::clone(sampler), Arc::clone(memory), Arc::new(plan));
        let stage = Stage::new("sample").workers(n_threads).capacity(2 * n_threads.max(1));
        let first = left.start;
        let n_left = left.len();
        let sampled = Pipeline::new(left).stage(stage, move || {
            let (graph, sampler, memory, plan) = shared.clone();
            move |number| Prefetched::sample(&graph, &*sampler, &memory, &plan, number)
        });
        let items = sampled.start().map_err(|error| SampleError::invalid(error.to_string()))?;
        Ok(PrefetchedEpoch { items, first, n_left })
    }
}

/// Batches of an epoch that threads of its own sample ahead, in order, as [`Epoch::on_threads`] starts it.
pub struct PrefetchedEpoch {
    items: Items<'static, Prefetched, SampleError>,
    /// Number of the first batch.
    first: usize,
    /// Largest number of batches to come.
    n_left: usize,
}

impl Iterator for PrefetchedEpoch {
    type Item = Result<Prefetched, SampleError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.items.next();
        self.n_left = if matches!(next, Some(Ok(_))) { self.n_left - 1 } else { 0 };
        Some(next?.map_err(|error| match error {
            StageError::Failed { item, source, .. } => {
                SampleError::invalid(format!("batch {}: {source}", self.first + item as usize))
            }
            panicked => SampleError::invalid(panicked.to_string()),
        }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.n_left))
    }
}

impl FusedIterator for PrefetchedEpoch {}

/// [`MiniBatch`] that was sampled ahead. Its memory goes back to the loader when it is dropped.
#[derive(Debug)]
pub struct Prefetched {
    batch: MiniBatch,
    memory: Arc<Pool<MiniBatch>>,
    number: usize,
    took: Duration,
}

impl Prefetched {
    /// Samples batch `number` of a plan.
    fn sample<S: Sampler + ?Sized>(
        graph: &Csr,
        sampler: &S,
        memory: &Arc<Pool<MiniBatch>>,
        plan: &EpochPlan,
        number: usize,
    ) -> Result<Self, SampleError> {
        let mut batch = Self { batch: memory.take(), memory: Arc::clone(memory), number, took: Duration::ZERO };
        let start = Instant::now();
        sampler.sample_into(graph, plan.seeds(number), plan.key(number), &mut batch.batch)?;
        batch.took = start.elapsed();
        Ok(batch)
    }

    /// Number of the batch in its epoch, as the [`EpochPlan`] counts.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// Wall-clock time of sampling the batch.
    #[must_use]
    pub fn took(&self) -> Duration {
        self.took
    }
}

impl Deref for Prefetched {
    type Target = MiniBatch;

    fn deref(&self) -> &MiniBatch {
        &self.batch
    }
}

impl Drop for Prefetched {
    fn drop(&mut self) {
        self.memory.give_back(std::mem::take(&mut self.batch));
    }
}
