//! [`CudaRows`]: features that are read by id, wherever they lie: rows where a placement puts them, on this card, on others, or in pinned
//! memory of the host; or codes there or on the device, decoded as they are read; or rows that the device itself wrote to the host.
//!
//! A batch reads each of its rows once, in one launch, in place: from the device's memory, over links between cards, and over the bus,
//! 45 GB/s of the 51 that copies reach on an H200. Nothing is staged, and no processor of the host takes part. Of a code book (paper B)
//! only codes travel.

use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, DeviceRepr, LaunchConfig, PushKernelArg};
use girih_compress::{CodecSpec, CompressedFeatures};
use girih_compute::{ComputeError, Dtype, FarRows, HostRows, RowReader, RowStore, Shape, checks};
use girih_graph_format::Matrix;
use girih_tiers::Placement;
use half::bf16;
use rayon::prelude::*;

use crate::Cuda;
use crate::compile::Source;
use crate::device::BLOCK;
use crate::matrix::{CudaIds, CudaMatrix, pitch};
use crate::pinned::Pinned;
use crate::placed::{HostPieces, PlacedRows, Rows};

const OPERATION: &str = "rows by id";
/// Blocks that keep the bus busy, and most of a device free for others.
const BLOCKS: u32 = 132;
/// Rows that a thread of the host writes at a time.
const ROWS_AT_ONCE: usize = 1024;
/// Features of a group of a code book.
const GROUP: usize = 256;
/// Shared memory of a block that every card has.
const SHARED_BYTES: usize = 48 << 10;

/// See the module.
struct CudaRows {
    n_rows: usize,
    row_bytes: usize,
    memory: Memory,
    form: Form,
    /// Where what is begun goes on.
    side: Arc<CudaStream>,
}

/// Where rows lie.
enum Memory {
    Placed(PlacedRows),
    /// All on the host, as this device wrote them.
    Written(Pinned),
    /// All on the device, one after the other.
    Device(CudaSlice<u8>),
}

/// What rows are.
enum Form {
    /// Rows as matrices of the device have them.
    Dense(Dense),
    /// Codes of a code book.
    Codes(CodeBook),
}

#[derive(Clone, Copy)]
struct Dense {
    cols: usize,
    dtype: Dtype,
}

/// What codes stand for: `FeatureCodec::parameters`.
struct CodeBook {
    width: usize,
    values: CudaSlice<f32>,
    background: Option<CudaSlice<f32>>,
    /// Bytes of a whole group.
    of_group: u32,
    /// What rows are decoded to.
    dtype: Dtype,
}

/// `PlacedRows` of `kernels/rows.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RowsArgument {
    pub(crate) first: u64,
    pub(crate) rows: u64,
    pub(crate) row_bytes: u64,
}

/// `CodeBook` of `kernels/rows.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct BookArgument {
    values: u64,
    background: u64,
    width: u64,
    of_group: u32,
    padding: u32,
}

// SAFETY: plain words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for RowsArgument {}
// SAFETY: as above, with what lies behind the last word.
unsafe impl DeviceRepr for BookArgument {}

impl Cuda {
    /// [`Backend::far_rows`](girih_compute::Backend::far_rows).
    pub(crate) fn far_rows(
        &self,
        rows: &Matrix,
        dtype: Dtype,
        placement: &Placement,
    ) -> Result<FarRows<Self>, ComputeError> {
        let (n_rows, form) = (rows.n_rows(), Dense { cols: rows.n_cols(), dtype });
        checks::allocation(Shape::new(n_rows, pitch(form.cols)), dtype.n_bytes())?;
        let row_bytes = form.row_bytes();
        let write = |range: Range<usize>, memory: &mut [u8]| form.write(memory, rows, range.start);
        let placed = self.placed((n_rows, row_bytes), &write, placement)?;
        let on_host = RowsOnHost { memory: Arc::clone(placed.on_host()), n_rows, form };
        let reader = self.reader((n_rows, row_bytes), Memory::Placed(placed), Form::Dense(form))?;
        Ok(FarRows { reader, on_host: Arc::new(on_host) })
    }

    /// [`Backend::code_rows`](girih_compute::Backend::code_rows): of code books.
    pub(crate) fn code_rows(
        &self,
        codes: &CompressedFeatures,
        dtype: Dtype,
        placement: Option<&Placement>,
    ) -> Result<Option<Box<dyn RowReader<Self>>>, ComputeError> {
        let Some(book) = CodeBook::upload(self, codes, dtype)? else { return Ok(None) };
        let (n_rows, row_bytes) = (codes.n_rows(), codes.codec().row_bytes());
        let write = |range: Range<usize>, memory: &mut [u8]| {
            let of_range = &codes.codes()[range.start * row_bytes..range.end * row_bytes];
            memory.par_chunks_mut(1 << 20).zip(of_range.par_chunks(1 << 20)).for_each(|(to, from)| {
                to.copy_from_slice(from);
            });
        };
        let memory = match placement {
            Some(placement) => Memory::Placed(self.placed((n_rows, row_bytes), &write, placement)?),
            None => Memory::Device(self.upload_list(OPERATION, codes.codes())?),
        };
        self.reader((n_rows, row_bytes), memory, Form::Codes(book)).map(Some)
    }

    /// [`Backend::row_store`](girih_compute::Backend::row_store).
    pub(crate) fn row_store(&self, shape: Shape, dtype: Dtype) -> Result<Box<dyn RowStore<Self>>, ComputeError> {
        let form = Dense { cols: shape.cols, dtype };
        checks::allocation(Shape::new(shape.rows, pitch(form.cols)), dtype.n_bytes())?;
        let memory = Memory::Written(Pinned::new(self, shape.rows * form.row_bytes(), OPERATION)?);
        Ok(Box::new(self.rows((shape.rows, form.row_bytes()), memory, Form::Dense(form))?))
    }

    fn reader(
        &self,
        sizes: (usize, usize),
        memory: Memory,
        form: Form,
    ) -> Result<Box<dyn RowReader<Self>>, ComputeError> {
        Ok(Box::new(self.rows(sizes, memory, form)?))
    }

    fn rows(&self, (n_rows, row_bytes): (usize, usize), memory: Memory, form: Form) -> Result<CudaRows, ComputeError> {
        let side = self.device.stream.context().new_stream().map_err(Self::failed(OPERATION))?;
        Ok(CudaRows { n_rows, row_bytes, memory, form, side })
    }

    /// Rows of equal length where a placement puts them.
    fn placed(
        &self,
        (n_rows, row_bytes): (usize, usize),
        write: &(dyn Fn(Range<usize>, &mut [u8]) + Sync),
        placement: &Placement,
    ) -> Result<PlacedRows, ComputeError> {
        let offset = |row| (row * row_bytes) as u64;
        PlacedRows::new(self, &Rows { operation: OPERATION, n_rows, offset: &offset, write }, placement)
    }
}

impl Dense {
    /// Bytes from row to row.
    fn row_bytes(self) -> usize {
        pitch(self.cols) * self.dtype.n_bytes()
    }

    /// Stores the rows from `first` on, as many as there is memory for, as matrices of the device have them; what lies between them is
    /// zero.
    fn write(self, memory: &mut [u8], rows: &Matrix, first: usize) {
        let (cols, row_bytes) = (self.cols, self.row_bytes());
        if row_bytes == 0 {
            return;
        }
        memory.par_chunks_mut(row_bytes * ROWS_AT_ONCE).enumerate().for_each(|(piece, memory)| {
            for (at, bytes) in memory.chunks_exact_mut(row_bytes).enumerate() {
                let row = rows.row(first + piece * ROWS_AT_ONCE + at);
                bytes[cols * self.dtype.n_bytes()..].fill(0);
                match self.dtype {
                    Dtype::F32 => bytes[..cols * 4].copy_from_slice(bytemuck::cast_slice(row)),
                    Dtype::Bf16 => bytes
                        .chunks_exact_mut(2)
                        .zip(row)
                        .for_each(|(bytes, &value)| bytes.copy_from_slice(&bf16::from_f32(value).to_ne_bytes())),
                }
            }
        });
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

/// Dense rows in pinned memory, as the host reads them.
struct RowsOnHost {
    memory: Arc<HostPieces>,
    n_rows: usize,
    form: Dense,
}

impl HostRows for RowsOnHost {
    fn shape(&self) -> Shape {
        Shape::new(self.n_rows, self.form.cols)
    }

    fn read(&self, first: usize, out: &mut [f32]) {
        let row_bytes = self.form.row_bytes();
        for (at, row) in out.chunks_exact_mut(self.form.cols.max(1)).enumerate().map(|(i, row)| (first + i, row)) {
            self.form.read(self.memory.row(at, (at * row_bytes) as u64, row_bytes), row);
        }
    }
}

impl CodeBook {
    /// That of a codec which has one; `None` of others, and where a row does not fit into shared memory.
    fn upload(cuda: &Cuda, codes: &CompressedFeatures, dtype: Dtype) -> Result<Option<Self>, ComputeError> {
        let codec = codes.codec();
        let k = match codec.spec() {
            CodecSpec::Topk(k) | CodecSpec::TopkResidual(k) => k,
            _ => return Ok(None),
        };
        let width = codec.width();
        if row_bytes_shared(width, dtype) > SHARED_BYTES {
            return Ok(None);
        }
        let parameters = codec.parameters();
        let numbers: Vec<f32> = parameters
            .chunks_exact(4)
            .map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
            .collect();
        let (values, background) = numbers.split_at(codec.row_bytes());
        Ok(Some(Self {
            width,
            values: cuda.upload_list(OPERATION, values)?,
            background: (!background.is_empty()).then(|| cuda.upload_list(OPERATION, background)).transpose()?,
            of_group: (2 * k).min(GROUP as u32),
            dtype,
        }))
    }
}

/// Bytes that a row takes while a warp decodes it.
fn row_bytes_shared(width: usize, dtype: Dtype) -> usize {
    (pitch(width) * dtype.n_bytes()).next_multiple_of(16)
}

impl CudaRows {
    fn argument(&self, cuda: &Cuda) -> RowsArgument {
        let (first, rows) = match &self.memory {
            Memory::Placed(placed) => placed.addresses(cuda),
            Memory::Written(pinned) => (pinned.address(), 0),
            Memory::Device(bytes) => (cuda.pointer(Some(bytes)), 0),
        };
        RowsArgument { first, rows, row_bytes: self.row_bytes as u64 }
    }

    fn blocks(&self) -> u32 {
        match self.memory {
            Memory::Placed(_) | Memory::Written(_) => BLOCKS,
            Memory::Device(_) => 8 * BLOCKS,
        }
    }
}

impl RowReader<Cuda> for CudaRows {
    fn gather(&self, cuda: &Cuda, ids: &CudaIds, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        self.gather_on(cuda, &cuda.device.stream, ids, out)
    }

    fn begin(&self, cuda: &Cuda, ids: &CudaIds, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        self.side.join(&cuda.device.stream).map_err(Cuda::failed(OPERATION))?;
        self.gather_on(cuda, &self.side, ids, out)
    }

    fn finish(&self, cuda: &Cuda) -> Result<(), ComputeError> {
        cuda.device.stream.join(&self.side).map_err(Cuda::failed(OPERATION))
    }
}

impl RowStore<Cuda> for CudaRows {
    fn write(&mut self, cuda: &Cuda, first: usize, rows: &CudaMatrix) -> Result<(), ComputeError> {
        let (Memory::Written(pinned), Form::Dense(form)) = (&mut self.memory, &self.form) else {
            return Err(ComputeError::argument(OPERATION, "only rows of a store are written"));
        };
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
        let out = &mut pinned.bytes_mut()?[begin..begin + n_bytes];
        cuda.device.stream.memcpy_dtoh(&rows.data.slice(..n_bytes), out).map_err(Cuda::failed(OPERATION))?;
        // `rows` may be written again as soon as this returns, by whatever stream.
        cuda.device.wait(OPERATION)
    }
}

impl Drop for CudaRows {
    fn drop(&mut self) {
        // What it reads is freed after this.
        let _ = self.side.synchronize();
    }
}

impl CudaRows {
    fn gather_on(
        &self,
        cuda: &Cuda,
        stream: &CudaStream,
        ids: &CudaIds,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        let (cols, dtype) = match &self.form {
            Form::Dense(form) => (form.cols, form.dtype),
            Form::Codes(book) => (book.width, book.dtype),
        };
        checks::gather_rows(Shape::new(self.n_rows, cols), ids.range, out.shape)?;
        if out.dtype != dtype {
            let what = format!("rows are read as {}, and wanted as {}", dtype.name(), out.dtype.name());
            return Err(ComputeError::argument(OPERATION, what));
        }
        if out.shape.is_empty() {
            return Ok(());
        }
        let (rows, n) = (self.argument(cuda), out.shape.rows as u64);
        let types = [("X", dtype), ("Y", dtype)];
        let grid_dim = (self.blocks(), 1, 1);
        match &self.form {
            Form::Dense(_) => {
                // SAFETY: ids are rows, each of which lies where the list says; `out` has a row for each id, as far apart as they.
                unsafe { cuda.copy_named(OPERATION, (stream, self.blocks()), rows, ids, out) }
            }
            Form::Codes(book) => {
                let book = BookArgument {
                    values: cuda.pointer(Some(&book.values)),
                    background: cuda.pointer(book.background.as_ref()),
                    width: cols as u64,
                    of_group: book.of_group,
                    padding: 0,
                };
                let kernel = cuda.kernel(OPERATION, Source::ROWS, "decode_rows", &types)?;
                let mut launch = stream.launch_builder(&kernel);
                launch.arg(&rows).arg(&book).arg(&ids.ids).arg(&mut out.data).arg(&n);
                let of_row = row_bytes_shared(cols, dtype);
                let warps = (SHARED_BYTES / of_row.max(1)).clamp(1, BLOCK as usize / 32);
                let block_dim = (warps as u32 * 32, 1, 1);
                let config = LaunchConfig { grid_dim, block_dim, shared_mem_bytes: (warps * of_row) as u32 };
                // SAFETY: ids are rows, each of which lies where the list says; positions of codes are columns of their group, and
                // there is a value for each byte; `out` has a row for each id, and each warp room for one.
                unsafe { launch.launch(config) }.map_err(Cuda::failed(OPERATION))?;
                Ok(())
            }
        }
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
            form.write(&mut memory, &rows, 2);
            let mut out = vec![0.0; cols];
            for (bytes, expected) in memory.chunks(form.row_bytes()).zip(values[2 * cols..].chunks(cols)) {
                form.read(bytes, &mut out);
                assert_eq!(out, expected);
            }
        }
    }
}
