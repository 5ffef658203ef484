//! [`CudaFarRows`]: features in pinned memory of the host, read in place, and the hottest of them on the device, too.
//!
//! A batch reads each of its rows once, by id, in one launch: near ones from the device's memory, far ones over the bus, 45 GB/s of
//! the 51 that copies reach on an H200. Nothing is staged, and no processor of the host takes part.

use std::sync::Arc;

use cudarc::driver::sys::CU_MEMHOSTALLOC_DEVICEMAP;
use cudarc::driver::{CudaSlice, CudaStream, DeviceRepr, LaunchConfig, PinnedHostSlice, PushKernelArg};
use girih_compute::{ComputeError, Dtype, FarRows, HostRows, Shape, checks};
use girih_graph_format::{Matrix, NodeId};
use half::bf16;
use rayon::prelude::*;

use crate::Cuda;
use crate::compile::Source;
use crate::device::BLOCK;
use crate::driver::explain;
use crate::matrix::{CudaIds, CudaMatrix, pitch};

const OPERATION: &str = "rows in memory of the host";
/// The place of a row that is not near; `kernels/rows.cu` says the same.
const FAR: u32 = u32::MAX;
/// Blocks that keep the bus busy, and most of a device free for others.
const BLOCKS: u32 = 132;
/// Rows that a thread of the host writes at a time.
const ROWS_AT_ONCE: usize = 1024;

/// Rows in pinned memory of the host.
struct PinnedRows {
    shape: Shape,
    dtype: Dtype,
    /// Rows as matrices of the device have them.
    memory: PinnedHostSlice<u8>,
    stream: Arc<CudaStream>,
}

/// See the module.
pub(crate) struct CudaFarRows {
    far: Arc<PinnedRows>,
    near: Option<Near>,
}

/// Rows that are on the device, too.
struct Near {
    rows: CudaMatrix,
    /// Of each node, its place among them, or [`FAR`].
    places: CudaSlice<u32>,
}

/// `FarRows` of `kernels/rows.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct FarArgument {
    far: u64,
    places: u64,
    near: u64,
    row_bytes: u64,
}

// SAFETY: plain 64-bit words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for FarArgument {}

impl Cuda {
    /// [`Backend::far_rows`](girih_compute::Backend::far_rows).
    pub(crate) fn far_rows(&self, rows: &Matrix, dtype: Dtype, near: &[NodeId]) -> Result<CudaFarRows, ComputeError> {
        let far = Arc::new(PinnedRows::new(self, rows, dtype)?);
        let near = if near.is_empty() { None } else { Some(self.near(rows, dtype, near)?) };
        Ok(CudaFarRows { far, near })
    }

    fn near(&self, rows: &Matrix, dtype: Dtype, nodes: &[NodeId]) -> Result<Near, ComputeError> {
        let mut places = vec![FAR; rows.n_rows()];
        let mut values = Vec::with_capacity(nodes.len() * rows.n_cols());
        for (place, &node) in nodes.iter().enumerate() {
            places[node as usize] = place as u32;
            values.extend_from_slice(rows.row(node as usize));
        }
        let matrix = Matrix::new(nodes.len(), rows.n_cols(), values)
            .map_err(|error| ComputeError::argument(OPERATION, error.to_string()))?;
        Ok(Near { rows: self.upload(&matrix, dtype)?, places: self.upload_list(OPERATION, &places)? })
    }
}

impl PinnedRows {
    fn new(cuda: &Cuda, rows: &Matrix, dtype: Dtype) -> Result<Self, ComputeError> {
        let shape = Shape::new(rows.n_rows(), rows.n_cols());
        checks::allocation(Shape::new(shape.rows, pitch(shape.cols)), dtype.n_bytes())?;
        let n_bytes = shape.rows * row_bytes(shape.cols, dtype);
        let context = cuda.device.stream.context();
        // SAFETY: all of it is written before it is read.
        let pinned = unsafe { context.alloc_pinned_with_flags::<u8>(n_bytes.max(1), CU_MEMHOSTALLOC_DEVICEMAP) };
        let mut memory = pinned.map_err(|error| {
            let why = explain(error.0);
            let what = format!(
                "the host pins no {n_bytes} bytes for features ({why}); free memory, raise `ulimit -l`, store them in bf16, or \
                 leave the feature cache out where the device has room for all"
            );
            ComputeError::device(OPERATION, what)
        })?;
        write_rows(memory.as_mut_slice().map_err(Cuda::failed(OPERATION))?, rows, dtype);
        Ok(Self { shape, dtype, memory, stream: Arc::clone(&cuda.device.stream) })
    }

    fn bytes(&self) -> &[u8] {
        self.memory.as_slice().expect("the library records no event of memory that a device reads in place")
    }
}

/// Bytes from row to row.
fn row_bytes(cols: usize, dtype: Dtype) -> usize {
    pitch(cols) * dtype.n_bytes()
}

/// Stores rows as matrices of the device have them; what lies between them is zero.
fn write_rows(memory: &mut [u8], rows: &Matrix, dtype: Dtype) {
    let (cols, row_bytes) = (rows.n_cols(), row_bytes(rows.n_cols(), dtype));
    if row_bytes == 0 {
        return;
    }
    memory.par_chunks_mut(row_bytes * ROWS_AT_ONCE).enumerate().for_each(|(piece, memory)| {
        for (at, bytes) in memory.chunks_exact_mut(row_bytes).enumerate() {
            let row = rows.row(piece * ROWS_AT_ONCE + at);
            bytes[cols * dtype.n_bytes()..].fill(0);
            match dtype {
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
fn read_rows(memory: &[u8], cols: usize, dtype: Dtype, out: &mut [f32]) {
    if cols == 0 {
        return;
    }
    for (bytes, row) in memory.chunks_exact(row_bytes(cols, dtype)).zip(out.chunks_exact_mut(cols)) {
        match dtype {
            Dtype::F32 => bytemuck::cast_slice_mut(row).copy_from_slice(&bytes[..cols * 4]),
            Dtype::Bf16 => bytes
                .chunks_exact(2)
                .zip(row)
                .for_each(|(bytes, value)| *value = bf16::from_ne_bytes([bytes[0], bytes[1]]).to_f32()),
        }
    }
}

impl HostRows for PinnedRows {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn read(&self, first: usize, out: &mut [f32]) {
        let memory = &self.bytes()[first * row_bytes(self.shape.cols, self.dtype)..];
        read_rows(memory, self.shape.cols, self.dtype, out);
    }
}

impl Drop for PinnedRows {
    /// Pinned memory is not freed while the device reads it.
    fn drop(&mut self) {
        let _ = self.stream.synchronize();
    }
}

impl FarRows<Cuda> for CudaFarRows {
    fn gather(&self, cuda: &Cuda, ids: &CudaIds, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        let PinnedRows { shape, dtype, memory, .. } = &*self.far;
        checks::gather_rows(*shape, ids.range, out.shape)?;
        if out.dtype != *dtype {
            let what = format!("rows are stored as {}, and wanted as {}", dtype.name(), out.dtype.name());
            return Err(ComputeError::argument(OPERATION, what));
        }
        if out.shape.is_empty() {
            return Ok(());
        }
        let rows = FarArgument {
            // The device knows pinned memory by the host's own addresses.
            far: memory.as_ptr().map_err(Cuda::failed(OPERATION))? as u64,
            places: cuda.pointer(self.near.as_ref().map(|near| &near.places)),
            near: cuda.pointer(self.near.as_ref().map(|near| &near.rows.data)),
            row_bytes: row_bytes(shape.cols, *dtype) as u64,
        };
        let kernel = cuda.kernel(OPERATION, Source::ROWS, "gather_far", &[("X", *dtype), ("Y", *dtype)])?;
        let n = out.shape.rows as u64;
        let mut launch = cuda.device.stream.launch_builder(&kernel);
        launch.arg(&rows).arg(&ids.ids).arg(&mut out.data).arg(&n);
        let config = LaunchConfig { grid_dim: (BLOCKS, 1, 1), block_dim: (BLOCK, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: ids are rows of the far matrix, and their places rows of the near one; `out` has a row for each id, as far apart.
        unsafe { launch.launch(config) }.map_err(Cuda::failed(OPERATION))?;
        Ok(())
    }

    fn on_host(&self) -> Arc<dyn HostRows> {
        Arc::clone(&self.far) as Arc<dyn HostRows>
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
            let mut memory = vec![0xff; 5 * row_bytes(cols, dtype)];
            write_rows(&mut memory, &rows, dtype);
            let mut out = vec![0.0; 3 * cols];
            read_rows(&memory[2 * row_bytes(cols, dtype)..], cols, dtype, &mut out);
            assert_eq!(out, values[2 * cols..]);
        }
    }
}
