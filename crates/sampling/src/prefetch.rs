//! [`Epoch::prefetch`]: batches that threads sample ahead of whoever reads them.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use girih_pipeline::{Pipeline, Stage};

use crate::pool::Pool;
use crate::{Epoch, MiniBatch, SampleError, Sampler};

impl<'l, S: Sampler> Epoch<'l, S> {
    /// The same batches in the same order, sampled ahead by the threads of `stage`, of which each makes whole batches.
    ///
    /// `stage` says how many threads there are and how many batches may wait for the reader: as many as there are
    /// threads or twice that. What comes back is a [`Pipeline`] that has not been started: further stages, such as
    /// gathering features, may follow. Dropping its items stops all threads; a failure takes the place of its batch and
    /// ends them, too, and counts batches from the first that this epoch still has. Memory of batches that were read is
    /// used again.
    ///
    /// ```
    /// use girih_graph_format::Csr;
    /// use girih_pipeline::Stage;
    /// use girih_sampling::{Loader, LoaderOptions, NeighborOptions, NeighborSampler};
    ///
    /// let graph = Csr::empty(10, 10)?;
    /// let sampler = NeighborSampler::new("15,10".parse()?, NeighborOptions::default())?;
    /// let options = LoaderOptions { batch_size: 4, ..LoaderOptions::default() };
    /// let loader = Loader::new(&graph, sampler, (0..10).collect(), options)?;
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

    /// As [`prefetch`](Self::prefetch), and the thread that sampled a batch makes something of it at once, while it is
    /// in that core's caches: `make` runs once on each thread, and returns what the thread applies to its batches.
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

/// A [`MiniBatch`] that was sampled ahead. Its memory goes back to the loader when it is dropped.
#[derive(Debug)]
pub struct Prefetched<'l> {
    batch: MiniBatch,
    memory: &'l Pool<MiniBatch>,
    number: usize,
    took: Duration,
}

impl Prefetched<'_> {
    /// Which batch of its epoch this is, as the [`EpochPlan`](crate::EpochPlan) counts.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// How long sampling it took, by the clock.
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
