//! [`Epoch::prefetch`]: batches that threads sample ahead of their consumer.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use girih_pipeline::{Pipeline, Stage};

use crate::pool::Pool;
use crate::{Epoch, MiniBatch, SampleError, Sampler};

impl<'l, S: Sampler> Epoch<'l, S> {
    /// Samples the epoch's batches ahead, in order, on the threads of `stage`. Each thread makes whole batches.
    ///
    /// `stage` sets the number of threads, and the number of batches that may wait for the consumer: as many as there
    /// are threads, or twice that. The result is a [`Pipeline`] that has not been started, so further stages, such as
    /// gathering features, may follow. Dropping its items stops all threads. A failure takes the place of its batch
    /// and stops all threads as well; its batch number counts from the first remaining batch of this epoch. Memory of
    /// consumed batches is reused.
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
    pub fn prefetch(self, stage: impl Into<Stage>) -> Pipeline<'l, Prefetched<'l>, SampleError> {
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
        W: FnMut(Prefetched<'l>) -> Result<T, SampleError>,
    {
        let Self { graph, sampler, memory, plan, left } = self;
        let plan = Arc::new(plan);
        Pipeline::new(left).stage(stage, move || {
            let (plan, mut work) = (Arc::clone(&plan), make());
            move |number| {
                let mut batch = Prefetched { batch: memory.take(), memory, number, took: Duration::ZERO };
                let start = Instant::now();
                sampler.sample_into(graph, plan.seeds(number), plan.key(number), &mut batch.batch)?;
                batch.took = start.elapsed();
                work(batch)
            }
        })
    }
}

/// [`MiniBatch`] that was sampled ahead. Its memory goes back to the loader when it is dropped.
#[derive(Debug)]
pub struct Prefetched<'l> {
    batch: MiniBatch,
    memory: &'l Pool<MiniBatch>,
    number: usize,
    took: Duration,
}

impl Prefetched<'_> {
    /// Number of the batch in its epoch, as the [`EpochPlan`](crate::EpochPlan) counts.
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

impl Deref for Prefetched<'_> {
    type Target = MiniBatch;

    fn deref(&self) -> &MiniBatch {
        &self.batch
    }
}

impl Drop for Prefetched<'_> {
    fn drop(&mut self) {
        self.memory.give_back(std::mem::take(&mut self.batch));
    }
}
