//! [`CudaRows`]: features that are read by id, wherever they lie: rows where a placement puts them, on this card, on
//! others, or in pinned memory of the host; or codes there or on the device, decoded as they are read; or either in
//! memory of the hosts of other ranks; or rows that the device itself wrote to the host.
//!
//! A batch reads each of its rows once. Those on cards are read in place, from the device's memory or over links
//! between cards. Those on the host lie in pinned memory that the same launch reads over the bus, or are brought by its
//! cores and by copies ([`staged_rows`](crate::staged_rows)): [`HostReads`] says when. Of a code book (paper B) only
//! codes travel, and where sums of rows are all that is wanted, these are made from codes
//! ([`code_book`](crate::code_book)).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::{CudaEvent, CudaFunction, CudaSlice, CudaStream, DriverError, PushKernelArg};
use girih_compress::CompressedFeatures;
use girih_compute::{ComputeError, Dtype, FarRows, HostRows, RowReader, RowStore, RowSums, Shape, Transpose, checks};
use girih_graph_format::{Matrix, NodeId};
use girih_tiers::{HostReads, Placement};
use half::bf16;
use rayon::prelude::*;

use crate::Cuda;
use crate::code_book::{CodeBook, CodeSums};
use crate::compile::Source;
use crate::device::{BLOCK, Ending, threads_for};
use crate::matrix::{CudaIds, CudaMatrix, CudaSparse, pitch};
use crate::nccl::Peers;
use crate::pinned::Pinned;
use crate::placed::{Group, HostPieces, OnCards, PlacedRows, ReadRows, Rows, SharedPinned};
use crate::row_launch::{Names, RowLaunch, RowsArgument};
use crate::staged_rows::{Asked, Bringing, ROW_BYTES_MAX, RowSource, StagedRows, StoredRows, Wanted, prefetch_bytes};

pub(crate) const OPERATION: &str = "rows by id";
/// Blocks, and threads of each, for rows on cards.
const ON_CARDS: (u32, u32) = (132, BLOCK);
/// As before, for rows in memory of the device itself.
const IN_DEVICE: (u32, u32) = (132 * 8, BLOCK);
/// Blocks, and threads of each, that keep the bus busy with rows as they are, and no more: blocks of a step's products
/// that take all of a multiprocessor wait for those that read, and its commands, which come over the bus, too, wait
/// behind the reads under way. A warp that decodes has one code under way, so that more of them are wanted.
const BLOCKS_OF_BUS: (u32, u32) = (6, 1024);
/// As before, for rows of which cards have some: these have to come beside the others, and there are more of them.
const BLOCKS_OF_BOTH: (u32, u32) = (33, 512);
/// Rows that a thread of the host writes at a time.
const ROWS_AT_ONCE: usize = 1024;

/// See the module.
struct CudaRows {
    n_rows: usize,
    row_bytes: usize,
    memory: Memory,
    form: Form,
    /// Where what is begun goes on.
    side: Ending,
    launch: RowLaunch,
    /// Of codes.
    sums: Option<SumsOfCodes>,
    /// What was begun and not finished, the oldest first.
    begun: Mutex<VecDeque<Begun>>,
    /// Room that no batch has: to allocate as much for each would take longer than to bring it.
    spare: Mutex<Vec<Room>>,
}

/// What sums codes up without decoding them.
struct SumsOfCodes {
    /// Takes codes as they are to where they are read from.
    copy: RowLaunch,
    sums: CodeSums,
}

/// Where rows lie.
pub(crate) enum Memory {
    /// On cards, and in pinned memory of the host.
    Placed(PlacedRows),
    /// Brought from the host, and on cards, if any are there.
    Staged(StagedRows, Option<BesideCards>),
    /// The same from the hosts of all ranks, which ask together ([`split_rows`](crate::split_rows)).
    Split(StagedRows, Option<BesideCards>),
    /// All on the host, as this device wrote them.
    Written(Pinned),
    /// The same, as the devices of all ranks of the process did.
    WrittenTogether(SharedPinned),
    /// All on the device, one after the other.
    Device(CudaSlice<u8>),
}

/// Rows on cards, while the host brings the others.
pub(crate) struct BesideCards {
    on_cards: OnCards,
    /// Tells which these are.
    list_absent: CudaFunction,
}

/// What is waited for.
#[derive(Default)]
struct Begun {
    /// Recorded behind what was launched for it, if anything was.
    launched: Option<CudaEvent>,
    /// What the host brings of it, if anything.
    asked: Option<Asked>,
    arriving: Option<Arriving>,
    /// Rows as they are stored, one after the other, if they are to be summed up and were not here.
    stored: Option<Room>,
}

/// Rows on their way to room on the device, which a launch takes to where they belong.
struct Arriving {
    room: Room,
    /// The result.
    to: u64,
}

/// Room for rows that arrive.
struct Room {
    rows: CudaSlice<u8>,
    /// Where only some do: how many and which, and their places; else they are in order.
    absent: Option<Absent>,
}

/// What `list_absent` of `kernels/rows.cu` writes.
struct Absent {
    counted: CudaSlice<u32>,
    places: CudaSlice<u32>,
}

/// What rows are.
pub(crate) enum Form {
    /// Rows as matrices of the device have them.
    Dense(Dense),
    /// Codes of a code book.
    Codes(CodeBook),
}

#[derive(Clone, Copy)]
pub(crate) struct Dense {
    pub(crate) cols: usize,
    pub(crate) dtype: Dtype,
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
        let placed = Rows { operation: OPERATION, n_rows, offset: &offset };
        let write = |range: Range<usize>, memory: &mut [u8]| form.write_all(memory, rows, range.start);
        let (memory, source): (_, Arc<dyn RowSource>) = if Self::brings_rows(row_bytes, reads) {
            let source: Arc<dyn RowSource> = if dtype == Dtype::F32 || rows.buffer().is_mapped() {
                Arc::new(RowsOfMatrix { rows: rows.clone(), form })
            } else {
                // Rounded once, which halves what cores read of each batch.
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

    /// [`Backend::code_rows`](girih_compute::Backend::code_rows): of code books.
    pub(crate) fn code_rows(
        &self,
        codes: &CompressedFeatures,
        dtype: Dtype,
        placement: Option<(&Placement, HostReads)>,
    ) -> Result<Option<Box<dyn RowReader<Self>>>, ComputeError> {
        let Some(book) = CodeBook::upload(self, OPERATION, codes, dtype)? else { return Ok(None) };
        let (n_rows, row_bytes, form) = (codes.n_rows(), codes.codec().row_bytes(), Form::Codes(book));
        let offset = |row| (row * row_bytes) as u64;
        let placed = Rows { operation: OPERATION, n_rows, offset: &offset };
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

    /// Whether the host brings its rows, of so many bytes: unless it is told not to.
    fn brings_rows(row_bytes: usize, reads: HostReads) -> bool {
        reads != HostReads::InPlace && row_bytes <= ROW_BYTES_MAX
    }

    /// Ranks that share the cores of this process.
    fn ranks_of_process(&self) -> usize {
        self.device.peers().filter(|peers| peers.is_one_process()).map_or(1, Peers::size)
    }

    /// Rows that the host brings, but for those that a placement puts on cards.
    fn staged(
        &self,
        rows: &Rows<'_>,
        source: &Arc<dyn RowSource>,
        placement: &Placement,
    ) -> Result<Memory, ComputeError> {
        let group = Group::of(self, OPERATION, placement)?;
        let copy = |row: usize, to: &mut [u8]| source.copy(row, to);
        let mut read = |nodes: &[NodeId]| Ok(rows.copied(&copy, nodes));
        let beside = self.beside_cards(rows, &mut read, (placement, &group))?;
        let bringing = Bringing { source: Arc::clone(source), row_bytes: (rows.offset)(1) as usize };
        let brought = StagedRows::new(self, OPERATION, self.ranks_of_process(), &bringing)?;
        Ok(Memory::Staged(brought, beside))
    }

    /// Those that a placement puts on cards, if any are, where the host brings the others.
    pub(crate) fn beside_cards(
        &self,
        rows: &Rows<'_>,
        read: ReadRows<'_>,
        placed: (&Placement, &Group<'_>),
    ) -> Result<Option<BesideCards>, ComputeError> {
        let Some(on_cards) = OnCards::beside_host(self, rows, read, placed)? else { return Ok(None) };
        let types = [("X", Dtype::F32), ("Y", Dtype::F32)];
        let list_absent = self.kernel(OPERATION, Source::ROWS, "list_absent", &types)?;
        Ok(Some(BesideCards { on_cards, list_absent }))
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
        let side = self.device.ending(&self.device.urgent_stream().map_err(Self::failed(OPERATION))?);
        let (launch, sums) = match &form {
            Form::Dense(form) => (RowLaunch::copying(self, OPERATION, form.dtype)?, None),
            Form::Codes(book) => (RowLaunch::decoding(self, OPERATION, book)?, SumsOfCodes::new(self, book)?),
        };
        let (begun, spare) = (Mutex::default(), Mutex::default());
        Ok(CudaRows { n_rows, row_bytes, memory, form, side, launch, sums, begun, spare })
    }
}

impl Dense {
    /// Bytes from row to row.
    pub(crate) fn row_bytes(self) -> usize {
        pitch(self.cols) * self.dtype.n_bytes()
    }

    /// Stores the rows from `first` on, as many as there is memory for, as matrices of the device have them.
    fn write_all(self, memory: &mut [u8], rows: &Matrix, first: usize) {
        let row_bytes = self.row_bytes();
        if row_bytes == 0 {
            return;
        }
        memory.par_chunks_mut(row_bytes * ROWS_AT_ONCE).enumerate().for_each(|(piece, memory)| {
            for (at, bytes) in memory.chunks_exact_mut(row_bytes).enumerate() {
                self.write(bytes, rows.row(first + piece * ROWS_AT_ONCE + at));
            }
        });
    }

    /// Stores a row; what lies between it and the next one is zero.
    fn write(self, bytes: &mut [u8], row: &[f32]) {
        let (values, padding) = bytes.split_at_mut(self.cols * self.dtype.n_bytes());
        padding.fill(0);
        match self.dtype {
            Dtype::F32 => values.copy_from_slice(bytemuck::cast_slice(row)),
            Dtype::Bf16 => values
                .chunks_exact_mut(2)
                .zip(row)
                .for_each(|(bytes, &value)| bytes.copy_from_slice(&bf16::from_f32(value).to_ne_bytes())),
        }
    }

    /// Reads a row that was stored so.
    fn read(self, bytes: &[u8], row: &mut [f32]) {
        match self.dtype {
            Dtype::F32 => bytemuck::cast_slice_mut(row).copy_from_slice(&bytes[..self.cols * 4]),
            Dtype::Bf16 => bytes
                .chunks_exact(2)
                .zip(row)
                .for_each(|(bytes, value)| *value = bf16::from_ne_bytes([bytes[0], bytes[1]]).to_f32()),
        }
    }
}

/// Dense rows of the host, rounded as the device has them.
struct RowsOnHost {
    source: Arc<dyn RowSource>,
    n_rows: usize,
    form: Dense,
}

impl HostRows for RowsOnHost {
    fn shape(&self) -> Shape {
        Shape::new(self.n_rows, self.form.cols)
    }

    fn read(&self, first: usize, out: &mut [f32]) {
        let mut bytes = vec![0; self.form.row_bytes()];
        for (at, row) in out.chunks_exact_mut(self.form.cols.max(1)).enumerate() {
            self.source.copy(first + at, &mut bytes);
            self.form.read(&bytes, row);
        }
    }
}

/// Rows of a matrix, rounded when they are read if they have to be. It may be mapped: rows are then on disk, or where
/// the system keeps what was read of it.
struct RowsOfMatrix {
    rows: Matrix,
    form: Dense,
}

impl RowSource for RowsOfMatrix {
    fn copy(&self, row: usize, to: &mut [u8]) {
        self.form.write(to, self.rows.row(row));
    }

    fn prefetch(&self, row: usize) {
        prefetch_bytes(bytemuck::cast_slice(self.rows.row(row)));
    }
}

/// Rows as devices have them, in memory of all ranks of the process.
struct RowsOfPieces {
    pieces: Arc<HostPieces>,
    row_bytes: usize,
}

impl StoredRows for RowsOfPieces {
    fn row(&self, row: usize) -> &[u8] {
        self.pieces.row(row, (row * self.row_bytes) as u64, self.row_bytes)
    }
}

/// Codes, in memory or mapped.
struct RowsOfCodes {
    codes: CompressedFeatures,
    row_bytes: usize,
}

impl StoredRows for RowsOfCodes {
    fn row(&self, row: usize) -> &[u8] {
        &self.codes.codes()[row * self.row_bytes..(row + 1) * self.row_bytes]
    }
}

impl Form {
    /// Columns of the result, and how it is stored.
    fn result(&self) -> (usize, Dtype) {
        match self {
            Self::Dense(form) => (form.cols, form.dtype),
            Self::Codes(book) => (book.width, book.dtype),
        }
    }
}

impl SumsOfCodes {
    /// With a book that lives as long; `None` where rows are too wide.
    fn new(cuda: &Cuda, book: &CodeBook) -> Result<Option<Self>, ComputeError> {
        let Some(sums) = CodeSums::new(cuda, OPERATION, book)? else { return Ok(None) };
        Ok(Some(Self { copy: RowLaunch::copying(cuda, OPERATION, book.dtype)?, sums }))
    }
}

impl CudaRows {
    /// What a launch reads; `None` where rows are brought and none is on a card.
    fn argument(&self, cuda: &Cuda) -> Option<RowsArgument> {
        let (first, rows) = match &self.memory {
            Memory::Placed(placed) => placed.addresses(cuda),
            Memory::Staged(_, beside) | Memory::Split(_, beside) => (0, beside.as_ref()?.on_cards.list(cuda)),
            Memory::Written(pinned) => (pinned.address(), 0),
            Memory::WrittenTogether(shared) => (shared.memory().address(), 0),
            Memory::Device(bytes) => (cuda.pointer(Some(bytes)), 0),
        };
        Some(RowsArgument { first, rows, row_bytes: self.row_bytes as u64 })
    }

    /// Blocks and threads of a launch.
    fn threads(&self, launch: &RowLaunch) -> (u32, u32) {
        match (&self.memory, launch.decodes()) {
            (Memory::Placed(placed), false) if placed.are_on_host() => BLOCKS_OF_BUS,
            (Memory::Placed(placed), false) if !placed.are_on_cards() => BLOCKS_OF_BOTH,
            (Memory::Written(_) | Memory::WrittenTogether(_), _) => BLOCKS_OF_BUS,
            (Memory::Placed(_) | Memory::Staged(..) | Memory::Split(..), _) => ON_CARDS,
            (Memory::Device(_), _) => IN_DEVICE,
        }
    }

    fn begun(&self) -> MutexGuard<'_, VecDeque<Begun>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was begun first and not finished.
    fn oldest(&self) -> Option<Begun> {
        self.begun().pop_front()
    }

    /// Checks that ids are rows, and that a result is for as many as there are, as they are read; whether it has any
    /// values.
    fn check(&self, ids: &CudaIds, out: &CudaMatrix) -> Result<bool, ComputeError> {
        checks::gather_rows(Shape::new(self.n_rows, self.form.result().0), ids.range, out.shape)?;
        self.check_storage(out)?;
        Ok(!out.shape.is_empty())
    }

    fn check_storage(&self, out: &CudaMatrix) -> Result<(), ComputeError> {
        let (_, dtype) = self.form.result();
        if out.dtype != dtype {
            let what = format!("rows are read as {}, and wanted as {}", dtype.name(), out.dtype.name());
            return Err(ComputeError::argument(OPERATION, what));
        }
        Ok(())
    }

    /// Checks what is wanted of so many rows: their product with a block, and the first of them.
    fn check_sums(
        &self,
        (block, ids): (&CudaSparse, &CudaIds),
        own: Option<&CudaMatrix>,
        sums: &CudaMatrix,
    ) -> Result<(), ComputeError> {
        let (n, cols) = (ids.range.len, self.form.result().0);
        let block = block.forward.shape;
        checks::spmm((block, Transpose::No), 0, None, Shape::new(n, cols), None, sums.shape)?;
        if let Some(own) = own.filter(|own| own.shape.rows > n || own.shape.cols != cols) {
            let Shape { rows, cols: found } = own.shape;
            let what = format!("the first {rows} rows of {found} columns are wanted of {n} rows of {cols} columns");
            return Err(ComputeError::argument(OPERATION, what));
        }
        own.into_iter().chain([sums]).try_for_each(|out| self.check_storage(out))
    }

    /// Puts on a stream what reads rows in place, if any are.
    fn launch(
        &self,
        cuda: &Cuda,
        stream: &CudaStream,
        ids: &CudaIds,
        (launch, to): (&RowLaunch, u64),
    ) -> Result<bool, ComputeError> {
        let Some(rows) = self.argument(cuda) else { return Ok(false) };
        let names = Names::of(cuda.pointer(Some(&ids.ids)));
        let to = (to, ids.range.len as u64);
        // SAFETY: ids are rows, each of which lies where the list says; codes were checked; the result has a row for
        // each id.
        let launched = unsafe { launch.put(stream, self.threads(launch), rows, names, to) };
        launched.map(|()| true).map_err(Cuda::failed(OPERATION))
    }

    /// Begins to take rows to an address by a launch, which is for rows as they are stored if they are `stored` there.
    fn begin_at(
        &self,
        cuda: &Cuda,
        ids: &CudaIds,
        (launch, to): (&RowLaunch, u64),
        stored: Option<Room>,
    ) -> Result<Begun, ComputeError> {
        let failed = Cuda::failed(OPERATION);
        let mut begun = Begun { stored, ..Begun::default() };
        // Before what is read here: it takes longer.
        if let Some((staged, beside)) = self.brought() {
            let (asked, arriving) = self.ask(cuda, (staged, beside), ids, (launch, to))?;
            (begun.asked, begun.arriving) = (Some(asked), arriving);
        }
        self.side.stream().join(&cuda.device.stream).map_err(&failed)?;
        if self.launch(cuda, self.side.stream(), ids, (launch, to))? {
            begun.launched = Some(self.side.stream().record_event(None).map_err(&failed)?);
        }
        Ok(begun)
    }

    /// What brings rows, and what is on cards beside, if not all are.
    fn brought(&self) -> Option<(&StagedRows, Option<&BesideCards>)> {
        match &self.memory {
            Memory::Staged(staged, beside) | Memory::Split(staged, beside)
                if beside.as_ref().is_none_or(|beside| !beside.on_cards.are_all()) =>
            {
                Some((staged, beside.as_ref()))
            }
            _ => None,
        }
    }

    /// Begins to take no rows: where all ranks ask together, this one does, too.
    fn begin_nothing(&self, cuda: &Cuda) -> Result<Begun, ComputeError> {
        let Some((staged, _)) = self.brought().filter(|_| matches!(self.memory, Memory::Split(..))) else {
            return Ok(Begun::default());
        };
        let ready = cuda.device.stream.record_event(None).map_err(Cuda::failed(OPERATION))?;
        Ok(Begun { asked: Some(staged.ask_for_none(ready)?), ..Begun::default() })
    }

    /// Has the device's stream wait for what was begun, and takes to where it belongs what has arrived elsewhere; what
    /// is stored as it was comes back. It waits for nothing that was begun later, which the step would then not hide.
    fn wait_for(&self, cuda: &Cuda, begun: Begun) -> Result<Option<Room>, ComputeError> {
        let (stream, Begun { launched, asked, arriving, stored }) = (&cuda.device.stream, begun);
        let failed = Cuda::failed(OPERATION);
        let launch = self.sums.as_ref().filter(|_| stored.is_some()).map_or(&self.launch, |sums| &sums.copy);
        let n_brought = asked.map_or(Ok(0), |asked| asked.wait_on(stream));
        let taken = n_brought.and_then(|n| match &arriving {
            Some(arriving) if n > 0 => self.take_over(cuda, launch, arriving, n).map_err(&failed),
            _ => Ok(()),
        });
        launched.map_or(Ok(()), |launched| stream.wait(&launched)).map_err(&failed)?;
        // Whoever has the room next waits for this stream, and it is freed in its order.
        self.spare().extend(arriving.map(|arriving| arriving.room));
        taken.map(|()| stored)
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Room>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for so many rows at most, used before if there is some.
    fn room(&self, cuda: &Cuda, n: usize, is_partial: bool) -> Result<Room, ComputeError> {
        let n_bytes = n * self.row_bytes;
        let used = {
            let mut spare = self.spare();
            let of_kind = spare.iter().position(|room| room.absent.is_some() == is_partial);
            of_kind.map(|at| spare.swap_remove(at))
        };
        let fits = |room: &Room| {
            room.rows.len() >= n_bytes && room.absent.as_ref().is_none_or(|absent| absent.places.len() >= n)
        };
        if let Some(room) = used.filter(fits) {
            return Ok(room);
        }
        // No two batches are of one size, but nearly.
        let slack = |n: usize| n + n / 8;
        let list = |n| cuda.scratch(OPERATION, n);
        let absent = || Ok::<_, ComputeError>(Absent { counted: list(slack(n) + 1)?, places: list(slack(n))? });
        let rows = cuda.scratch(OPERATION, slack(n_bytes))?;
        Ok(Room { rows, absent: is_partial.then(absent).transpose()? })
    }

    /// Puts on the device's stream what takes rows that arrived, so many, to the result.
    fn take_over(&self, cuda: &Cuda, launch: &RowLaunch, arriving: &Arriving, n: usize) -> Result<(), DriverError> {
        let Room { rows, absent } = &arriving.room;
        let rows = self.stored_in(cuda, rows);
        let names = Names::at(cuda.pointer(absent.as_ref().map(|absent| &absent.places)));
        // SAFETY: the rows were copied there; their places are rows of the result.
        unsafe { launch.put(&cuda.device.stream, ON_CARDS, rows, names, (arriving.to, n as u64)) }
    }

    /// Rows that follow each other on the device.
    fn stored_in(&self, cuda: &Cuda, rows: &CudaSlice<u8>) -> RowsArgument {
        RowsArgument { first: cuda.pointer(Some(rows)), rows: 0, row_bytes: self.row_bytes as u64 }
    }

    /// Asks the host for the rows of `ids` that are on no card, after all that was put on the side stream before.
    fn ask(
        &self,
        cuda: &Cuda,
        (staged, beside): (&StagedRows, Option<&BesideCards>),
        ids: &CudaIds,
        (launch, to): (&RowLaunch, u64),
    ) -> Result<(Asked, Option<Arriving>), ComputeError> {
        let (n, at_ids) = (ids.range.len, cuda.pointer(Some(&ids.ids)));
        let is_direct = beside.is_none() && !launch.decodes();
        let mut arriving =
            (!is_direct).then(|| Ok(Arriving { room: self.room(cuda, n, beside.is_some())?, to })).transpose()?;
        let failed = Cuda::failed(OPERATION);
        // Behind the making of room, too.
        self.side.stream().join(&cuda.device.stream).map_err(&failed)?;
        let absent = arriving.as_mut().and_then(|arriving| arriving.room.absent.as_mut());
        let wanted = match beside.zip(absent) {
            Some((beside, absent)) => self.list_absent(cuda, beside, (at_ids, n), absent).map_err(&failed)?,
            None => Wanted::All(at_ids, n),
        };
        let to = arriving.as_ref().map_or(to, |arriving| cuda.pointer(Some(&arriving.room.rows)));
        let ready = self.side.stream().record_event(None).map_err(&failed)?;
        // SAFETY: ids are rows, and there is room for one each; nobody touches it before what was begun is finished.
        let asked = unsafe { staged.ask(ready, wanted, to) }?;
        Ok((asked, arriving))
    }

    /// Puts on the side stream what lists the rows that are on no card, of `n` ids at an address.
    fn list_absent(
        &self,
        cuda: &Cuda,
        beside: &BesideCards,
        (ids, n): (u64, usize),
        absent: &mut Absent,
    ) -> Result<Wanted, DriverError> {
        let (rows, n_ids) = (beside.on_cards.list(cuda), n as u32);
        self.side.stream().memset_zeros(&mut absent.counted.slice_mut(..1))?;
        let mut launch = self.side.stream().launch_builder(&beside.list_absent);
        launch.arg(&rows).arg(&ids).arg(&n_ids).arg(&mut absent.counted).arg(&mut absent.places);
        // SAFETY: there is an address for each row, which ids are; and room for each of them, and for their number
        // before them.
        unsafe { launch.launch(threads_for(n)) }?;
        Ok(Wanted::Counted(cuda.pointer(Some(&absent.counted)), n))
    }
}

impl RowReader<Cuda> for CudaRows {
    fn gather(&self, cuda: &Cuda, ids: &CudaIds, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        if !matches!(self.memory, Memory::Staged(..) | Memory::Split(..)) {
            if self.check(ids, out)? {
                self.launch(cuda, &cuda.device.stream, ids, (&self.launch, cuda.pointer(Some(&out.data))))?;
            }
            return Ok(());
        }
        RowReader::begin(self, cuda, ids, out)?;
        while let Some(begun) = self.oldest() {
            self.wait_for(cuda, begun)?;
        }
        Ok(())
    }

    fn begin(&self, cuda: &Cuda, ids: &CudaIds, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        let begun = if self.check(ids, out)? {
            self.begin_at(cuda, ids, (&self.launch, cuda.pointer(Some(&out.data))), None)?
        } else {
            self.begin_nothing(cuda)?
        };
        self.begun().push_back(begun);
        Ok(())
    }

    fn finish(&self, cuda: &Cuda) -> Result<(), ComputeError> {
        let Some(begun) = self.oldest() else { return Ok(()) };
        let stored = self.wait_for(cuda, begun)?;
        self.spare().extend(stored);
        Ok(())
    }

    fn sums(&self) -> Option<&dyn RowSums<Cuda>> {
        self.sums.is_some().then_some(self)
    }
}

impl RowSums<Cuda> for CudaRows {
    /// Codes in the device's memory are read where they lie; others are brought, each once.
    fn begin(&self, cuda: &Cuda, ids: &CudaIds) -> Result<(), ComputeError> {
        let (n, cols) = (ids.range.len, self.form.result().0);
        checks::gather_rows(Shape::new(self.n_rows, cols), ids.range, Shape::new(n, cols))?;
        let is_here = matches!(self.memory, Memory::Device(_)) || n == 0;
        let begun = match self.sums.as_ref().filter(|_| !is_here) {
            Some(sums) => {
                let room = self.room(cuda, n, false)?;
                self.begin_at(cuda, ids, (&sums.copy, cuda.pointer(Some(&room.rows))), Some(room))?
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
        let nothing = RowsArgument { first: 0, rows: 0, row_bytes: self.row_bytes as u64 };
        let here = (self.argument(cuda).unwrap_or(nothing), cuda.pointer(Some(&ids.ids)));
        let (rows, ids) = stored.as_ref().map_or(here, |room| (self.stored_in(cuda, &room.rows), 0));
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
        self.spare().extend(stored);
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
        let Shape { rows: n, cols } = rows.shape;
        if cols != form.cols || rows.dtype != form.dtype || n > self.n_rows.saturating_sub(first) {
            let (found, wanted) = (rows.dtype.name(), form.dtype.name());
            return Err(ComputeError::argument(
                OPERATION,
                format!(
                    "{n} rows of {cols} columns of {found} from row {first} on, in a store of {} rows of {} columns of {wanted}",
                    self.n_rows, form.cols
                ),
            ));
        }
        let (n_bytes, begin) = (n * self.row_bytes, first * self.row_bytes);
        if n_bytes == 0 {
            return Ok(());
        }
        let out = match &mut self.memory {
            Memory::Written(pinned) => &mut pinned.bytes_mut()[begin..begin + n_bytes],
            // SAFETY: each row is one rank's to write, and nobody reads it before ranks have met.
            Memory::WrittenTogether(shared) => unsafe { shared.memory().own_bytes(begin..begin + n_bytes) },
            _ => return Err(not_written()),
        };
        cuda.device.stream.memcpy_dtoh(&rows.data.slice(..n_bytes), out).map_err(Cuda::failed(OPERATION))?;
        // `rows` may be written again as soon as this returns, by whatever stream.
        cuda.device.wait(OPERATION)
    }
}

impl Drop for CudaRows {
    fn drop(&mut self) {
        // What it reads is freed after this.
        self.side.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_as_they_were_written() {
        for (cols, dtype) in [(3, Dtype::F32), (8, Dtype::Bf16), (21, Dtype::F32), (21, Dtype::Bf16)] {
            let values: Vec<f32> = (0..5 * cols).map(|i| i as f32 / 4.0).collect();
            let rows = Matrix::new(5, cols, values.clone()).unwrap();
            let form = Dense { cols, dtype };
            let mut memory = vec![0xff; 3 * form.row_bytes()];
            form.write_all(&mut memory, &rows, 2);
            let mut out = vec![0.0; cols];
            for (bytes, expected) in memory.chunks(form.row_bytes()).zip(values[2 * cols..].chunks(cols)) {
                form.read(bytes, &mut out);
                assert_eq!(out, expected);
            }
        }
    }
}
