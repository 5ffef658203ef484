//! Feature stores: features that are read by id from any memory, [`FeatureDevice`] on CUDA.
//!
//! A [`Store`] reads rows of one form, dense or [codes](Decoded), from [`StoredRows`]: small stores that compose.
//! ```text
//! Store, Decoded ──▶ Cached, rows that GPUs have ──▶ InPlace   pinned memory of the host (UVA), read over the bus
//!                │   and those of the batch before   Staged    threads of the host gather, copies bring
//!                │                                   Staged    the same, from the hosts of all ranks (host_fetch)
//!                ├──▶ InPlace    memory of the device, and of other GPUs (patches)
//!                └──▶ AllToAll   exchange between GPUs (patches)
//! ```
//! A batch reads each of its rows once. Rows on GPUs are read in place, from the device's memory or over links between
//! GPUs. Rows on the host are read in one of two ways, which [`HostReads`] selects. They lie in pinned memory that a
//! launch of few blocks reads over the bus at the same time; or host cores gather them and copies bring them. With one
//! launch for both kinds, a warp would hold rows of GPUs while it waits for the host. For a code book (paper B) only
//! codes travel. Rows that devices cannot decode are decoded by those cores, or once, into memory of the device.
//! Where only sums of rows are wanted, these are computed from codes ([`code_book`]).

mod cache;
mod cached;
mod code_book;
mod decoded;
mod group;
mod host_fetch;
mod in_place;
mod misses;
mod patches;
mod pinned;
mod request;
mod row_checks;
mod row_launch;
mod row_sources;
mod shared;
mod staged;
mod store;
mod threads;
mod uva;

use std::ops::Range;
use std::sync::Arc;

use girih_comm::{CommError, GpuTransport};
use girih_compress::CompressedFeatures;
use girih_compute::scratch::pitch;
use girih_compute::{ComputeError, Dtype, Shape, checks};
use girih_features::{
    ByTransport, FeatureDevice, FeatureStore, HostFeatures, HostReads, HostRows, PatchRowsOperand, Placement,
    SplitRows, WritableStore,
};
use girih_graph_format::{Matrix, NodeId};
use rayon::prelude::*;

use self::cache::{CacheShard, DeviceCache};
use self::cached::Cached;
use self::code_book::{CodeBook, CodeSums};
use self::decoded::Decoded;
use self::group::{Group, SharedPinned};
use self::in_place::InPlace;
use self::patches::{LocalRows, asking_others, reading_others};
use self::request::{RowBuffers, StoredRows, address};
use self::row_checks::{OPERATION, check_brought, check_written};
pub(crate) use self::row_launch::RowLaunch;
use self::row_sources::{Dense, Form, RowsDecoded, RowsOfCodes, RowsOfMatrix, RowsOfPieces, RowsOnHost};
pub(crate) use self::shared::Shared;
use self::staged::{GatherJob, Staged, StagedSource};
use self::store::Store;
use self::threads::{ROW_BYTES_MAX, StagedGather};
use self::uva::HostTable;
pub(crate) use self::uva::{Rows, UvaTable};
use crate::Cuda;
use crate::abi::{ON_HOST, RowSource};
use crate::matrix::CudaMatrix;

impl FeatureDevice for Cuda {
    fn host_features(
        &self,
        rows: &Matrix,
        dtype: Dtype,
        (placement, reads): (&Placement, HostReads),
    ) -> Result<Option<HostFeatures<Self>>, ComputeError> {
        let (n_rows, form) = (rows.n_rows(), Dense { cols: rows.n_cols(), dtype });
        checks::allocation(Shape::new(n_rows, pitch(form.cols)), dtype.n_bytes())?;
        let row_bytes = form.row_bytes();
        let offset = |row| (row * row_bytes) as u64;
        let placed = Rows { operation: OPERATION, n_rows, offset: &offset, mark: ON_HOST };
        let write = |range: Range<usize>, memory: &mut [u8]| form.write_all(memory, rows, range.start);
        let (reader, source): (_, Arc<dyn StagedSource>) = if Self::brings_rows(row_bytes, reads) {
            let source: Arc<dyn StagedSource> = if dtype == Dtype::F32 || rows.buffer().is_mapped() {
                Arc::new(RowsOfMatrix { rows: rows.clone(), form })
            } else {
                // Rounded once, which halves the bytes that cores read for each batch.
                let group = Group::of(self, OPERATION, placement)?;
                Arc::new(RowsOfPieces { pieces: Arc::new(HostTable::plain(&placed, &write, &group)?), row_bytes })
            };
            (self.staged(Form::Dense(form), (&placed, placement), &source)?, source)
        } else {
            let table = UvaTable::new(self, &placed, &write, placement)?;
            let source = RowsOfPieces { pieces: Arc::clone(&table.on_host), row_bytes };
            (self.placed(Form::Dense(form), (n_rows, row_bytes), table)?, Arc::new(source))
        };
        Ok(Some(HostFeatures { reader, on_host: Arc::new(RowsOnHost { source, n_rows, form }) }))
    }

    fn code_rows(
        &self,
        codes: &CompressedFeatures,
        dtype: Dtype,
        placement: Option<(&Placement, HostReads)>,
    ) -> Result<Option<Box<dyn FeatureStore<Self>>>, ComputeError> {
        let Some(book) = CodeBook::upload(self, OPERATION, codes, dtype)? else { return Ok(None) };
        let (n_rows, row_bytes) = (codes.n_rows(), codes.codec().row_bytes());
        let offset = |row| (row * row_bytes) as u64;
        let placed = Rows { operation: OPERATION, n_rows, offset: &offset, mark: ON_HOST };
        let store = match placement {
            Some((placement, reads)) if Self::brings_rows(row_bytes, reads) => {
                let source: Arc<dyn StagedSource> = Arc::new(RowsOfCodes { codes: codes.clone(), row_bytes });
                self.staged(Form::Codes(book), (&placed, placement), &source)
            }
            Some((placement, _)) => {
                let write = |range: Range<usize>, memory: &mut [u8]| {
                    let of_range = &codes.codes()[range.start * row_bytes..range.end * row_bytes];
                    memory.par_chunks_mut(1 << 20).zip(of_range.par_chunks(1 << 20)).for_each(|(to, from)| {
                        to.copy_from_slice(from);
                    });
                };
                let table = UvaTable::new(self, &placed, &write, placement)?;
                self.placed(Form::Codes(book), (n_rows, row_bytes), table)
            }
            None => {
                let bytes = self.upload_list(OPERATION, codes.codes())?;
                let source = RowSource::at(address(&bytes), row_bytes as u64);
                self.decoded(book, (n_rows, row_bytes), InPlace::resident(source, bytes), Some(source))
            }
        };
        store.map(Some)
    }

    fn split_rows(
        &self,
        rows: SplitRows<'_>,
        placement: &Placement,
    ) -> Result<Option<Box<dyn FeatureStore<Self>>>, ComputeError> {
        host_fetch::split_rows(self, rows, placement)
    }

    fn remote_features(
        &self,
        own: PatchRowsOperand<'_, Self>,
        bounds: &[NodeId],
        by: &[GpuTransport],
    ) -> Result<ByTransport<Box<dyn FeatureStore<Self>>>, CommError> {
        const NAME: &str = "rows of patches on GPUs";
        let Some(peers) = self.peers() else { return Ok(Vec::new()) };
        let failed = |error: ComputeError| CommError::Library { operation: NAME, message: error.to_string() };
        let Some(own) = LocalRows::new(self, own, (bounds, peers.rank)).map_err(failed)?.map(Arc::new) else {
            return Ok(Vec::new());
        };
        peers.by_transport(NAME, self.device.stream.context(), by, |lists| match lists {
            Some(lists) => asking_others(self, &own, bounds, lists),
            None => reading_others(self, &own, bounds, peers),
        })
    }

    fn row_store(
        &self,
        shape: Shape,
        dtype: Dtype,
        together: bool,
    ) -> Result<Option<Box<dyn WritableStore<Self>>>, ComputeError> {
        let form = Dense { cols: shape.cols, dtype };
        checks::allocation(Shape::new(shape.rows, pitch(form.cols)), dtype.n_bytes())?;
        let group = if together { Group::of_process(self) } else { Group::alone() };
        let memory = group.pinned(self, OPERATION, shape.rows * form.row_bytes())?;
        let rows = InPlace::uva(RowSource::at(memory.memory().address(), form.row_bytes() as u64), memory);
        let rows = Cached::new(self, (shape.rows, true), None, rows)?;
        let write = RowLaunch::copying(self, OPERATION, dtype)?;
        Ok(Some(Box::new(Store::new(self, shape.rows, (form.cols, dtype), write, rows)?)))
    }
}

/// Store of rows that devices write to memory of the host.
type Written = Store<Cached<InPlace<SharedPinned>>>;

impl WritableStore<Cuda> for Written {
    fn is_shared(&self) -> bool {
        self.rows.others.memory.is_shared
    }

    fn write(&mut self, cuda: &Cuda, first: usize, rows: &CudaMatrix) -> Result<(), ComputeError> {
        check_written((rows.shape, rows.dtype), first, (self.shape(), self.result.1))?;
        let InPlace { source, memory, .. } = &self.rows.others;
        let row_bytes = source.row_bytes as usize;
        let (n_bytes, begin) = (rows.shape.rows * row_bytes, first * row_bytes);
        if n_bytes == 0 {
            return Ok(());
        }
        // SAFETY: each row is written by one rank, and nobody reads it before ranks have met.
        let out = unsafe { memory.memory().own_bytes(begin..begin + n_bytes) };
        cuda.device.stream.memcpy_dtoh(&rows.data.slice(..n_bytes), out).map_err(Cuda::failed(OPERATION))?;
        // `rows` may be overwritten as soon as this returns, by any stream.
        cuda.wait(OPERATION)
    }
}

impl Cuda {
    /// Whether the host gathers rows of `row_bytes` bytes: it does unless `reads` forbids it or rows are too long.
    fn brings_rows(row_bytes: usize, reads: HostReads) -> bool {
        reads != HostReads::InPlace && row_bytes <= ROW_BYTES_MAX
    }

    /// Stores rows that the host decodes: sparse ones, or codes that the device does not decode. Without a placement
    /// all are decoded now, into memory of the device. With one, those that it gives to GPUs are, and threads of the
    /// host decode the others for each gather. All ranks of a process call it together.
    ///
    /// # Errors
    /// When the device's memory does not suffice, the placement is for other devices, a rank fails, or rows that stay
    /// on the host are too long for its threads.
    pub fn decoded_rows(
        &self,
        rows: &Arc<dyn HostRows>,
        dtype: Dtype,
        placement: Option<&Placement>,
    ) -> Result<Box<dyn FeatureStore<Self>>, ComputeError> {
        let Shape { rows: n_rows, cols } = rows.shape();
        checks::allocation(Shape::new(n_rows, pitch(cols)), dtype.n_bytes())?;
        let form = Dense { cols, dtype };
        let row_bytes = form.row_bytes();
        let offset = |row| (row * row_bytes) as u64;
        let placed = Rows { operation: OPERATION, n_rows, offset: &offset, mark: ON_HOST };
        let source: Arc<dyn StagedSource> = Arc::new(RowsDecoded { rows: Arc::clone(rows), form });
        if let Some(placement) = placement {
            check_brought(row_bytes)?;
            return self.staged(Form::Dense(form), (&placed, placement), &source);
        }
        let copy = |row: usize, to: &mut [u8]| source.copy(row, to);
        let mut read = |nodes: &[NodeId]| Ok(placed.copied(&copy, nodes));
        let all: Vec<NodeId> = (0..n_rows as NodeId).collect();
        let decoded = CacheShard::new(self, &placed, &mut read, &all)?;
        let source = RowSource::at(decoded.address, row_bytes as u64);
        self.formed(Form::Dense(form), (n_rows, row_bytes), InPlace::resident(source, decoded))
    }

    /// Store of rows that the host gathers, except for those that a placement puts on GPUs.
    fn staged(
        &self,
        form: Form,
        (rows, placement): (&Rows<'_>, &Placement),
        source: &Arc<dyn StagedSource>,
    ) -> Result<Box<dyn FeatureStore<Self>>, ComputeError> {
        let group = Group::of(self, OPERATION, placement)?;
        let copy = |row: usize, to: &mut [u8]| source.copy(row, to);
        let mut read = |nodes: &[NodeId]| Ok(rows.copied(&copy, nodes));
        let hot = DeviceCache::beside_host(self, rows, &mut read, (placement, &group))?;
        let row_bytes = (rows.offset)(1) as usize;
        self.store_of(form, (rows.n_rows, row_bytes), hot, || {
            // Ranks of this process share its cores.
            let n_ranks = self.peers().filter(|peers| peers.is_one_process).map_or(1, |peers| peers.size);
            let threads = (StagedGather::n_threads(n_ranks), threads::BUFFER_BYTES);
            let job = || GatherJob { source: Arc::clone(source), row_bytes };
            Ok(Staged::new(StagedGather::new(self, OPERATION, threads, job)?, row_bytes, false))
        })
    }

    /// Store of rows in pinned host memory and on GPUs.
    fn placed(
        &self,
        form: Form,
        (n_rows, row_bytes): (usize, usize),
        table: UvaTable,
    ) -> Result<Box<dyn FeatureStore<Self>>, ComputeError> {
        let hot = table.on_gpus().cloned();
        let source = table.argument(row_bytes as u64);
        self.store_of(form, (n_rows, row_bytes), hot, || Ok(InPlace::uva(source, table)))
    }

    /// Store of `sizes`, rows and bytes of each, that are hot, or else in the store that `others` makes.
    fn store_of<S: StoredRows + 'static>(
        &self,
        form: Form,
        sizes: (usize, usize),
        hot: Option<Arc<DeviceCache>>,
        others: impl FnOnce() -> Result<S, ComputeError>,
    ) -> Result<Box<dyn FeatureStore<Self>>, ComputeError> {
        // The previous batch has decoded values of codes, not the codes themselves.
        let (are_all, reuses) = (hot.as_ref().is_some_and(|hot| hot.are_all()), matches!(form, Form::Dense(_)));
        match hot.map(|hot| InPlace::cached(hot, sizes.1)) {
            Some(hot) if are_all => self.formed(form, sizes, hot),
            None if !reuses => self.formed(form, sizes, others()?),
            hot => self.formed(form, sizes, Cached::new(self, (sizes.0, reuses), hot, others()?)?),
        }
    }

    /// Store of rows of a form.
    fn formed<S: StoredRows + 'static>(
        &self,
        form: Form,
        (n_rows, row_bytes): (usize, usize),
        rows: S,
    ) -> Result<Box<dyn FeatureStore<Self>>, ComputeError> {
        match form {
            Form::Dense(Dense { cols, dtype }) => {
                let write = RowLaunch::copying(self, OPERATION, dtype)?;
                Ok(Box::new(Store::new(self, n_rows, (cols, dtype), write, rows)?))
            }
            Form::Codes(book) => self.decoded(book, (n_rows, row_bytes), rows, None),
        }
    }

    /// Store of codes; `resident` is their place in memory of the device.
    fn decoded<S: StoredRows + 'static>(
        &self,
        book: CodeBook,
        (n_rows, row_bytes): (usize, usize),
        rows: S,
        resident: Option<RowSource>,
    ) -> Result<Box<dyn FeatureStore<Self>>, ComputeError> {
        let (result, book) = ((book.width, book.dtype), Arc::new(book));
        let write = RowLaunch::decoding(self, OPERATION, &book)?;
        let store = Store::new(self, n_rows, result, write, rows)?;
        let Some(sums) = CodeSums::new(self, OPERATION, &book)? else { return Ok(Box::new(store)) };
        let copy = RowLaunch::copying(self, OPERATION, result.1)?;
        Ok(Box::new(Decoded { store, copy, sums, resident, codes: RowBuffers::new(row_bytes) }))
    }
}
