//! [`CudaRows`]: features that are read by id from any memory. Rows lie on this GPU, on others, or in pinned host
//! memory, as a placement says. Codes lie there, too, and are decoded as they are read. Both may also lie in the host
//! memory of other ranks. Or the device itself wrote the rows to the host.
//!
//! A batch reads each of its rows once; rows that the previous batch has are copied from there
//! ([`far_list`](crate::far_list)). Rows on GPUs are read in place, from the device's memory or over links between
//! GPUs. Rows on the host are read in one of two ways, which [`HostReads`] selects. They lie in pinned memory that a
//! launch of few blocks reads over the bus at the same time; or host cores gather them and copies bring them
//! ([`staged_rows`](crate::staged_rows)). With one launch for both kinds, a warp would hold rows of GPUs while it
//! waits for the host. For a code book (paper B) only codes travel. Where only sums of rows are wanted, these are
//! computed from codes ([`code_book`](crate::code_book)).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::{CudaEvent, CudaSlice, CudaStream, DriverError};
use girih_compress::CompressedFeatures;
use girih_compute::{ComputeError, Dtype, FarRows, RowReader, RowStore, RowSums, Shape, Transpose, checks};
use girih_graph_format::{Matrix, NodeId};
use girih_tiers::{HostReads, Placement};
use rayon::prelude::*;

use crate::Cuda;
use crate::code_book::{CodeBook, CodeSums};
use crate::device::{BLOCK, Ending};
use crate::far_list::{FarList, Lists, RowsOfBatch};
use crate::matrix::{CudaIds, CudaMatrix, CudaSparse, pitch};
use crate::nccl::Peers;
use crate::pinned::Pinned;
use crate::placed::{Group, HostPieces, OnCards, PlacedRows, Rows, SharedPinned};
use crate::row_checks::{check_dtypes, check_first, check_written};
use crate::row_launch::{Names, ON_HOST, RowLaunch, RowsArgument};
use crate::row_sources::{Dense, RowsOfCodes, RowsOfMatrix, RowsOfPieces, RowsOnHost};
use crate::staged_rows::{Asked, Bringing, ROW_BYTES_MAX, RowSource, StagedRows, Wanted};

pub(crate) const OPERATION: &str = "rows by id";
/// Blocks, and threads of each, for rows on GPUs.
const ON_CARDS: (u32, u32) = (132, BLOCK);
/// Blocks, and threads of each, for rows in memory of the device itself.
const IN_DEVICE: (u32, u32) = (132 * 8, BLOCK);
/// Blocks, and threads of each, that saturate the bus with undecoded rows, and no more. Blocks of a step's products
/// that need a whole SM wait for the reading ones. Commands of the step also come over the bus, and wait behind the
/// reads under way. A warp that decodes has one code in flight, so decoding needs more blocks.
const BLOCKS_OF_BUS: (u32, u32) = (5, 1024);

/// Reader of rows by id; see the module.
struct CudaRows {
    n_rows: usize,
    row_bytes: usize,
    memory: Memory,
    form: Form,
    /// Streams of pending requests: for rows on the host, and for rows on GPUs.
    side: Ending,
    near: Ending,
    launch: RowLaunch,
    /// Kernels that sum codes; `None` for dense rows.
    sums: Option<SumsOfCodes>,
    /// Lists of missing rows; `None` if a batch gets all of its rows from one memory.
    far_list: Option<FarList>,
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

/// Memory of the rows.
pub(crate) enum Memory {
    /// On GPUs, and in pinned host memory.
    Placed(PlacedRows),
    /// Gathered by the host, and on GPUs, if any are there.
    Staged(StagedRows, Option<OnCards>),
    /// Gathered by the hosts of all ranks, which take part together, and on GPUs ([`split_rows`](crate::split_rows)).
    Split(StagedRows, Option<OnCards>),
    /// All in host memory, written by this device.
    Written(Pinned),
    /// All in host memory, written by the devices of all ranks of the process.
    WrittenTogether(SharedPinned),
    /// All on the device, contiguous.
    Device(CudaSlice<u8>),
}

/// Pending request.
#[derive(Default)]
struct Begun {
    /// Address of the result, and its number of rows.
    to: (u64, usize),
    /// Events behind the launches of the request.
    launched: Vec<CudaEvent>,
    /// Gather by the host, if it takes part.
    asked: Option<Asked>,
    /// Buffer for rows that are not copied to their final place.
    arriving: Option<CudaSlice<u8>>,
    lists: Option<Lists>,
    /// Whether the previous batch has some of its rows.
    has_before: bool,
    /// Contiguous rows as they are stored, for a request of sums whose rows were not on the device.
    stored: Option<CudaSlice<u8>>,
}

/// Buffers and lists that no batch uses at the moment.
#[derive(Default)]
struct Spare {
    rooms: Vec<CudaSlice<u8>>,
    lists: Vec<Lists>,
}

/// Ids and rows of the latest request, on the device.
type Before<'a> = (&'a CudaIds, &'a CudaMatrix);

/// Format of the rows.
pub(crate) enum Form {
    /// Rows in the format of device matrices.
    Dense(Dense),
    /// Codes of a code book.
    Codes(CodeBook),
}

impl Cuda {
    /// [`Backend::far_rows`](girih_compute::Backend::far_rows).
    pub(crate) fn far_rows(
        &self,
        rows: &Matrix,
        dtype: Dtype,
        (placement, reads): (&Placement, HostReads),
    ) -> Result<FarRows<Self>, ComputeError> {
        let (n_rows, form) = (rows.n_rows(), Dense { cols: rows.n_cols(), dtype });
        checks::allocation(Shape::new(n_rows, pitch(form.cols)), dtype.n_bytes())?;
        let row_bytes = form.row_bytes();
        let offset = |row| (row * row_bytes) as u64;
        let placed = Rows { operation: OPERATION, n_rows, offset: &offset, mark: ON_HOST };
        let write = |range: Range<usize>, memory: &mut [u8]| form.write_all(memory, rows, range.start);
        let (memory, source): (_, Arc<dyn RowSource>) = if Self::brings_rows(row_bytes, reads) {
            let source: Arc<dyn RowSource> = if dtype == Dtype::F32 || rows.buffer().is_mapped() {
                Arc::new(RowsOfMatrix { rows: rows.clone(), form })
            } else {
                // Rounded once, which halves the bytes that cores read for each batch.
                let group = Group::of(self, OPERATION, placement)?;
                Arc::new(RowsOfPieces { pieces: Arc::new(HostPieces::plain(&placed, &write, &group)?), row_bytes })
            };
            (self.staged(&placed, &source, placement)?, source)
        } else {
            let placed = PlacedRows::new(self, &placed, &write, placement)?;
            let source = RowsOfPieces { pieces: Arc::clone(placed.on_host()), row_bytes };
            (Memory::Placed(placed), Arc::new(source))
        };
        let reader = self.reader((n_rows, row_bytes), memory, Form::Dense(form))?;
        Ok(FarRows { reader, on_host: Arc::new(RowsOnHost { source, n_rows, form }) })
    }

    /// [`Backend::code_rows`](girih_compute::Backend::code_rows), for code books.
    pub(crate) fn code_rows(
        &self,
        codes: &CompressedFeatures,
        dtype: Dtype,
        placement: Option<(&Placement, HostReads)>,
    ) -> Result<Option<Box<dyn RowReader<Self>>>, ComputeError> {
        let Some(book) = CodeBook::upload(self, OPERATION, codes, dtype)? else { return Ok(None) };
        let (n_rows, row_bytes, form) = (codes.n_rows(), codes.codec().row_bytes(), Form::Codes(book));
        let offset = |row| (row * row_bytes) as u64;
        let placed = Rows { operation: OPERATION, n_rows, offset: &offset, mark: ON_HOST };
        let memory = match placement {
            Some((placement, reads)) if Self::brings_rows(row_bytes, reads) => {
                let source: Arc<dyn RowSource> = Arc::new(RowsOfCodes { codes: codes.clone(), row_bytes });
                self.staged(&placed, &source, placement)?
            }
            Some((placement, _)) => {
                let write = |range: Range<usize>, memory: &mut [u8]| {
                    let of_range = &codes.codes()[range.start * row_bytes..range.end * row_bytes];
                    memory.par_chunks_mut(1 << 20).zip(of_range.par_chunks(1 << 20)).for_each(|(to, from)| {
                        to.copy_from_slice(from);
                    });
                };
                Memory::Placed(PlacedRows::new(self, &placed, &write, placement)?)
            }
            None => Memory::Device(self.upload_list(OPERATION, codes.codes())?),
        };
        self.reader((n_rows, row_bytes), memory, form).map(Some)
    }

    /// Whether the host gathers rows of `row_bytes` bytes: it does unless `reads` forbids it or rows are too long.
    fn brings_rows(row_bytes: usize, reads: HostReads) -> bool {
        reads != HostReads::InPlace && row_bytes <= ROW_BYTES_MAX
    }

    /// Number of ranks that share the cores of this process.
    fn ranks_of_process(&self) -> usize {
        self.device.peers().filter(|peers| peers.is_one_process()).map_or(1, Peers::size)
    }

    /// Rows gathered by the host, except for those that a placement puts on GPUs.
    fn staged(
        &self,
        rows: &Rows<'_>,
        source: &Arc<dyn RowSource>,
        placement: &Placement,
    ) -> Result<Memory, ComputeError> {
        let group = Group::of(self, OPERATION, placement)?;
        let copy = |row: usize, to: &mut [u8]| source.copy(row, to);
        let mut read = |nodes: &[NodeId]| Ok(rows.copied(&copy, nodes));
        let on_cards = OnCards::beside_host(self, rows, &mut read, (placement, &group))?;
        let bringing = Bringing { source: Arc::clone(source), row_bytes: (rows.offset)(1) as usize };
        let brought = StagedRows::new(self, OPERATION, self.ranks_of_process(), &bringing)?;
        Ok(Memory::Staged(brought, on_cards))
    }

    /// [`Backend::row_store`](girih_compute::Backend::row_store).
    pub(crate) fn row_store(
        &self,
        shape: Shape,
        dtype: Dtype,
        together: bool,
    ) -> Result<Box<dyn RowStore<Self>>, ComputeError> {
        let form = Dense { cols: shape.cols, dtype };
        checks::allocation(Shape::new(shape.rows, pitch(form.cols)), dtype.n_bytes())?;
        let n_bytes = shape.rows * form.row_bytes();
        let shared = if together { Group::of_process(self).pinned(self, OPERATION, n_bytes)? } else { None };
        let memory = match shared {
            Some(shared) => Memory::WrittenTogether(shared),
            None => Memory::Written(Pinned::new(self, n_bytes, OPERATION)?),
        };
        Ok(Box::new(self.rows((shape.rows, form.row_bytes()), memory, Form::Dense(form))?))
    }

    pub(crate) fn reader(
        &self,
        sizes: (usize, usize),
        memory: Memory,
        form: Form,
    ) -> Result<Box<dyn RowReader<Self>>, ComputeError> {
        Ok(Box::new(self.rows(sizes, memory, form)?))
    }

    fn rows(&self, (n_rows, row_bytes): (usize, usize), memory: Memory, form: Form) -> Result<CudaRows, ComputeError> {
        let stream = || self.device.urgent_stream().map_err(Self::failed(OPERATION));
        let (side, near) = (self.device.ending(&stream()?), self.device.ending(&stream()?));
        let (launch, sums) = match &form {
            Form::Dense(form) => (RowLaunch::copying(self, OPERATION, form.dtype)?, None),
            Form::Codes(book) => (RowLaunch::decoding(self, OPERATION, book)?, SumsOfCodes::new(self, book)?),
        };
        // The previous batch has decoded values of codes, not the codes themselves.
        let has_before = matches!(form, Form::Dense(_)) && !memory.is_on_devices();
        let is_listed = has_before || memory.cards_beside_host().is_some();
        let far_list = is_listed.then(|| FarList::new(self, OPERATION, (n_rows, has_before))).transpose()?;
        let (begun, spare) = (Mutex::default(), Mutex::default());
        Ok(CudaRows { n_rows, row_bytes, memory, form, side, near, launch, sums, far_list, begun, spare })
    }
}

impl Memory {
    /// Whether no row is on a host.
    fn is_on_devices(&self) -> bool {
        match self {
            Self::Placed(placed) => placed.are_on_cards(),
            Self::Staged(..) | Self::Split(..) => self.brought().is_none(),
            Self::Written(_) | Self::WrittenTogether(_) => false,
            Self::Device(_) => true,
        }
    }

    /// Gatherer of rows; `None` if GPUs hold all of them.
    fn brought(&self) -> Option<&StagedRows> {
        match self {
            Self::Staged(staged, on_cards) | Self::Split(staged, on_cards)
                if on_cards.as_ref().is_none_or(|on_cards| !on_cards.are_all()) =>
            {
                Some(staged)
            }
            _ => None,
        }
    }

    /// Whether rows are read in place on the host.
    fn is_read_on_host(&self) -> bool {
        match self {
            Self::Placed(placed) => !placed.are_on_cards(),
            Self::Written(_) | Self::WrittenTogether(_) => true,
            Self::Staged(..) | Self::Split(..) | Self::Device(_) => false,
        }
    }

    /// Whether rows are read on GPUs.
    fn is_read_on_cards(&self) -> bool {
        self.on_cards().is_some() || matches!(self, Self::Device(_))
    }

    /// Rows on GPUs, if hosts have other rows.
    fn cards_beside_host(&self) -> Option<&OnCards> {
        self.on_cards().filter(|on_cards| !on_cards.are_all())
    }

    /// Rows on GPUs, if GPUs hold any.
    fn on_cards(&self) -> Option<&OnCards> {
        match self {
            Self::Placed(placed) => placed.on_cards(),
            Self::Staged(_, on_cards) | Self::Split(_, on_cards) => on_cards.as_ref(),
            Self::Written(_) | Self::WrittenTogether(_) | Self::Device(_) => None,
        }
    }
}

impl Form {
    /// Columns of the result, and its element type.
    fn result(&self) -> (usize, Dtype) {
        match self {
            Self::Dense(form) => (form.cols, form.dtype),
            Self::Codes(book) => (book.width, book.dtype),
        }
    }
}

impl SumsOfCodes {
    /// Compiles the kernels for a book, which has to live as long; `None` where rows are too wide.
    fn new(cuda: &Cuda, book: &CodeBook) -> Result<Option<Self>, ComputeError> {
        let Some(sums) = CodeSums::new(cuda, OPERATION, book)? else { return Ok(None) };
        Ok(Some(Self { copy: RowLaunch::copying(cuda, OPERATION, book.dtype)?, sums }))
    }
}

impl CudaRows {
    /// Source argument of launches; `None` where the host gathers rows and no row is on a GPU.
    fn argument(&self, cuda: &Cuda) -> Option<RowsArgument> {
        let (listed, at) = (RowsArgument::listed, RowsArgument::at);
        let row_bytes = self.row_bytes as u64;
        Some(match &self.memory {
            Memory::Placed(placed) => placed.argument(cuda, row_bytes),
            Memory::Staged(_, on_cards) | Memory::Split(_, on_cards) => {
                listed(on_cards.as_ref()?.list(cuda), row_bytes)
            }
            Memory::Written(pinned) => at(pinned.address(), row_bytes),
            Memory::WrittenTogether(shared) => at(shared.memory().address(), row_bytes),
            Memory::Device(bytes) => at(cuda.pointer(Some(bytes)), row_bytes),
        })
    }

    /// Blocks and threads of a launch for rows on GPUs.
    fn threads_on_cards(&self) -> (u32, u32) {
        if matches!(self.memory, Memory::Device(_)) { IN_DEVICE } else { ON_CARDS }
    }

    /// Blocks and threads of a launch for rows on the host alone.
    fn threads_of_bus(launch: &RowLaunch) -> (u32, u32) {
        if launch.decodes() { ON_CARDS } else { BLOCKS_OF_BUS }
    }

    fn begun(&self) -> MutexGuard<'_, VecDeque<Begun>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the oldest pending request.
    fn oldest(&self) -> Option<Begun> {
        self.begun().pop_front()
    }

    /// Checks that ids are rows, and that a result has their number and element type. Returns whether it has any
    /// elements.
    fn check(&self, ids: &CudaIds, out: &CudaMatrix) -> Result<bool, ComputeError> {
        checks::gather_rows(Shape::new(self.n_rows, self.form.result().0), ids.range, out.shape)?;
        self.check_storage(out)?;
        Ok(!out.shape.is_empty())
    }

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
        let (names, to) = (Names::of(cuda.pointer(Some(&ids.ids))), (to, ids.range.len as u64));
        let threads =
            if self.memory.is_read_on_cards() { self.threads_on_cards() } else { Self::threads_of_bus(&self.launch) };
        // SAFETY: ids are rows, each of which lies where the list says; codes were checked; the result has a row for
        // each id.
        let launched = unsafe { self.launch.put(&cuda.device.stream, threads, rows, names, to) };
        launched.map_err(Cuda::failed(OPERATION))
    }

    /// Starts a request that brings rows to address `to` by `launch`. If `stored` is given, it is the memory at `to`,
    /// for rows as they are stored.
    fn begin_at(
        &self,
        cuda: &Cuda,
        (ids, before): (&CudaIds, Option<Before<'_>>),
        (launch, to): (&RowLaunch, u64),
        stored: Option<CudaSlice<u8>>,
    ) -> Result<Begun, ComputeError> {
        let (failed, n) = (Cuda::failed(OPERATION), ids.range.len);
        let (at_ids, side, near) = (cuda.pointer(Some(&ids.ids)), self.side.stream(), self.near.stream());
        let (brought, beside_host) = (self.memory.brought(), self.memory.cards_beside_host());
        let mut begun = Begun { to: (to, n), stored, has_before: before.is_some(), ..Begun::default() };
        if before.is_some() || beside_host.is_some() {
            begun.lists = Some(self.lists(cuda, n)?);
        }
        if brought.is_some() && (begun.lists.is_some() || launch.decodes()) {
            begun.arriving = Some(self.room(cuda, n)?);
        }
        // Behind the allocation of buffers, too.
        [side, near].into_iter().try_for_each(|stream| stream.join(&cuda.device.stream)).map_err(&failed)?;
        if let Some((far_list, lists)) = self.far_list.as_ref().zip(begun.lists.as_mut()) {
            let before = before.map(|(ids, rows)| RowsOfBatch {
                ids: (cuda.pointer(Some(&ids.ids)), ids.range.len),
                first: cuda.pointer(Some(&rows.data)),
                row_bytes: self.row_bytes,
            });
            let on_cards = beside_host.map_or(0, |on_cards| on_cards.list(cuda));
            // SAFETY: ids were checked to be rows, and there is space for each; all lists are put on this stream; the
            // caller keeps the previous rows and their ids.
            unsafe { far_list.put(cuda, side, (at_ids, n), (on_cards, before), lists) }.map_err(&failed)?;
        }
        // Before the reads on GPUs, because it takes longer.
        if let Some(staged) = brought {
            let wanted = begun.lists.as_ref().map_or(Wanted::All(at_ids, n), |lists| lists.wanted(cuda, n));
            let to = begun.arriving.as_ref().map_or(to, |room| cuda.pointer(Some(room)));
            let ready = side.record_event(None).map_err(&failed)?;
            // SAFETY: ids are rows, and there is space for one each; nobody touches it before the request is
            // finished.
            begun.asked = Some(unsafe { staged.ask(ready, wanted, to) }?);
        }
        let mut put = |stream: &Arc<CudaStream>, threads, rows, names| -> Result<(), DriverError> {
            // SAFETY: ids are rows, each of which lies where the list says; codes were checked; the result has a row
            // for each id.
            unsafe { launch.put(stream, threads, rows, names, (to, n as u64)) }?;
            begun.launched.push(stream.record_event(None)?);
            Ok(())
        };
        if let Some(rows) = self.argument(cuda).filter(|_| self.memory.is_read_on_host()) {
            let names = begun.lists.as_ref().map_or(Names::of(at_ids), |lists| lists.far(cuda));
            put(side, Self::threads_of_bus(launch), rows, names).map_err(&failed)?;
        }
        if let Some(rows) = self.argument(cuda).filter(|_| self.memory.is_read_on_cards()) {
            put(near, self.threads_on_cards(), rows.only_on_cards(), Names::of(at_ids)).map_err(&failed)?;
        }
        Ok(begun)
    }

    /// Starts a request for no rows; if all ranks ask together, this one takes part.
    fn begin_nothing(&self, cuda: &Cuda) -> Result<Begun, ComputeError> {
        let Some(staged) = self.memory.brought().filter(|_| matches!(self.memory, Memory::Split(..))) else {
            return Ok(Begun::default());
        };
        let ready = cuda.device.stream.record_event(None).map_err(Cuda::failed(OPERATION))?;
        Ok(Begun { asked: Some(staged.ask_for_none(ready)?), ..Begun::default() })
    }

    /// Makes the device's stream wait for a request. Copies rows to their final place that arrived elsewhere or that
    /// the previous batch has. Returns the memory of rows that are kept as they are stored. It waits for no later
    /// request, which the step could then not overlap.
    fn wait_for(&self, cuda: &Cuda, mut begun: Begun) -> Result<Option<CudaSlice<u8>>, ComputeError> {
        let (stream, failed) = (&cuda.device.stream, Cuda::failed(OPERATION));
        let n_brought = begun.asked.take().map_or(Ok(0), |asked| asked.wait_on(stream));
        // Lists are complete before any row is read or requested on the host.
        begun.launched.iter().try_for_each(|launched| stream.wait(launched)).map_err(&failed)?;
        let taken = n_brought.and_then(|n| self.take_over(cuda, &begun, n));
        // The next user of the buffer waits for this stream, and the buffer is freed in stream order.
        let mut spare = self.spare();
        spare.rooms.extend(begun.arriving);
        spare.lists.extend(begun.lists);
        taken.map(|()| begun.stored)
    }

    /// Puts copies on the device's stream that take rows to their final place; `n_brought` rows have arrived.
    fn take_over(&self, cuda: &Cuda, begun: &Begun, n_brought: usize) -> Result<(), ComputeError> {
        let Begun { to: (to, n), arriving, lists, has_before, stored, .. } = begun;
        let (stream, failed) = (&cuda.device.stream, Cuda::failed(OPERATION));
        if let Some(lists) = lists.as_ref().filter(|_| *has_before) {
            // SAFETY: kept rows are in the previous batch, which has arrived before, and there is a row of the result
            // for each.
            unsafe {
                self.launch.put(stream, IN_DEVICE, lists.kept(cuda, self.row_bytes), Names::all(), (*to, *n as u64))
            }
            .map_err(&failed)?;
        }
        let Some(room) = arriving.as_ref().filter(|_| n_brought > 0) else { return Ok(()) };
        let launch = self.sums.as_ref().filter(|_| stored.is_some()).map_or(&self.launch, |sums| &sums.copy);
        let places = lists.as_ref().map_or(Names::all(), |lists| lists.places(cuda));
        let rows = self.stored_in(cuda, room);
        // SAFETY: the rows were copied there; their places are rows of the result.
        unsafe { launch.put(stream, ON_CARDS, rows, places, (*to, n_brought as u64)) }.map_err(failed)
    }

    fn spare(&self) -> MutexGuard<'_, Spare> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Buffer for at most `n` rows; reuses a spare one if there is one.
    fn room(&self, cuda: &Cuda, n: usize) -> Result<CudaSlice<u8>, ComputeError> {
        let n_bytes = n * self.row_bytes;
        let used = self.spare().rooms.pop().filter(|room| room.len() >= n_bytes);
        used.map_or_else(|| cuda.scratch(OPERATION, with_slack(n_bytes)), Ok)
    }

    /// Lists for at most `n` rows; reuses spare ones if there are some.
    fn lists(&self, cuda: &Cuda, n: usize) -> Result<Lists, ComputeError> {
        let used = self.spare().lists.pop().filter(|lists| lists.len() >= n);
        used.map_or_else(|| Lists::new(cuda, OPERATION, with_slack(n)), Ok)
    }

    /// Contiguous rows on the device.
    fn stored_in(&self, cuda: &Cuda, rows: &CudaSlice<u8>) -> RowsArgument {
        RowsArgument::at(cuda.pointer(Some(rows)), self.row_bytes as u64)
    }

    /// Previous rows, if lists leave out rows that they contain.
    fn before<'a>(&self, before: Option<Before<'a>>) -> Result<Option<Before<'a>>, ComputeError> {
        let Some((ids, rows)) = before.filter(|_| self.takes_from_before()) else { return Ok(None) };
        Ok(self.check(ids, rows)?.then_some((ids, rows)))
    }
}

/// Adds slack to a size: batches differ in size, but only slightly.
fn with_slack(n: usize) -> usize {
    n + n / 8
}

impl RowReader<Cuda> for CudaRows {
    fn gather(&self, cuda: &Cuda, ids: &CudaIds, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        if !matches!(self.memory, Memory::Staged(..) | Memory::Split(..)) {
            if self.check(ids, out)? {
                self.launch(cuda, ids, cuda.pointer(Some(&out.data)))?;
            }
            return Ok(());
        }
        RowReader::begin(self, cuda, ids, None, out)?;
        while let Some(begun) = self.oldest() {
            self.wait_for(cuda, begun)?;
        }
        Ok(())
    }

    fn takes_from_before(&self) -> bool {
        self.far_list.as_ref().is_some_and(FarList::has_before)
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

impl RowSums<Cuda> for CudaRows {
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
        let nothing = RowsArgument::at(0, self.row_bytes as u64);
        let here = (self.argument(cuda).unwrap_or(nothing), cuda.pointer(Some(&ids.ids)));
        let (rows, ids) = stored.as_ref().map_or(here, |room| (self.stored_in(cuda, room), 0));
        if let Some(own) = own.filter(|own| !own.shape.is_empty()) {
            let (names, to) = (Names::of(ids), (cuda.pointer(Some(&own.data)), own.shape.rows as u64));
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

impl RowStore<Cuda> for CudaRows {
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
        cuda.device.wait(OPERATION)
    }
}

impl Drop for CudaRows {
    fn drop(&mut self) {
        // The memory that pending work reads is freed after this.
        self.side.wait();
        self.near.wait();
    }
}
