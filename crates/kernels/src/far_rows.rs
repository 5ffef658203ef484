//! [`CudaRows`]: features that are read by id, wherever they lie: rows in pinned memory of the host, read in place, with the hottest of
//! them on the device, too; or codes there or on the device, decoded as they are read.
//!
//! A batch reads each of its rows once, in one launch: near ones from the device's memory, far ones over the bus, 45 GB/s of
//! the 51 that copies reach on an H200. Nothing is staged, and no processor of the host takes part. Of a code book (paper B) only codes
//! travel.

use std::sync::Arc;

use cudarc::driver::sys::CU_MEMHOSTALLOC_DEVICEMAP;
use cudarc::driver::{CudaSlice, CudaStream, DeviceRepr, LaunchConfig, PinnedHostSlice, PushKernelArg};
use girih_compress::{CodecSpec, CompressedFeatures};
use girih_compute::{ComputeError, Dtype, FarRows, HostRows, RowReader, Shape, checks};
use girih_graph_format::{Matrix, NodeId};
use half::bf16;
use rayon::prelude::*;

use crate::Cuda;
use crate::compile::Source;
use crate::device::BLOCK;
use crate::driver::explain;
use crate::matrix::{CudaIds, CudaMatrix, pitch};

const OPERATION: &str = "rows by id";
/// The place of a row that is not near; `kernels/rows.cu` says the same.
const FAR: u32 = u32::MAX;
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
    near: Option<Near>,
    form: Form,
}

/// Where rows lie.
enum Memory {
    Host(Arc<Pinned>),
    Device(CudaSlice<u8>),
}

/// Memory of the host that a device reads in place.
struct Pinned {
    bytes: PinnedHostSlice<u8>,
    stream: Arc<CudaStream>,
}

/// Rows that are on the device, too.
struct Near {
    rows: CudaSlice<u8>,
    /// Of each node, its place among them, or [`FAR`].
    places: CudaSlice<u32>,
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

/// `FarRows` of `kernels/rows.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RowsArgument {
    pub(crate) far: u64,
    pub(crate) places: u64,
    pub(crate) near: u64,
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
    pub(crate) fn far_rows(&self, rows: &Matrix, dtype: Dtype, near: &[NodeId]) -> Result<FarRows<Self>, ComputeError> {
        let form = Dense { cols: rows.n_cols(), dtype };
        checks::allocation(Shape::new(rows.n_rows(), pitch(form.cols)), dtype.n_bytes())?;
        let mut pinned = Pinned::new(self, rows.n_rows() * form.row_bytes())?;
        form.write(pinned.bytes.as_mut_slice().map_err(Self::failed(OPERATION))?, rows);
        let pinned = Arc::new(pinned);
        let reader = CudaRows {
            n_rows: rows.n_rows(),
            row_bytes: form.row_bytes(),
            near: self.near(pinned.bytes(), (rows.n_rows(), form.row_bytes()), near)?,
            memory: Memory::Host(Arc::clone(&pinned)),
            form: Form::Dense(form),
        };
        let on_host = PinnedRows { memory: pinned, n_rows: rows.n_rows(), form };
        Ok(FarRows { reader: Box::new(reader), on_host: Arc::new(on_host) })
    }

    /// [`Backend::code_rows`](girih_compute::Backend::code_rows): of code books.
    pub(crate) fn code_rows(
        &self,
        codes: &CompressedFeatures,
        dtype: Dtype,
        near: Option<&[NodeId]>,
    ) -> Result<Option<Box<dyn RowReader<Self>>>, ComputeError> {
        let Some(book) = CodeBook::upload(self, codes, dtype)? else { return Ok(None) };
        let (n_rows, row_bytes) = (codes.n_rows(), codes.codec().row_bytes());
        let memory = if near.is_some() {
            let mut pinned = Pinned::new(self, codes.codes().len())?;
            let bytes = pinned.bytes.as_mut_slice().map_err(Self::failed(OPERATION))?;
            bytes.par_chunks_mut(1 << 20).zip(codes.codes().par_chunks(1 << 20)).for_each(|(to, from)| {
                to[..from.len()].copy_from_slice(from);
            });
            Memory::Host(Arc::new(pinned))
        } else {
            Memory::Device(self.upload_list(OPERATION, codes.codes())?)
        };
        let near = self.near(codes.codes(), (n_rows, row_bytes), near.unwrap_or_default())?;
        Ok(Some(Box::new(CudaRows { n_rows, row_bytes, memory, near, form: Form::Codes(book) })))
    }

    /// Copies the rows of some nodes to the device.
    fn near(
        &self,
        rows: &[u8],
        (n_rows, row_bytes): (usize, usize),
        nodes: &[NodeId],
    ) -> Result<Option<Near>, ComputeError> {
        if nodes.is_empty() {
            return Ok(None);
        }
        let mut places = vec![FAR; n_rows];
        let mut bytes = Vec::with_capacity(nodes.len() * row_bytes);
        for (place, &node) in nodes.iter().enumerate() {
            places[node as usize] = place as u32;
            bytes.extend_from_slice(&rows[node as usize * row_bytes..][..row_bytes]);
        }
        let upload = |list: &[u32]| self.upload_list(OPERATION, list);
        Ok(Some(Near { rows: self.upload_list(OPERATION, &bytes)?, places: upload(&places)? }))
    }
}

impl Pinned {
    fn new(cuda: &Cuda, n_bytes: usize) -> Result<Self, ComputeError> {
        let context = cuda.device.stream.context();
        // SAFETY: whatever the memory holds is bytes.
        let pinned = unsafe { context.alloc_pinned_with_flags::<u8>(n_bytes.max(1), CU_MEMHOSTALLOC_DEVICEMAP) };
        let bytes = pinned.map_err(|error| {
            let why = explain(error.0);
            let what = format!(
                "the host pins no {n_bytes} bytes for features ({why}); free memory, raise `ulimit -l`, store them in bf16, or \
                 leave the feature cache out where the device has room for all"
            );
            ComputeError::device(OPERATION, what)
        })?;
        Ok(Self { bytes, stream: Arc::clone(&cuda.device.stream) })
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.as_slice().expect("the library records no event of memory that a device reads in place")
    }
}

impl Drop for Pinned {
    /// Pinned memory is not freed while the device reads it.
    fn drop(&mut self) {
        let _ = self.stream.synchronize();
    }
}

impl Dense {
    /// Bytes from row to row.
    fn row_bytes(self) -> usize {
        pitch(self.cols) * self.dtype.n_bytes()
    }

    /// Stores rows as matrices of the device have them; what lies between them is zero.
    fn write(self, memory: &mut [u8], rows: &Matrix) {
        let (cols, row_bytes) = (self.cols, self.row_bytes());
        if row_bytes == 0 {
            return;
        }
        memory.par_chunks_mut(row_bytes * ROWS_AT_ONCE).enumerate().for_each(|(piece, memory)| {
            for (at, bytes) in memory.chunks_exact_mut(row_bytes).enumerate() {
                let row = rows.row(piece * ROWS_AT_ONCE + at);
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

    /// Reads rows that were stored so.
    fn read(self, memory: &[u8], out: &mut [f32]) {
        if self.cols == 0 {
            return;
        }
        for (bytes, row) in memory.chunks_exact(self.row_bytes()).zip(out.chunks_exact_mut(self.cols)) {
            match self.dtype {
                Dtype::F32 => bytemuck::cast_slice_mut(row).copy_from_slice(&bytes[..self.cols * 4]),
                Dtype::Bf16 => bytes
                    .chunks_exact(2)
                    .zip(row)
                    .for_each(|(bytes, value)| *value = bf16::from_ne_bytes([bytes[0], bytes[1]]).to_f32()),
            }
        }
    }
}

/// Dense rows in pinned memory, as the host reads them.
struct PinnedRows {
    memory: Arc<Pinned>,
    n_rows: usize,
    form: Dense,
}

impl HostRows for PinnedRows {
    fn shape(&self) -> Shape {
        Shape::new(self.n_rows, self.form.cols)
    }

    fn read(&self, first: usize, out: &mut [f32]) {
        self.form.read(&self.memory.bytes()[first * self.form.row_bytes()..], out);
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
    fn argument(&self, cuda: &Cuda) -> Result<RowsArgument, ComputeError> {
        let far = match &self.memory {
            // The device knows pinned memory by the host's own addresses.
            Memory::Host(pinned) => pinned.bytes.as_ptr().map_err(Cuda::failed(OPERATION))? as u64,
            Memory::Device(bytes) => cuda.pointer(Some(bytes)),
        };
        Ok(RowsArgument {
            far,
            places: cuda.pointer(self.near.as_ref().map(|near| &near.places)),
            near: cuda.pointer(self.near.as_ref().map(|near| &near.rows)),
            row_bytes: self.row_bytes as u64,
        })
    }

    fn blocks(&self) -> u32 {
        match self.memory {
            Memory::Host(_) => BLOCKS,
            Memory::Device(_) => 8 * BLOCKS,
        }
    }
}

impl RowReader<Cuda> for CudaRows {
    fn gather(&self, cuda: &Cuda, ids: &CudaIds, out: &mut CudaMatrix) -> Result<(), ComputeError> {
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
        let (rows, n) = (self.argument(cuda)?, out.shape.rows as u64);
        let types = [("X", dtype), ("Y", dtype)];
        let grid_dim = (self.blocks(), 1, 1);
        match &self.form {
            Form::Dense(_) => {
                // SAFETY: ids are rows, and their places rows that are near; `out` has a row for each id, as far apart as they.
                unsafe { cuda.copy_named(OPERATION, rows, ids, out, self.blocks()) }
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
                let mut launch = cuda.device.stream.launch_builder(&kernel);
                launch.arg(&rows).arg(&book).arg(&ids.ids).arg(&mut out.data).arg(&n);
                let of_row = row_bytes_shared(cols, dtype);
                let warps = (SHARED_BYTES / of_row.max(1)).clamp(1, BLOCK as usize / 32);
                let block_dim = (warps as u32 * 32, 1, 1);
                let config = LaunchConfig { grid_dim, block_dim, shared_mem_bytes: (warps * of_row) as u32 };
                // SAFETY: ids are rows, and their places rows that are near; positions of codes are columns of their group, and
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
            let mut memory = vec![0xff; 5 * form.row_bytes()];
            form.write(&mut memory, &rows);
            let mut out = vec![0.0; 3 * cols];
            form.read(&memory[2 * form.row_bytes()..], &mut out);
            assert_eq!(out, values[2 * cols..]);
        }
    }
}
