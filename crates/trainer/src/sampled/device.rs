//! [`DeviceBatches`]: batches that the device samples, and whose features it reads, ahead of the step.
//!
//! ```text
//! sampler   batch i+1 (i+2)   on a stream of its own      one batch ahead of the step; two where a loader is between
//! loader    batch     i+1     rows that lie elsewhere, on a stream of its own
//! trainer   batch i           the step
//! ```
//! The host begins all three before it begins the step, and waits for sizes of batches alone, so that the three go on side by side:
//! the pipeline of Cai et al. (DSP, PPoPP 2023, section 6) with one host thread, whose order of launches is always the same.

use girih_compute::{Backend, ComputeError, Dtype, NeighborBatch, NeighborSource, RowReader, Shape};
use girih_graph_format::NodeId;

use super::batches::SeedLists;
use crate::TrainError;
use crate::tape::Pool;

/// Where a device samples by itself, what it makes batches with.
pub(crate) struct DeviceBatches<'a, B: Backend> {
    source: Box<dyn NeighborSource<B> + 'a>,
    loader: Option<Loader<'a, B>>,
    /// Whether anything is begun ahead of the step.
    is_ahead: bool,
    /// The batch that was loaded last, and not taken.
    ahead: Option<Loaded<B>>,
}

/// Reads rows that are no matrix of the device.
pub(crate) struct Loader<'a, B: Backend> {
    backend: &'a B,
    reader: &'a dyn RowReader<B>,
    n_columns: usize,
    precision: Dtype,
}

impl<'a, B: Backend> Loader<'a, B> {
    /// Of rows with so many columns, stored so.
    pub(crate) fn new(backend: &'a B, (reader, n_columns, precision): (&'a dyn RowReader<B>, usize, Dtype)) -> Self {
        Self { backend, reader, n_columns, precision }
    }

    /// Room for the rows of a batch, and their ids.
    fn room<'s>(
        &self,
        sampled: &'s NeighborBatch<B>,
        pool: &mut Pool<B>,
    ) -> Result<(B::Matrix, &'s B::Ids), ComputeError> {
        let ids = sampled.inputs.as_ref().expect("rows that are read by id are listed");
        Ok((pool.take(self.backend, Shape::new(sampled.n_inputs, self.n_columns), self.precision)?, ids))
    }

    /// Begins to read the rows of a batch.
    fn begin(&self, sampled: &NeighborBatch<B>, pool: &mut Pool<B>) -> Result<B::Matrix, ComputeError> {
        let (mut rows, ids) = self.room(sampled, pool)?;
        self.reader.begin(self.backend, ids, &mut rows)?;
        Ok(rows)
    }

    /// Reads the rows of a batch.
    fn read(&self, sampled: &NeighborBatch<B>, pool: &mut Pool<B>) -> Result<B::Matrix, ComputeError> {
        let (mut rows, ids) = self.room(sampled, pool)?;
        self.reader.gather(self.backend, ids, &mut rows)?;
        Ok(rows)
    }
}

/// A batch, and the rows that the loader reads for it.
struct Loaded<B: Backend> {
    at: usize,
    sampled: NeighborBatch<B>,
    rows: B::Matrix,
}

/// A batch, and the rows that were read for it.
type Read<B> = (NeighborBatch<B>, Option<<B as Backend>::Matrix>);

/// A batch on the device, and what its loss is of.
pub(crate) struct DeviceBatch<B: Backend> {
    pub(crate) sampled: NeighborBatch<B>,
    /// The rows of features that were read for it.
    pub(crate) rows: Option<B::Matrix>,
    /// This rank's seeds: its destinations.
    pub(crate) seeds: Vec<NodeId>,
    /// Seeds of the whole batch, on all ranks.
    pub(crate) n_loss: usize,
}

impl<'a, B: Backend> DeviceBatches<'a, B> {
    /// Begins work ahead of the step if `is_ahead`.
    pub(crate) fn new(source: Box<dyn NeighborSource<B> + 'a>, loader: Option<Loader<'a, B>>, is_ahead: bool) -> Self {
        Self { source, loader, is_ahead, ahead: None }
    }

    /// Asks for the first batches of some lists of seeds: an epoch, or what is left of it.
    ///
    /// # Errors
    /// When the device fails.
    pub(crate) fn begin(&mut self, lists: &dyn SeedLists, first: usize, pool: &mut Pool<B>) -> Result<(), TrainError> {
        self.forget(pool)?;
        if !self.is_ahead {
            return Ok(());
        }
        self.request(lists, first)?;
        self.load(lists, first, pool)
    }

    /// Batch number `at`, which was asked for. What comes next is asked for before the step on this one.
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
        Ok(DeviceBatch { sampled, rows, seeds: drawn.mine.into_owned(), n_loss: drawn.n_all })
    }

    /// A batch, and then the beginning of those that come next.
    fn advance(&mut self, lists: &dyn SeedLists, at: usize, pool: &mut Pool<B>) -> Result<Read<B>, TrainError> {
        let Some(loaded) = self.ahead.take() else {
            let sampled = self.source.take()?;
            self.request(lists, at + 1)?;
            return Ok((sampled, None));
        };
        debug_assert_eq!(loaded.at, at, "batches are taken in order");
        // The next rows are begun before these have come, so that the bus has something to do all the time.
        let begun = self.load(lists, at + 1, pool);
        self.finish()?;
        begun?;
        Ok((loaded.sampled, Some(loaded.rows)))
    }

    /// A batch of which nothing was begun.
    fn make(&mut self, lists: &dyn SeedLists, at: usize, pool: &mut Pool<B>) -> Result<Read<B>, TrainError> {
        self.request(lists, at)?;
        let sampled = self.source.take()?;
        let rows = self.loader.as_ref().map(|loader| loader.read(&sampled, pool)).transpose()?;
        Ok((sampled, rows))
    }

    fn request(&mut self, lists: &dyn SeedLists, at: usize) -> Result<(), TrainError> {
        if at < lists.n_batches() {
            let drawn = lists.seeds(at);
            self.source.request(&drawn.mine, drawn.key)?;
        }
        Ok(())
    }

    /// Where there is a loader, has it read the rows of a batch that was asked for, and asks for the one behind that.
    fn load(&mut self, lists: &dyn SeedLists, at: usize, pool: &mut Pool<B>) -> Result<(), TrainError> {
        if self.loader.is_none() || at >= lists.n_batches() {
            return Ok(());
        }
        let sampled = self.source.take()?;
        self.request(lists, at + 1)?;
        let Some(loader) = &self.loader else { return Ok(()) };
        let rows = loader.begin(&sampled, pool)?;
        self.ahead = Some(Loaded { at, sampled, rows });
        Ok(())
    }

    fn finish(&self) -> Result<(), TrainError> {
        match &self.loader {
            Some(loader) => Ok(loader.reader.finish(loader.backend)?),
            None => Ok(()),
        }
    }

    /// Gives up what was loaded and not taken: its rows may still be written.
    fn forget(&mut self, pool: &mut Pool<B>) -> Result<(), TrainError> {
        self.finish()?;
        if let (Some(loaded), Some(loader)) = (self.ahead.take(), &self.loader) {
            pool.give(loader.backend, loaded.rows);
        }
        Ok(())
    }
}

impl<B: Backend> Drop for DeviceBatches<'_, B> {
    fn drop(&mut self) {
        // Memory is freed in the order of what is asked of the device.
        let _ = self.finish();
    }
}
