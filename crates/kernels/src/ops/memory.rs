//! Allocation, upload and download of matrices and ids.

use std::borrow::Cow;
use std::ops::Deref;
use std::slice;
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys::CUresult;
use cudarc::driver::{CudaView, DevicePtr, DeviceRepr, DriverError};
use girih_compute::checks::IdRange;
use girih_compute::scratch::{UPLOAD_PIECE, pitch};
use girih_compute::{ComputeError, DenseOps, Dtype, Fits, Memory, Shape, SparseOperand, checks};
use girih_graph_format::Matrix;

use super::passes::Strided;
use super::sparse::largest;
use crate::buffer::Buffer;
use crate::cuda::Cuda;
use crate::matrix::{CudaCsr, CudaIds, CudaMatrix, CudaSparse, Derived, TileCache};
use crate::staging::Rows;

const UPLOAD_SPARSE: &str = "upload_sparse";
/// Elements that are packed on the device at a time during a download.
const DOWNLOAD_PIECE: usize = 1 << 22;
/// Most bytes that the driver stages and leaves to the stream; for more it waits until the stream reaches the copy.
const COPIED_ASIDE: usize = 64 << 10;
/// Reason not to capture a step that uploads.
const UPLOADS: &str = "uploads what the host has";
/// Reason not to capture a step that allocates: memory of a captured step belongs to the graph.
const OUTLIVES: &str = "allocates what may outlive it";

impl Memory for Cuda {
    type Matrix = CudaMatrix;
    type Sparse = CudaSparse;
    type Ids = CudaIds;

    fn name(&self) -> String {
        format!("cuda: {}", self.device.name())
    }

    fn activations(&self) -> Dtype {
        self.precision
    }

    fn has_own_memory(&self) -> bool {
        true
    }

    fn is_asynchronous(&self) -> bool {
        true
    }

    fn zeros(&self, shape: Shape, dtype: Dtype) -> Result<CudaMatrix, ComputeError> {
        self.recorder.obstacle(OUTLIVES)?;
        Self::zeros(self, shape, dtype)
    }

    fn resize(&self, matrix: &mut CudaMatrix, shape: Shape) -> bool {
        let wanted = shape.rows.checked_mul(pitch(shape.cols)).and_then(|len| len.checked_mul(matrix.dtype.n_bytes()));
        let fits = wanted.is_some_and(|wanted| wanted <= matrix.data.len());
        if fits {
            matrix.shape = shape;
        }
        fits
    }

    fn upload(&self, host: &Matrix, dtype: Dtype) -> Result<CudaMatrix, ComputeError> {
        let mut matrix = self.uninitialized(Shape::new(host.n_rows(), host.n_cols()), dtype)?;
        self.fill("upload", host.data(), &mut matrix)?;
        Ok(matrix)
    }

    fn download(&self, matrix: &CudaMatrix) -> Result<Matrix, ComputeError> {
        let values = match matrix.dtype {
            Dtype::F32 => self.packed::<f32>("download", matrix)?,
            // Half the bytes travel; bf16 is the upper half of an f32 on the host.
            Dtype::Bf16 => {
                let halves = self.packed::<u16>("download", matrix)?;
                halves.into_iter().map(|bits| f32::from_bits(u32::from(bits) << 16)).collect()
            }
        };
        Matrix::new(matrix.shape.rows, matrix.shape.cols, values)
            .map_err(|error| ComputeError::argument("download", error.to_string()))
    }

    fn run_write(&self, _: Fits, host: &Matrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        self.fill("write", host.data(), out)
    }

    fn run_upload_sparse(&self, _: Fits, operand: &SparseOperand<'_>) -> Result<CudaSparse, ComputeError> {
        // Kernels gather by column without checks.
        let csr = operand.csr.in_memory().map_err(|error| ComputeError::device(UPLOAD_SPARSE, error.to_string()))?;
        let forward = self.upload_csr(UPLOAD_SPARSE, &csr, None)?;
        Ok(CudaSparse { host: Some(csr), ..self.with_scales(operand, forward)? })
    }

    /// The device makes the transpose, and nothing looks for dense blocks.
    fn run_upload_block(&self, _: Fits, operand: &SparseOperand<'_>) -> Result<CudaSparse, ComputeError> {
        let rows = self.upload_csr(UPLOAD_SPARSE, operand.csr, None)?;
        self.with_scales(operand, CudaCsr { tiles: TileCache::none(), ..rows })
    }

    fn upload_ids(&self, ids: &[u32]) -> Result<CudaIds, ComputeError> {
        self.recorder.obstacle(UPLOADS)?;
        let on_device = self.allocate::<u32>("upload_ids", ids.len(), || format!("a list of {} ids", ids.len()))?;
        if !ids.is_empty() {
            self.upload_to("upload_ids", ids, ids.len(), &on_device.as_view(), ids.len())?;
        }
        Ok(CudaIds { range: IdRange::of(ids), host: ids.into(), ids: on_device, derived: Derived::default() })
    }

    fn shape(&self, matrix: &CudaMatrix) -> Shape {
        matrix.shape
    }

    fn dtype(&self, matrix: &CudaMatrix) -> Dtype {
        matrix.dtype
    }

    fn sparse_shape(&self, sparse: &CudaSparse) -> Shape {
        sparse.forward.shape
    }

    fn nnz(&self, sparse: &CudaSparse) -> usize {
        sparse.forward.nnz
    }

    fn id_range(&self, ids: &CudaIds) -> IdRange {
        ids.range
    }

    fn set_zero(&self, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        // Only the bytes of the matrix: its memory may be larger.
        let n_bytes = (out.len() * out.dtype.n_bytes()).max(1);
        self.device.stream.memset_zeros(&mut out.data.slice_mut(..n_bytes)).map_err(Self::failed("set_zero"))
    }

    fn zero_ids(&self, len: usize) -> Result<CudaIds, ComputeError> {
        self.recorder.obstacle(OUTLIVES)?;
        checks::allocation(Shape::new(len, 1), size_of::<u32>())?;
        let mut ids = self.allocate::<u32>("zero_ids", len, || format!("a list of {len} ids"))?;
        self.device.stream.memset_zeros(&mut ids).map_err(Self::failed("zero_ids"))?;
        let range = IdRange { len, end: u64::from(len > 0) };
        Ok(CudaIds { range, host: Arc::default(), ids, derived: Derived::default() })
    }
}

impl Cuda {
    /// Matrix of uploaded rows with the scales and names of an operand, without its pattern on the host.
    fn with_scales(&self, operand: &SparseOperand<'_>, forward: CudaCsr) -> Result<CudaSparse, ComputeError> {
        let floats = |values: &Option<Vec<f32>>| {
            values.as_ref().map(|values| self.upload_list(UPLOAD_SPARSE, values)).transpose()
        };
        let names = operand.names.as_ref();
        Ok(CudaSparse {
            symmetric: operand.symmetric,
            names: operand.names.clone(),
            column_names: names.map(|names| self.upload_list(UPLOAD_SPARSE, &names.columns)).transpose()?,
            forward,
            left: floats(&operand.scales.left)?,
            right: floats(&operand.scales.right)?,
            most: [&operand.scales.left, &operand.scales.right].map(|factors| largest(factors.as_deref())),
            transpose: OnceLock::new(),
            host: None,
        })
    }

    /// As [`Memory::zeros`], but for memory that does not outlive its operation.
    pub(crate) fn zeros(&self, shape: Shape, dtype: Dtype) -> Result<CudaMatrix, ComputeError> {
        let mut matrix = self.uninitialized(shape, dtype)?;
        self.set_zero(&mut matrix)?;
        Ok(matrix)
    }

    /// Elements on the host without padding, as numbers of their size.
    fn packed<T: DeviceRepr + Default + Clone>(
        &self,
        operation: &'static str,
        matrix: &CudaMatrix,
    ) -> Result<Vec<T>, ComputeError> {
        let Shape { rows, cols } = matrix.shape;
        if matrix.pitch() == cols || matrix.shape.is_empty() {
            return self.read(operation, &elements::<T>(matrix));
        }
        let rows_at_once = (DOWNLOAD_PIECE / cols).max(1).min(rows);
        let staged = self.scratch::<T>(operation, rows_at_once * cols)?;
        let mut values = Vec::with_capacity(matrix.shape.len());
        for first in (0..rows).step_by(rows_at_once) {
            let shape = Shape::new(rows_at_once.min(rows - first), cols);
            let (x, from) = (self.pointer(Some(&matrix.data)), first * matrix.pitch());
            let x = Strided { at: x, start: from as u64, pitch: matrix.pitch() as u64, dtype: matrix.dtype };
            let packed = Strided { at: self.pointer(Some(&staged)), start: 0, pitch: cols as u64, dtype: matrix.dtype };
            // SAFETY: the rows are rows of the matrix, and there is space for as many without gaps.
            unsafe { self.copy_rows(operation, shape, x, packed) }?;
            values.extend(self.read(operation, &staged.slice(..shape.len()))?);
        }
        Ok(values)
    }

    /// Ids on the host: the kept copy, or a download if an operation wrote them.
    pub(crate) fn ids_on_host<'a>(
        &self,
        operation: &'static str,
        ids: &'a CudaIds,
    ) -> Result<Cow<'a, [u32]>, ComputeError> {
        if ids.is_on_host() {
            return Ok(Cow::Borrowed(&ids.host));
        }
        Ok(Cow::Owned(self.read(operation, &ids.ids.slice(..ids.range.len))?))
    }

    /// Allocates a matrix without initialising it; an operation has to write all elements.
    ///
    /// # Errors
    /// When the memory of the device does not suffice.
    pub fn uninitialized(&self, shape: Shape, dtype: Dtype) -> Result<CudaMatrix, ComputeError> {
        checks::allocation(shape, dtype.n_bytes())?;
        let padded = Shape::new(shape.rows, pitch(shape.cols));
        checks::allocation(padded, dtype.n_bytes())?;
        let data = self.allocate::<u8>("zeros", padded.len() * dtype.n_bytes(), || format!("a matrix of {shape}"))?;
        Ok(CudaMatrix { shape, dtype, data })
    }

    /// Allocates uninitialised memory for `len` elements, at least one, in whole words, because NCCL's kernels read
    /// words. `what` names the elements in the error of insufficient memory.
    pub(crate) fn allocate<T: DeviceRepr>(
        &self,
        operation: &'static str,
        len: usize,
        what: impl FnOnce() -> String,
    ) -> Result<Buffer<T>, ComputeError> {
        let allocated = self.device.allocate::<T>(whole_words::<T>(len.max(1))).map_err(|error| match error {
            DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY) => {
                let free = self.device.memory().map_or(0, |(free, _)| free as u64);
                ComputeError::memory(what(), (len * size_of::<T>()) as u64, free)
            }
            error => Self::failed(operation)(error),
        })?;
        self.recorder.allocates(allocated.num_bytes());
        if cfg!(debug_assertions) {
            self.poison(&allocated).map_err(Self::failed(operation))?;
        }
        Ok(allocated)
    }

    /// Fills memory with NaN and invalid ids, so that tests notice reads of uninitialised memory and of padding.
    fn poison<T>(&self, memory: &Buffer<T>) -> Result<(), DriverError> {
        let (address, n_bytes) = (self.pointer(Some(memory)), memory.len() * size_of::<T>());
        // SAFETY: the memory was allocated just now on the same stream, and nobody else knows of it.
        unsafe { cudarc::driver::result::memset_d8_async(address, 0xff, n_bytes, self.device.stream.cu_stream()) }
    }

    /// Allocates scratch memory for the intermediates of an operation.
    pub(crate) fn scratch<T: DeviceRepr>(
        &self,
        operation: &'static str,
        len: usize,
    ) -> Result<Buffer<T>, ComputeError> {
        self.allocate(operation, len, || intermediate(operation))
    }

    /// Uploads a list; for an empty one a zero, because a device allocates no empty memory.
    pub(crate) fn upload_list<T: DeviceRepr + Default>(
        &self,
        operation: &'static str,
        list: &[T],
    ) -> Result<Buffer<T>, ComputeError> {
        self.recorder.obstacle(UPLOADS)?;
        let what = || format!("a list of {} numbers in {operation}", list.len());
        let uploaded = self.allocate::<T>(operation, list.len(), what)?;
        let zero = [T::default()];
        let list = if list.is_empty() { &zero } else { list };
        self.upload_to(operation, list, list.len(), &uploaded.as_view(), list.len())?;
        Ok(uploaded)
    }

    /// Copies `values`, rows of `cols`, to the start of `to`, which is ours to write, on the stream. Rows are `pitch`
    /// elements apart there.
    ///
    /// # Panics
    /// When there is no space for them.
    fn upload_to<T: DeviceRepr>(
        &self,
        operation: &'static str,
        values: &[T],
        cols: usize,
        to: &CudaView<'_, T>,
        pitch: usize,
    ) -> Result<(), ComputeError> {
        assert!(pitch >= cols && values.len().div_ceil(cols.max(1)) * pitch <= to.len(), "room for all values");
        let [row_bytes, pitch_bytes] = [cols, pitch].map(|n| n * size_of::<T>());
        let rows = Rows { address: to.device_ptr(&self.device.stream).0, row_bytes, pitch_bytes };
        self.wait_before_upload(operation, size_of_val(values))?;
        // SAFETY: values are numbers, without padding between them, and there are so many bytes of them.
        let bytes = unsafe { slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) };
        let (staging, stream) = (&self.device.staging, &self.device.stream);
        // Among ranks the device has done all earlier work, so that there is nothing to overlap.
        if self.peers().is_none() && bytes.len() > COPIED_ASIDE && pitch == cols {
            // SAFETY: as below.
            if unsafe { staging.upload_aside(stream, bytes, rows.address) }.map_err(Self::failed(operation))? {
                return Ok(());
            }
        }
        // SAFETY: there is space for all values, which lives for as long as the view and until the stream has done
        // all earlier work.
        unsafe { staging.upload_rows(stream, bytes, rows) }.map_err(Self::failed(operation))
    }

    /// Waits before an upload among ranks, if the driver would wait for the stream. That wait might never end,
    /// because the stream may wait for a rank that has failed.
    pub(crate) fn wait_before_upload(&self, operation: &'static str, n_bytes: usize) -> Result<(), ComputeError> {
        if self.peers().is_some() && n_bytes > COPIED_ASIDE { self.wait(operation) } else { Ok(()) }
    }

    /// Matrix in `f32`: itself, or a converted copy.
    pub(crate) fn as_f32<'a>(&self, x: &'a CudaMatrix) -> Result<InF32<'a>, ComputeError> {
        if x.dtype == Dtype::F32 {
            return Ok(InF32::Same(x));
        }
        let mut copy = self.uninitialized(x.shape, Dtype::F32)?;
        self.convert(x, &mut copy)?;
        Ok(InF32::Copy(copy))
    }

    /// Downloads a view after all earlier work of the device.
    pub(crate) fn read<T: DeviceRepr + Default + Clone>(
        &self,
        operation: &'static str,
        view: &CudaView<'_, T>,
    ) -> Result<Vec<T>, ComputeError> {
        self.recorder.obstacle("waits for the device")?;
        let mut values = vec![T::default(); view.len()];
        if !view.is_empty() {
            if self.peers().is_some() {
                // The copy might wait forever for work of other ranks.
                self.wait(operation)?;
            }
            self.device.stream.memcpy_dtoh(view, &mut values).map_err(Self::failed(operation))?;
            // The driver need not wait for copies to memory that it can address itself.
            self.wait(operation)?;
        }
        Ok(values)
    }

    /// Overwrites all elements of `out` with `values`.
    fn fill(&self, operation: &'static str, values: &[f32], out: &mut CudaMatrix) -> Result<(), ComputeError> {
        if values.is_empty() {
            return Ok(());
        }
        self.recorder.obstacle(UPLOADS)?;
        match out.dtype {
            Dtype::F32 => self.upload_to(operation, values, out.shape.cols, &elements::<f32>(out), out.pitch()),
            Dtype::Bf16 => self.fill_rounded(operation, values, out),
        }
    }

    /// As [`fill`](Self::fill), but for a matrix in bf16: the device rounds, chunk by chunk.
    fn fill_rounded(&self, operation: &'static str, values: &[f32], out: &mut CudaMatrix) -> Result<(), ComputeError> {
        let cols = out.shape.cols;
        let rows_at_once = (UPLOAD_PIECE / cols).max(1).min(out.shape.rows);
        let staged = self.scratch::<f32>(operation, rows_at_once * cols)?;
        for (piece, values) in values.chunks(rows_at_once * cols).enumerate() {
            self.upload_to(operation, values, cols, &staged.as_view(), cols)?;
            let shape = Shape::new(values.len() / cols, cols);
            let start = (piece * rows_at_once * out.pitch()) as u64;
            let staged = Strided { at: self.pointer(Some(&staged)), start: 0, pitch: cols as u64, dtype: Dtype::F32 };
            let to = Strided { at: self.pointer(Some(&out.data)), start, pitch: out.pitch() as u64, dtype: out.dtype };
            // SAFETY: `staged` holds the rows without gaps, and they are rows of `out`, which is ours to write; the
            // stream keeps the next chunk from overwriting `staged` before.
            unsafe { self.copy_rows(operation, shape, staged, to) }?;
        }
        Ok(())
    }
}

/// Matrix in `f32`; see [`Cuda::as_f32`].
pub(crate) enum InF32<'a> {
    Same(&'a CudaMatrix),
    Copy(CudaMatrix),
}

impl Deref for InF32<'_> {
    type Target = CudaMatrix;

    fn deref(&self) -> &CudaMatrix {
        match self {
            Self::Same(matrix) => matrix,
            Self::Copy(matrix) => matrix,
        }
    }
}

/// Elements of a matrix as numbers of their size.
///
/// # Panics
/// When `T` is of another size.
fn elements<T>(matrix: &CudaMatrix) -> CudaView<'_, T> {
    assert_eq!(size_of::<T>(), matrix.dtype.n_bytes(), "a number for each element");
    // SAFETY: every bit pattern is a number, and allocations are aligned for any number.
    unsafe { matrix.data.transmute(matrix.len()) }.expect("a matrix holds its elements")
}

/// Smallest number of elements, at least `len`, that fills words of 32 bits.
fn whole_words<T>(len: usize) -> usize {
    len.next_multiple_of((size_of::<u32>() / size_of::<T>()).max(1))
}

/// Description of an operation's scratch memory in errors.
fn intermediate(operation: &str) -> String {
    format!("intermediate results of {operation}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_allocated_in_words() {
        assert_eq!([1, 4, 6].map(whole_words::<u8>), [4, 4, 8]);
        assert_eq!([1, 2].map(whole_words::<u16>), [2, 2]);
        assert_eq!([1, 3].map(whole_words::<u64>), [1, 3]);
    }

    #[test]
    fn memory_that_does_not_suffice_is_told_of_with_its_use() {
        assert_eq!(
            ComputeError::memory(intermediate("a sparse product"), 300, 200).to_string(),
            "out of memory: intermediate results of a sparse product needs 300 bytes, but the device has 200 free; a smaller \
             width, bf16 or a device with more memory helps"
        );
    }
}
