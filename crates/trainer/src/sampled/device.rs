//! [`DeviceBatches`]: batches that the device samples, and whose features it reads, ahead of the step.
//!
//! ```text
//! sampler   batch i+1 (i+2)   on a stream of its own      one batch ahead of the step; two where a loader is between
//! loader    batch     i+1     rows that lie elsewhere, on a stream of its own
//! trainer   batch i           the step
//! ```
//! The host begins all three before it begins the step, and waits for sizes of batches alone, so that the three go on
//! side by side: the pipeline of Cai et al. (DSP, PPoPP 2023, section 6) with one host thread, whose order of launches
//! is always the same. Rows that batch `i` has, too, are taken from there, so that only the others travel; for their
//! sake the rows of a batch stay until those of the next have come.

use std::sync::Arc;

use girih_compute::{Backend, ComputeError, Dtype, NeighborBatch, NeighborSource, RowReader, RowSums, Shape};
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
    /// Rows of the batch that was taken last, from which some of the next are to come.
    kept: Option<Kept<B>>,
}

/// Reads rows that are no matrix of the device.
pub(crate) struct Loader<'a, B: Backend> {
    backend: &'a B,
    reader: &'a dyn RowReader<B>,
    n_columns: usize,
    precision: Dtype,
    /// What makes the first layer's sums of how rows are stored, if that is all that is wanted of them, and whether it
    /// reads destinations, too.
    sums: Option<(&'a dyn RowSums<B>, bool)>,
}

/// What a batch reads of features.
pub(crate) enum ReadRows<M> {
    /// Its rows.
    All(Arc<M>),
    /// Sums of the first layer, and the rows of its destinations, where it reads these.
    Summed { own: Option<M>, sums: M },
}

impl<'a, B: Backend> Loader<'a, B> {
    /// Of rows with so many columns, stored so.
    pub(crate) fn new(backend: &'a B, (reader, n_columns, precision): (&'a dyn RowReader<B>, usize, Dtype)) -> Self {
        Self { backend, reader, n_columns, precision, sums: None }
    }

    /// For a model whose first layer, as [`summed`](super::session::summed) says, wants sums of rows alone.
    pub(crate) fn for_sums(self, summed: Option<bool>) -> Self {
        Self { sums: summed.and_then(|reads_destinations| Some((self.reader.sums()?, reads_destinations))), ..self }
    }

    fn room(&self, n_rows: usize, pool: &mut Pool<B>) -> Result<B::Matrix, ComputeError> {
        pool.take(self.backend, Shape::new(n_rows, self.n_columns), self.precision)
    }

    /// Begins to read the rows of a batch, for which there is room then, unless they are summed; perhaps with the help
    /// of what was begun before.
    fn begin(
        &self,
        sampled: &NeighborBatch<B>,
        before: Option<&Loaded<B>>,
        pool: &mut Pool<B>,
    ) -> Result<Option<Arc<B::Matrix>>, ComputeError> {
        let ids = ids_of(sampled);
        if let Some((sums, _)) = self.sums {
            return sums.begin(self.backend, ids).map(|()| None);
        }
        let before = before.and_then(|loaded| Some((ids_of(&loaded.sampled), loaded.rows.as_deref()?)));
        let mut rows = self.room(sampled.n_inputs, pool)?;
        self.reader.begin(self.backend, ids, before, &mut rows)?;
        Ok(Some(Arc::new(rows)))
    }

    /// What was begun first comes before what is asked of the device from now on.
    fn finish(
        &self,
        (sampled, rows): (&NeighborBatch<B>, Option<Arc<B::Matrix>>),
        pool: &mut Pool<B>,
    ) -> Result<ReadRows<B::Matrix>, ComputeError> {
        let (Some((of_stored, reads_destinations)), block) = (self.sums, &sampled.blocks[0]) else {
            self.reader.finish(self.backend)?;
            return Ok(ReadRows::All(rows.expect("rows that are not summed have room")));
        };
        let mut own = reads_destinations.then(|| self.room(block.n_destinations, pool)).transpose()?;
        let mut sums = self.room(block.n_destinations, pool)?;
        of_stored.finish(self.backend, (&block.rows, ids_of(sampled)), own.as_mut(), &mut sums)?;
        Ok(ReadRows::Summed { own, sums })
    }
}

fn ids_of<B: Backend>(sampled: &NeighborBatch<B>) -> &B::Ids {
    sampled.inputs.as_ref().expect("rows that are read by id are listed")
}

/// A batch, and the room for the rows that the loader reads for it, unless they are summed.
struct Loaded<B: Backend> {
    at: usize,
    sampled: NeighborBatch<B>,
    rows: Option<Arc<B::Matrix>>,
}

/// Rows of a batch, and which they are.
struct Kept<B: Backend> {
    rows: Arc<B::Matrix>,
    _ids: Option<B::Ids>,
}

/// A batch, and what was read for it.
type Read<B> = (NeighborBatch<B>, Option<ReadRows<<B as Backend>::Matrix>>);

/// A batch on the device, and what its loss is of.
pub(crate) struct DeviceBatch<B: Backend> {
    pub(crate) sampled: NeighborBatch<B>,
    /// What was read for it of features.
    pub(crate) rows: Option<ReadRows<B::Matrix>>,
    /// This rank's seeds: its destinations, counted from the first node that has a label here.
    pub(crate) outputs: Vec<NodeId>,
    /// Seeds of the whole batch, on all ranks.
    pub(crate) n_loss: usize,
}

impl<'a, B: Backend> DeviceBatches<'a, B> {
    /// Begins work ahead of the step if `is_ahead`.
    pub(crate) fn new(source: Box<dyn NeighborSource<B> + 'a>, loader: Option<Loader<'a, B>>, is_ahead: bool) -> Self {
        Self { source, loader, is_ahead, ahead: None, kept: None }
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
        self.load(lists, first, None, pool)
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
        let outputs = drawn.mine.iter().map(|seed| seed - drawn.first).collect();
        Ok(DeviceBatch { sampled, rows, outputs, n_loss: drawn.n_all })
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
        let begun = self.load(lists, at + 1, Some(&loaded), pool);
        let loader = self.loader.as_ref().expect("what loaded them");
        let Loaded { mut sampled, rows, .. } = loaded;
        let kept = rows.as_ref().filter(|_| loader.reader.takes_from_before() && self.ahead.is_some()).cloned();
        let rows = loader.finish((&sampled, rows), pool)?;
        self.keep(kept.map(|rows| Kept { rows, _ids: sampled.inputs.take() }), pool);
        begun?;
        Ok((sampled, Some(rows)))
    }

    /// Keeps rows of which some are wanted next, and gives back those of the batch before, of which none is any more.
    fn keep(&mut self, kept: Option<Kept<B>>, pool: &mut Pool<B>) {
        let before = std::mem::replace(&mut self.kept, kept);
        self.give_back(before.map(|kept| kept.rows), pool);
    }

    /// Gives rows back that nobody else has.
    fn give_back(&self, rows: Option<Arc<B::Matrix>>, pool: &mut Pool<B>) {
        if let Some((loader, rows)) = self.loader.as_ref().zip(rows.and_then(Arc::into_inner)) {
            pool.give(loader.backend, rows);
        }
    }

    /// A batch of which nothing was begun.
    fn make(&mut self, lists: &dyn SeedLists, at: usize, pool: &mut Pool<B>) -> Result<Read<B>, TrainError> {
        self.request(lists, at)?;
        let sampled = self.source.take()?;
        let Some(loader) = &self.loader else { return Ok((sampled, None)) };
        let rows = loader.begin(&sampled, None, pool)?;
        let rows = loader.finish((&sampled, rows), pool)?;
        Ok((sampled, Some(rows)))
    }

    fn request(&mut self, lists: &dyn SeedLists, at: usize) -> Result<(), TrainError> {
        if at < lists.n_batches() {
            let drawn = lists.seeds(at);
            self.source.request(&drawn.mine, drawn.key)?;
        }
        Ok(())
    }

    /// Where there is a loader, has it read the rows of a batch that was asked for, and asks for the one behind that.
    fn load(
        &mut self,
        lists: &dyn SeedLists,
        at: usize,
        before: Option<&Loaded<B>>,
        pool: &mut Pool<B>,
    ) -> Result<(), TrainError> {
        if self.loader.is_none() || at >= lists.n_batches() {
            return Ok(());
        }
        let sampled = self.source.take()?;
        self.request(lists, at + 1)?;
        let Some(loader) = &self.loader else { return Ok(()) };
        let rows = loader.begin(&sampled, before, pool)?;
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
        let ahead = self.ahead.take().and_then(|loaded| loaded.rows);
        self.give_back(ahead, pool);
        self.keep(None, pool);
        Ok(())
    }
}

impl<B: Backend> Drop for DeviceBatches<'_, B> {
    fn drop(&mut self) {
        // Memory is freed in the order of what is asked of the device.
        let _ = self.finish();
    }
}
