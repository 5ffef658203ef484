//! [`DeviceBatches`]: batches that the device samples, with features that it reads, ahead of the step.
//!
//! ```text
//! sampler   batch i+1 (i+2)   on a stream of its own      one batch ahead of the step; two if there is a loader
//! loader    batch     i+1     rows outside of the device, on a stream of its own
//! trainer   batch i           the step
//! ```
//! The host launches all three before it launches the step, and waits for sizes of batches only, so that the three
//! overlap. This is the pipeline of Cai et al. (DSP, PPoPP 2023, section 6) with one host thread, whose order of
//! launches is always the same. Rows that batch `i` has are reused, so that only the others are transferred. The rows
//! of a batch therefore stay until those of the next have arrived.

use std::sync::Arc;

use girih_compute::{Backend, ComputeError, Dtype, Memory, Shape};
use girih_features::{FeatureStore, NeighborBatch, NeighborSource, Pending, PendingSums, RowSums};
use girih_graph_format::NodeId;

use super::batches::SeedLists;
use crate::TrainError;
use crate::tape::Pool;

/// Source of batches on a device that samples by itself.
pub(crate) struct DeviceBatches<'a, B: Backend> {
    /// Batch that was loaded last, and is not yet taken.
    ahead: Option<BatchAhead<'a, B>>,
    /// Rows of the batch that was taken last, some of which the next batch reuses. They are freed after it.
    kept: Option<Kept<B>>,
    source: Box<dyn NeighborSource<B> + 'a>,
    loader: Option<FeatureLoader<'a, B>>,
    /// Whether batches are started ahead of the step.
    is_ahead: bool,
}

/// Loader of feature rows that are not a matrix of the device.
pub(crate) struct FeatureLoader<'a, B: Backend> {
    backend: &'a B,
    reader: &'a dyn FeatureStore<B>,
    n_columns: usize,
    precision: Dtype,
    /// Computes sums of the first layer from stored rows, if the layer needs only sums. True if it also reads
    /// destinations.
    sums: Option<(&'a dyn RowSums<B>, bool)>,
}

/// Features that a batch has read.
pub(crate) enum ReadRows<M> {
    /// Rows of all inputs.
    All(Arc<M>),
    /// Sums of the first layer, and the rows of its destinations if it reads these.
    Summed { own: Option<M>, sums: M },
}

impl<'a, B: Backend> FeatureLoader<'a, B> {
    /// Loader of rows with `n_columns` columns, in the type `precision`.
    pub(crate) fn new(backend: &'a B, (reader, n_columns, precision): (&'a dyn FeatureStore<B>, usize, Dtype)) -> Self {
        Self { backend, reader, n_columns, precision, sums: None }
    }

    /// Loader for a model whose first layer needs only sums of rows, as [`summed`](super::policy::summed) says.
    pub(crate) fn for_sums(self, summed: Option<bool>) -> Self {
        Self { sums: summed.and_then(|reads_destinations| Some((self.reader.sums()?, reads_destinations))), ..self }
    }

    fn room(&self, n_rows: usize, pool: &mut Pool<B>) -> Result<B::Matrix, ComputeError> {
        pool.take(self.backend, Shape::new(n_rows, self.n_columns), self.precision)
    }

    /// Starts to read the rows of a batch. Rows can be reused from the previous batch.
    fn begin(
        &self,
        sampled: &NeighborBatch<B>,
        before: Option<&BatchAhead<'a, B>>,
        pool: &mut Pool<B>,
    ) -> Result<Reading<'a, B>, ComputeError> {
        let ids = ids_of(sampled);
        if let Some((sums, reads_destinations)) = self.sums {
            return Ok(Reading::Sums(sums.gather_async(self.backend, ids)?, reads_destinations));
        }
        let before = before.and_then(|loaded| Some((ids_of(&loaded.sampled), &**loaded.reading.rows()?)));
        let mut rows = self.room(sampled.n_inputs, pool)?;
        let pending = self.reader.gather_async(self.backend, ids, before, &mut rows)?;
        Ok(Reading::Rows(pending, Arc::new(rows)))
    }

    /// Finishes a read. Work that is launched later on the device comes after it.
    fn finish(
        &self,
        (sampled, reading): (&NeighborBatch<B>, Reading<'a, B>),
        pool: &mut Pool<B>,
    ) -> Result<ReadRows<B::Matrix>, ComputeError> {
        let (codes, reads_destinations) = match reading {
            Reading::Rows(pending, rows) => return pending.wait().map(|()| ReadRows::All(rows)),
            Reading::Sums(codes, reads_destinations) => (codes, reads_destinations),
        };
        let block = &sampled.blocks[0];
        let mut own = reads_destinations.then(|| self.room(block.n_destinations, pool)).transpose()?;
        let mut sums = self.room(block.n_destinations, pool)?;
        codes.wait(self.backend, (&block.rows, ids_of(sampled)), own.as_mut(), &mut sums)?;
        Ok(ReadRows::Summed { own, sums })
    }
}

fn ids_of<B: Backend>(sampled: &NeighborBatch<B>) -> &B::Ids {
    sampled.inputs.as_ref().expect("rows that are read by id are listed")
}

/// Features under way. Memory is freed after the gather that uses it.
enum Reading<'a, B: Backend> {
    /// Rows, and their buffer.
    Rows(Pending<'a>, Arc<B::Matrix>),
    /// Codes to be summed, and whether rows of destinations are read, too.
    Sums(Box<dyn PendingSums<B> + 'a>, bool),
}

impl<B: Backend> Reading<'_, B> {
    /// Buffer of the rows, unless they are summed.
    fn rows(&self) -> Option<&Arc<B::Matrix>> {
        match self {
            Self::Rows(_, rows) => Some(rows),
            Self::Sums(..) => None,
        }
    }

    /// Whether rows of the previous batch are copied.
    fn reads_before(&self) -> bool {
        matches!(self, Self::Rows(pending, _) if pending.reads_before())
    }
}

/// Batch, and the features that the loader reads for it.
struct BatchAhead<'a, B: Backend> {
    at: usize,
    /// Before the ids, which are freed after it.
    reading: Reading<'a, B>,
    sampled: NeighborBatch<B>,
}

/// Rows of a batch, and their ids.
struct Kept<B: Backend> {
    rows: Arc<B::Matrix>,
    _ids: Option<B::Ids>,
}

/// Batch, and the features read for it.
type Read<B> = (NeighborBatch<B>, Option<ReadRows<<B as Memory>::Matrix>>);

/// Batch on the device, with the outputs of its loss.
pub(crate) struct DeviceBatch<B: Backend> {
    pub(crate) sampled: NeighborBatch<B>,
    /// Features read for the batch.
    pub(crate) rows: Option<ReadRows<B::Matrix>>,
    /// This rank's seeds, which are its destinations. Ids count from the first node with a label on this rank.
    pub(crate) outputs: Vec<NodeId>,
    /// Number of seeds of the whole batch, on all ranks.
    pub(crate) n_loss: usize,
}

impl<'a, B: Backend> DeviceBatches<'a, B> {
    /// Batches of a sampler and a loader; with `is_ahead`, they are started ahead of the step.
    pub(crate) fn new(
        source: Box<dyn NeighborSource<B> + 'a>,
        loader: Option<FeatureLoader<'a, B>>,
        is_ahead: bool,
    ) -> Self {
        Self { ahead: None, kept: None, source, loader, is_ahead }
    }

    /// Requests the first batches of some lists of seeds: an epoch, or the rest of one.
    ///
    /// # Errors
    /// When the device fails.
    pub(crate) fn begin(&mut self, lists: &dyn SeedLists, first: usize, pool: &mut Pool<B>) -> Result<(), TrainError> {
        self.forget(pool)?;
        if !self.is_ahead {
            return Ok(());
        }
        self.request(lists, first)?;
        self.load(lists, first, None, pool)
    }

    /// Returns batch number `at`, which was requested. Requests the next batches before the step on this one.
    ///
    /// # Errors
    /// When the device fails.
    pub(crate) fn next(
        &mut self,
        lists: &dyn SeedLists,
        at: usize,
        pool: &mut Pool<B>,
    ) -> Result<DeviceBatch<B>, TrainError> {
        let (sampled, rows) = if self.is_ahead { self.advance(lists, at, pool)? } else { self.make(lists, at, pool)? };
        let drawn = lists.seeds(at);
        let outputs = drawn.mine.iter().map(|seed| seed - drawn.first).collect();
        Ok(DeviceBatch { sampled, rows, outputs, n_loss: drawn.n_all })
    }

    /// Takes a batch, and then starts the next ones.
    fn advance(&mut self, lists: &dyn SeedLists, at: usize, pool: &mut Pool<B>) -> Result<Read<B>, TrainError> {
        let Some(loaded) = self.ahead.take() else {
            let sampled = self.source.take()?;
            self.request(lists, at + 1)?;
            return Ok((sampled, None));
        };
        debug_assert_eq!(loaded.at, at, "batches are taken in order");
        // Starts the next rows before these have arrived, so that the bus is always busy.
        let begun = self.load(lists, at + 1, Some(&loaded), pool);
        let loader = self.loader.as_ref().expect("what loaded them");
        let BatchAhead { mut sampled, reading, .. } = loaded;
        let is_reused = self.ahead.as_ref().is_some_and(|next| next.reading.reads_before());
        let kept = reading.rows().filter(|_| is_reused).cloned();
        let rows = loader.finish((&sampled, reading), pool)?;
        self.keep(kept.map(|rows| Kept { rows, _ids: sampled.inputs.take() }), pool);
        begun?;
        Ok((sampled, Some(rows)))
    }

    /// Keeps rows for reuse by the next batch, and returns those of the previous batch to the pool.
    fn keep(&mut self, kept: Option<Kept<B>>, pool: &mut Pool<B>) {
        let before = std::mem::replace(&mut self.kept, kept);
        self.give_back(before.map(|kept| kept.rows), pool);
    }

    /// Returns rows to the pool, unless they are still shared.
    fn give_back(&self, rows: Option<Arc<B::Matrix>>, pool: &mut Pool<B>) {
        if let Some((loader, rows)) = self.loader.as_ref().zip(rows.and_then(Arc::into_inner)) {
            pool.give(loader.backend, rows);
        }
    }

    /// Makes a batch of which nothing was started.
    fn make(&mut self, lists: &dyn SeedLists, at: usize, pool: &mut Pool<B>) -> Result<Read<B>, TrainError> {
        self.request(lists, at)?;
        let sampled = self.source.take()?;
        let Some(loader) = &self.loader else { return Ok((sampled, None)) };
        let reading = loader.begin(&sampled, None, pool)?;
        let rows = loader.finish((&sampled, reading), pool)?;
        Ok((sampled, Some(rows)))
    }

    fn request(&mut self, lists: &dyn SeedLists, at: usize) -> Result<(), TrainError> {
        if at < lists.n_batches() {
            let drawn = lists.seeds(at);
            self.source.request(&drawn.mine, drawn.key)?;
        }
        Ok(())
    }

    /// If there is a loader, starts to read the rows of a requested batch, and requests the next one.
    fn load(
        &mut self,
        lists: &dyn SeedLists,
        at: usize,
        before: Option<&BatchAhead<'a, B>>,
        pool: &mut Pool<B>,
    ) -> Result<(), TrainError> {
        if self.loader.is_none() || at >= lists.n_batches() {
            return Ok(());
        }
        let sampled = self.source.take()?;
        self.request(lists, at + 1)?;
        let Some(loader) = &self.loader else { return Ok(()) };
        let reading = loader.begin(&sampled, before, pool)?;
        self.ahead = Some(BatchAhead { at, reading, sampled });
        Ok(())
    }

    /// Drops a batch that was loaded and not taken. First waits for its rows, which may still be written.
    fn forget(&mut self, pool: &mut Pool<B>) -> Result<(), TrainError> {
        if let Some(BatchAhead { reading: Reading::Rows(pending, rows), sampled: _sampled, .. }) = self.ahead.take() {
            pending.wait()?;
            self.give_back(Some(rows), pool);
        }
        self.keep(None, pool);
        Ok(())
    }
}
