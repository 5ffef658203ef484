//! [`CudaFeatures`]: features that are read by id from any memory. Rows lie on this GPU, on others, or in pinned host
//! memory, as a placement says. Codes lie there, too, and are decoded as they are read. Both may also lie in the host
//! memory of other ranks. Or the device itself wrote the rows to the host.
//!
//! A batch reads each of its rows once; rows that the previous batch has are copied from there
//! ([`misses`](self::misses)). Rows on GPUs are read in place, from the device's memory or over links between
//! GPUs. Rows on the host are read in one of two ways, which [`HostReads`] selects. They lie in pinned memory that a
//! launch of few blocks reads over the bus at the same time; or host cores gather them and copies bring them
//! ([`staged`](self::staged)). With one launch for both kinds, a warp would hold rows of GPUs while it
//! waits for the host. For a code book (paper B) only codes travel. Where only sums of rows are wanted, these are
//! computed from codes ([`code_book`](self::code_book)).

mod cache;
mod code_book;
mod group;
mod memory;
mod misses;
mod pinned;
mod remote;
mod requests;
mod row_checks;
mod row_launch;
mod row_sources;
mod shared;
mod split_rows;
mod staged;
mod uva;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use girih_compress::CompressedFeatures;
use girih_compute::{ComputeError, Dtype, Shape, Transpose, checks};
use girih_features::{
    FeatureDevice, FeatureStore, HostFeatures, HostReads, Placement, RowSums, SplitRows, WritableStore,
};
use girih_graph_format::{Matrix, NodeId};
use rayon::prelude::*;

use self::cache::DeviceCache;
use self::code_book::{CodeBook, CodeSums};
use self::group::Group;
use self::memory::{Form, Memory};
use self::misses::MissKernels;
use self::pinned::Pinned;
pub(crate) use self::remote::{LocalRows, RemoteFeatures};
use self::requests::{Begun, Spare};
use self::row_checks::{OPERATION, check_dtypes, check_first, check_written};
pub(crate) use self::row_launch::RowLaunch;
use self::row_sources::{Dense, RowsOfCodes, RowsOfMatrix, RowsOfPieces, RowsOnHost};
pub(crate) use self::shared::Shared;
use self::staged::{GatherJob, ROW_BYTES_MAX, StagedGather, StagedSource};
use self::uva::HostTable;
pub(crate) use self::uva::{Rows, UvaTable};
use crate::Cuda;
use crate::abi::{BLOCK, GatherIndex, LARGE_BLOCK, ON_HOST, RowSource};
use crate::matrix::{CudaIds, CudaMatrix, CudaSparse, pitch};
use crate::nccl::{OwnedStream, Peers};

/// Blocks, and threads of each, for rows on GPUs.
const ON_GPUS: (u32, u32) = (132, BLOCK);
/// Blocks, and threads of each, for rows in memory of the device itself.
const IN_DEVICE: (u32, u32) = (132 * 8, BLOCK);
/// Blocks, and threads of each, that saturate the bus with undecoded rows, and no more. Blocks of a step's products
/// that need a whole SM wait for the reading ones. Commands of the step also come over the bus, and wait behind the
/// reads under way. A warp that decodes has one code in flight, so decoding needs more blocks.
const BLOCKS_OF_BUS: (u32, u32) = (5, LARGE_BLOCK);

/// Reader of rows by id; see the module.
struct CudaFeatures {
    n_rows: usize,
    row_bytes: usize,
    memory: Memory,
    form: Form,
    /// Streams of pending requests: for rows on the host, and for rows on GPUs.
    side: OwnedStream,
    near: OwnedStream,
    launch: RowLaunch,
    /// Kernels that sum codes; `None` for dense rows.
    sums: Option<SumsOfCodes>,
    /// Lists of missing rows; `None` if a batch gets all of its rows from one memory.
    misses: Option<MissKernels>,
    /// Pending requests, the oldest first.
    begun: Mutex<VecDeque<Begun>>,
    /// Buffers that no batch uses. Allocating them for each batch would take longer than bringing its rows.
    spare: Mutex<Spare>,
}

/// Kernels that sum codes without decoding them.
struct SumsOfCodes {
    /// Copies codes without decoding them.
    copy: RowLaunch,
    sums: CodeSums,
}

/// Ids and rows of the latest request, on the device.
type Before<'a> = (&'a CudaIds, &'a CudaMatrix);

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
        let (memory, source): (_, Arc<dyn StagedSource>) = if Self::brings_rows(row_bytes, reads) {
            let source: Arc<dyn StagedSource> = if dtype == Dtype::F32 || rows.buffer().is_mapped() {
                Arc::new(RowsOfMatrix { rows: rows.clone(), form })
            } else {
                // Rounded once, which halves the bytes that cores read for each batch.
                let group = Group::of(self, OPERATION, placement)?;
                Arc::new(RowsOfPieces { pieces: Arc::new(HostTable::plain(&placed, &write, &group)?), row_bytes })
            };
            (self.staged(&placed, &source, placement)?, source)
        } else {
            let placed = UvaTable::new(self, &placed, &write, placement)?;
            let source = RowsOfPieces { pieces: Arc::clone(placed.on_host()), row_bytes };
            (Memory::Placed(placed), Arc::new(source))
        };
        let reader = self.reader((n_rows, row_bytes), memory, Form::Dense(form))?;
        Ok(Some(HostFeatures { reader, on_host: Arc::new(RowsOnHost { source, n_rows, form }) }))
    }

    fn code_rows(
        &self,
        codes: &CompressedFeatures,
        dtype: Dtype,
        placement: Option<(&Placement, HostReads)>,
    ) -> Result<Option<Box<dyn FeatureStore<Self>>>, ComputeError> {
        let Some(book) = CodeBook::upload(self, OPERATION, codes, dtype)? else { return Ok(None) };
        let (n_rows, row_bytes, form) = (codes.n_rows(), codes.codec().row_bytes(), Form::Codes(book));
        let offset = |row| (row * row_bytes) as u64;
        let placed = Rows { operation: OPERATION, n_rows, offset: &offset, mark: ON_HOST };
        let memory = match placement {
            Some((placement, reads)) if Self::brings_rows(row_bytes, reads) => {
                let source: Arc<dyn StagedSource> = Arc::new(RowsOfCodes { codes: codes.clone(), row_bytes });
                self.staged(&placed, &source, placement)?
            }
            Some((placement, _)) => {
                let write = |range: Range<usize>, memory: &mut [u8]| {
                    let of_range = &codes.codes()[range.start * row_bytes..range.end * row_bytes];
                    memory.par_chunks_mut(1 << 20).zip(of_range.par_chunks(1 << 20)).for_each(|(to, from)| {
                        to.copy_from_slice(from);
                    });
                };
                Memory::Placed(UvaTable::new(self, &placed, &write, placement)?)
            }
            None => Memory::Device(self.upload_list(OPERATION, codes.codes())?),
        };
        self.reader((n_rows, row_bytes), memory, form).map(Some)
    }

    fn split_rows(
        &self,
        rows: SplitRows<'_>,
        placement: &Placement,
    ) -> Result<Option<Box<dyn FeatureStore<Self>>>, ComputeError> {
        Self::split_rows(self, rows, placement)
    }

    fn row_store(
        &self,
        shape: Shape,
        dtype: Dtype,
        together: bool,
    ) -> Result<Option<Box<dyn WritableStore<Self>>>, ComputeError> {
        let form = Dense { cols: shape.cols, dtype };
        checks::allocation(Shape::new(shape.rows, pitch(form.cols)), dtype.n_bytes())?;
        let n_bytes = shape.rows * form.row_bytes();
        let shared = if together { Group::of_process(self).pinned(self, OPERATION, n_bytes)? } else { None };
        let memory = match shared {
            Some(shared) => Memory::WrittenTogether(shared),
            None => Memory::Written(Pinned::new(self, n_bytes, OPERATION)?),
        };
        Ok(Some(Box::new(self.rows((shape.rows, form.row_bytes()), memory, Form::Dense(form))?)))
    }
}

impl Cuda {
    /// Whether the host gathers rows of `row_bytes` bytes: it does unless `reads` forbids it or rows are too long.
    fn brings_rows(row_bytes: usize, reads: HostReads) -> bool {
        reads != HostReads::InPlace && row_bytes <= ROW_BYTES_MAX
    }

    /// Number of ranks that share the cores of this process.
    fn ranks_of_process(&self) -> usize {
        self.peers().filter(|peers| peers.is_one_process()).map_or(1, Peers::size)
    }

    /// Rows gathered by the host, except for those that a placement puts on GPUs.
    fn staged(
        &self,
        rows: &Rows<'_>,
        source: &Arc<dyn StagedSource>,
        placement: &Placement,
    ) -> Result<Memory, ComputeError> {
        let group = Group::of(self, OPERATION, placement)?;
        let copy = |row: usize, to: &mut [u8]| source.copy(row, to);
        let mut read = |nodes: &[NodeId]| Ok(rows.copied(&copy, nodes));
        let on_gpus = DeviceCache::beside_host(self, rows, &mut read, (placement, &group))?;
        let bringing = GatherJob { source: Arc::clone(source), row_bytes: (rows.offset)(1) as usize };
        let brought = StagedGather::new(self, OPERATION, self.ranks_of_process(), &bringing)?;
        Ok(Memory::Staged(brought, on_gpus))
    }

    /// Feature store of `sizes`: rows, and bytes of each.
    pub(crate) fn reader(
        &self,
        sizes: (usize, usize),
        memory: Memory,
        form: Form,
    ) -> Result<Box<dyn FeatureStore<Self>>, ComputeError> {
        Ok(Box::new(self.rows(sizes, memory, form)?))
    }

    /// Reader of rows in some memory, with its streams and kernels.
    fn rows(
        &self,
        (n_rows, row_bytes): (usize, usize),
        memory: Memory,
        form: Form,
    ) -> Result<CudaFeatures, ComputeError> {
        let stream = || self.device.urgent_stream().map_err(Self::failed(OPERATION));
        let (side, near) = (self.ending(&stream()?), self.ending(&stream()?));
        let (launch, sums) = match &form {
            Form::Dense(form) => (RowLaunch::copying(self, OPERATION, form.dtype)?, None),
            Form::Codes(book) => (RowLaunch::decoding(self, OPERATION, book)?, SumsOfCodes::new(self, book)?),
        };
        // The previous batch has decoded values of codes, not the codes themselves.
        let has_before = matches!(form, Form::Dense(_)) && !memory.is_on_devices();
        let is_listed = has_before || memory.gpus_beside_host().is_some();
        let misses = is_listed.then(|| MissKernels::new(self, OPERATION, (n_rows, has_before))).transpose()?;
        let (begun, spare) = (Mutex::default(), Mutex::default());
        Ok(CudaFeatures { n_rows, row_bytes, memory, form, side, near, launch, sums, misses, begun, spare })
    }
}

impl SumsOfCodes {
    /// Compiles the kernels for a book, which has to live as long; `None` where rows are too wide.
    fn new(cuda: &Cuda, book: &CodeBook) -> Result<Option<Self>, ComputeError> {
        let Some(sums) = CodeSums::new(cuda, OPERATION, book)? else { return Ok(None) };
        Ok(Some(Self { copy: RowLaunch::copying(cuda, OPERATION, book.dtype)?, sums }))
    }
}

impl CudaFeatures {
    /// Source argument of launches; `None` where the host gathers rows and no row is on a GPU.
    fn argument(&self, cuda: &Cuda) -> Option<RowSource> {
        let (listed, at) = (RowSource::listed, RowSource::at);
        let row_bytes = self.row_bytes as u64;
        Some(match &self.memory {
            Memory::Placed(placed) => placed.argument(cuda, row_bytes),
            Memory::Staged(_, on_gpus) | Memory::Split(_, on_gpus) => listed(on_gpus.as_ref()?.list(cuda), row_bytes),
            Memory::Written(pinned) => at(pinned.address(), row_bytes),
            Memory::WrittenTogether(shared) => at(shared.memory().address(), row_bytes),
            Memory::Device(bytes) => at(cuda.pointer(Some(bytes)), row_bytes),
        })
    }

    /// Blocks and threads of a launch for rows on GPUs.
    fn threads_on_gpus(&self) -> (u32, u32) {
        if matches!(self.memory, Memory::Device(_)) { IN_DEVICE } else { ON_GPUS }
    }

    /// Blocks and threads of a launch for rows on the host alone.
    fn threads_of_bus(launch: &RowLaunch) -> (u32, u32) {
        if launch.decodes() { ON_GPUS } else { BLOCKS_OF_BUS }
    }

    /// Checks that ids are rows, and that a result has their number and element type. Returns whether it has any
    /// elements.
    fn check(&self, ids: &CudaIds, out: &CudaMatrix) -> Result<bool, ComputeError> {
        checks::gather_rows(Shape::new(self.n_rows, self.form.result().0), ids.range, out.shape)?;
        self.check_storage(out)?;
        Ok(!out.shape.is_empty())
    }

    /// Checks the element type of a result.
    fn check_storage(&self, out: &CudaMatrix) -> Result<(), ComputeError> {
        check_dtypes(OPERATION, self.form.result().1, out.dtype)
    }

    /// Checks the outputs of a request for sums: the product with a block, and the first rows.
    fn check_sums(
        &self,
        (block, ids): (&CudaSparse, &CudaIds),
        own: Option<&CudaMatrix>,
        sums: &CudaMatrix,
    ) -> Result<(), ComputeError> {
        let (n, cols) = (ids.range.len, self.form.result().0);
        let block = block.forward.shape;
        checks::spmm((block, Transpose::No), 0, None, Shape::new(n, cols), None, sums.shape)?;
        own.map_or(Ok(()), |own| check_first(own.shape, Shape::new(n, cols)))?;
        own.into_iter().chain([sums]).try_for_each(|out| self.check_storage(out))
    }

    /// Puts reads in place on the device's stream.
    fn launch(&self, cuda: &Cuda, ids: &CudaIds, to: u64) -> Result<(), ComputeError> {
        let Some(rows) = self.argument(cuda) else { return Ok(()) };
        let (names, to) = (GatherIndex::of(cuda.pointer(Some(&ids.ids))), (to, ids.range.len as u64));
        let threads =
            if self.memory.is_read_on_gpus() { self.threads_on_gpus() } else { Self::threads_of_bus(&self.launch) };
        // SAFETY: ids are rows, each of which lies where the list says; codes were checked; the result has a row for
        // each id.
        let launched = unsafe { self.launch.put(&cuda.device.stream, threads, rows, names, to) };
        launched.map_err(Cuda::failed(OPERATION))
    }

    /// Previous rows, if lists leave out rows that they contain.
    fn before<'a>(&self, before: Option<Before<'a>>) -> Result<Option<Before<'a>>, ComputeError> {
        let Some((ids, rows)) = before.filter(|_| self.reuses_previous_batch()) else { return Ok(None) };
        Ok(self.check(ids, rows)?.then_some((ids, rows)))
    }
}

impl FeatureStore<Cuda> for CudaFeatures {
    fn gather(&self, cuda: &Cuda, ids: &CudaIds, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        if !matches!(self.memory, Memory::Staged(..) | Memory::Split(..)) {
            if self.check(ids, out)? {
                self.launch(cuda, ids, cuda.pointer(Some(&out.data)))?;
            }
            return Ok(());
        }
        FeatureStore::begin(self, cuda, ids, None, out)?;
        while let Some(begun) = self.oldest() {
            self.wait_for(cuda, begun)?;
        }
        Ok(())
    }

    fn reuses_previous_batch(&self) -> bool {
        self.misses.as_ref().is_some_and(MissKernels::has_before)
    }

    fn begin(
        &self,
        cuda: &Cuda,
        ids: &CudaIds,
        before: Option<Before<'_>>,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        let before = self.before(before)?;
        let begun = if self.check(ids, out)? {
            self.begin_at(cuda, (ids, before), (&self.launch, cuda.pointer(Some(&out.data))), None)?
        } else {
            self.begin_nothing(cuda)?
        };
        self.begun().push_back(begun);
        Ok(())
    }

    fn finish(&self, cuda: &Cuda) -> Result<(), ComputeError> {
        let Some(begun) = self.oldest() else { return Ok(()) };
        let stored = self.wait_for(cuda, begun)?;
        self.spare().rooms.extend(stored);
        Ok(())
    }

    fn sums(&self) -> Option<&dyn RowSums<Cuda>> {
        self.sums.is_some().then_some(self)
    }
}

impl RowSums<Cuda> for CudaFeatures {
    /// Codes in the device's memory are read in place; others are brought, each once.
    fn begin(&self, cuda: &Cuda, ids: &CudaIds) -> Result<(), ComputeError> {
        let (n, cols) = (ids.range.len, self.form.result().0);
        checks::gather_rows(Shape::new(self.n_rows, cols), ids.range, Shape::new(n, cols))?;
        let is_here = matches!(self.memory, Memory::Device(_)) || n == 0;
        let begun = match self.sums.as_ref().filter(|_| !is_here) {
            Some(sums) => {
                let room = self.room(cuda, n)?;
                self.begin_at(cuda, (ids, None), (&sums.copy, cuda.pointer(Some(&room))), Some(room))?
            }
            None => self.begin_nothing(cuda)?,
        };
        self.begun().push_back(begun);
        Ok(())
    }

    fn finish(
        &self,
        cuda: &Cuda,
        (block, ids): (&CudaSparse, &CudaIds),
        own: Option<&mut CudaMatrix>,
        sums: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        let Some((of_codes, begun)) = self.sums.as_ref().zip(self.oldest()) else {
            return Err(ComputeError::argument(OPERATION, "no sums were begun"));
        };
        let stored = self.wait_for(cuda, begun)?;
        self.check_sums((block, ids), own.as_deref(), sums)?;
        // Without ids nothing is read.
        let nothing = RowSource::at(0, self.row_bytes as u64);
        let here = (self.argument(cuda).unwrap_or(nothing), cuda.pointer(Some(&ids.ids)));
        let (rows, ids) = stored.as_ref().map_or(here, |room| (self.stored_in(cuda, room), 0));
        if let Some(own) = own.filter(|own| !own.shape.is_empty()) {
            let (names, to) = (GatherIndex::of(ids), (cuda.pointer(Some(&own.data)), own.shape.rows as u64));
            // SAFETY: ids are rows, or there is one for each; codes were checked; `own` has no more rows than there
            // are.
            unsafe { self.launch.put(&cuda.device.stream, IN_DEVICE, rows, names, to) }
                .map_err(Cuda::failed(OPERATION))?;
        }
        if !sums.shape.is_empty() {
            // SAFETY: as above; the block has a column for each id.
            unsafe { of_codes.sums.put(cuda, OPERATION, block, (rows, ids), sums) }?;
        }
        self.spare().rooms.extend(stored);
        Ok(())
    }
}

impl WritableStore<Cuda> for CudaFeatures {
    fn is_shared(&self) -> bool {
        matches!(self.memory, Memory::WrittenTogether(_))
    }

    fn write(&mut self, cuda: &Cuda, first: usize, rows: &CudaMatrix) -> Result<(), ComputeError> {
        let not_written = || ComputeError::argument(OPERATION, "only rows of a store are written");
        let Form::Dense(form) = &self.form else { return Err(not_written()) };
        check_written((rows.shape, rows.dtype), first, (Shape::new(self.n_rows, form.cols), form.dtype))?;
        let (n_bytes, begin) = (rows.shape.rows * self.row_bytes, first * self.row_bytes);
        if n_bytes == 0 {
            return Ok(());
        }
        let out = match &mut self.memory {
            Memory::Written(pinned) => &mut pinned.bytes_mut()[begin..begin + n_bytes],
            // SAFETY: each row is written by one rank, and nobody reads it before ranks have met.
            Memory::WrittenTogether(shared) => unsafe { shared.memory().own_bytes(begin..begin + n_bytes) },
            _ => return Err(not_written()),
        };
        cuda.device.stream.memcpy_dtoh(&rows.data.slice(..n_bytes), out).map_err(Cuda::failed(OPERATION))?;
        // `rows` may be overwritten as soon as this returns, by any stream.
        cuda.wait(OPERATION)
    }
}

impl Drop for CudaFeatures {
    fn drop(&mut self) {
        // The memory that pending work reads is freed after this.
        self.side.wait();
        self.near.wait();
    }
}
