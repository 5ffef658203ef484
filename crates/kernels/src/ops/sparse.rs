//! Sparse matrices on a device: both directions, and the pattern argument of kernels.

use std::borrow::Cow;

use cudarc::driver::DevicePtr;
use girih_compute::{ComputeError, Shape, Transpose};
use girih_graph_format::{Csr, Transposed};

use crate::abi::{Pattern, SEGMENT};
use crate::buffer::Buffer;
use crate::cuda::Cuda;
use crate::matrix::{CudaCsr, CudaSparse, Hubs, TileCache};

/// Matrix or its transpose, as products read it.
#[derive(Clone, Copy)]
pub(crate) struct Direction<'a> {
    pub(crate) csr: &'a CudaCsr,
    /// Scales of the rows of the result; `None` for ones.
    pub(crate) left: Option<&'a Buffer<f32>>,
    /// Scales of the rows of the operand; `None` for ones.
    pub(crate) right: Option<&'a Buffer<f32>>,
    /// Largest absolute value of the right scales; one if there are none.
    pub(crate) most_right: f32,
}

impl<'a> Direction<'a> {
    /// Entries alone, without scales.
    pub(crate) fn of_pattern(csr: &'a CudaCsr) -> Self {
        Self { csr, left: None, right: None, most_right: 1.0 }
    }
}

impl CudaCsr {
    /// Number of rows and segments, the work items of warps.
    pub(crate) fn n_pieces(&self) -> usize {
        self.shape.rows + self.n_segments()
    }

    /// Number of hubs, rows that are split into segments.
    pub(crate) fn n_hubs(&self) -> usize {
        self.hubs.as_ref().map_or(0, |hubs| hubs.n_rows)
    }

    /// Number of segments of hubs.
    pub(crate) fn n_segments(&self) -> usize {
        self.hubs.as_ref().map_or(0, |hubs| hubs.n_segments)
    }
}

impl Cuda {
    /// Operand for a product with the matrix or its transpose. A symmetric matrix is its own transpose unless
    /// `weighted`: weights that replace its values need not be symmetric.
    pub(crate) fn direction<'a>(
        &self,
        operation: &'static str,
        a: &'a CudaSparse,
        transpose: Transpose,
        weighted: bool,
    ) -> Result<Direction<'a>, ComputeError> {
        let (left, right) = (a.left.as_ref(), a.right.as_ref());
        let [most_left, most_right] = a.most;
        let transposed = |csr| Direction { csr, left: right, right: left, most_right: most_left };
        Ok(match transpose {
            Transpose::No => Direction { csr: &a.forward, left, right, most_right },
            Transpose::Yes if a.symmetric && !weighted => transposed(&a.forward),
            Transpose::Yes => transposed(self.transpose_of(operation, a)?),
        })
    }

    /// Makes the transpose of a matrix, where products with it need one of their own and it is not made yet.
    ///
    /// # Errors
    /// When the device's memory does not suffice, or it fails.
    pub fn prepare_transpose(&self, a: &CudaSparse) -> Result<(), ComputeError> {
        self.direction("prepare_transpose", a, Transpose::Yes, false).map(drop)
    }

    /// Row offsets on the host. If the device made the matrix, this reads them from it and waits.
    pub(crate) fn indptr_of<'a>(
        &self,
        operation: &'static str,
        a: &'a CudaSparse,
    ) -> Result<Cow<'a, [u64]>, ComputeError> {
        match &a.host {
            Some(host) => Ok(Cow::Borrowed(host.indptr())),
            None => self.read(operation, &a.forward.indptr.slice(..=a.forward.shape.rows)).map(Cow::Owned),
        }
    }

    /// Transpose, built on first use: on the host if the matrix is there, else on the device.
    pub(crate) fn transpose_of<'a>(
        &self,
        operation: &'static str,
        a: &'a CudaSparse,
    ) -> Result<&'a CudaCsr, ComputeError> {
        if let Some(transpose) = a.transpose.get() {
            return Ok(transpose);
        }
        // Built outside the lock: a thread that waits inside rayon may take up a task that wants the same transpose.
        let transpose = if let Some(host) = &a.host {
            let Transposed { csr, positions } = host.transposed_with_positions();
            self.upload_csr(operation, &csr, Some(&positions))?
        } else {
            self.transposed_on_device(operation, &(&a.forward).into())?
        };
        Ok(a.transpose.get_or_init(|| transpose))
    }

    pub(super) fn upload_csr(
        &self,
        operation: &'static str,
        csr: &Csr,
        positions: Option<&[u64]>,
    ) -> Result<CudaCsr, ComputeError> {
        Ok(CudaCsr {
            shape: Shape::new(csr.n_rows(), csr.n_cols()),
            nnz: csr.nnz(),
            indptr: self.upload_list(operation, csr.indptr())?,
            indices: self.upload_list(operation, csr.indices())?,
            values: csr.values().map(|values| self.upload_list(operation, values)).transpose()?,
            positions: positions.map(|positions| self.upload_list(operation, positions)).transpose()?,
            hubs: self.upload_hubs(operation, csr.indptr())?,
            tiles: TileCache::default(),
        })
    }

    /// Hubs among the rows with the given offsets; `None` if there are none.
    pub(crate) fn upload_hubs(&self, operation: &'static str, indptr: &[u64]) -> Result<Option<Hubs>, ComputeError> {
        let (mut rows, mut first, mut owner) = (Vec::new(), vec![0], Vec::new());
        for (row, ends) in indptr.windows(2).enumerate() {
            let degree = ends[1] - ends[0];
            if degree > SEGMENT {
                owner.resize(owner.len() + degree.div_ceil(SEGMENT) as usize, rows.len() as u32);
                rows.push(row as u32);
                first.push(owner.len() as u64);
            }
        }
        if rows.is_empty() {
            return Ok(None);
        }
        Ok(Some(Hubs {
            n_rows: rows.len(),
            n_segments: owner.len(),
            rows: self.upload_list(operation, &rows)?,
            first: self.upload_list(operation, &first)?,
            owner: self.upload_list(operation, &owner)?,
        }))
    }

    /// Kernel argument of compressed rows.
    pub(crate) fn pattern(&self, csr: &CudaCsr) -> Pattern {
        let hubs = csr.hubs.as_ref();
        Pattern {
            indptr: self.pointer(Some(&csr.indptr)),
            indices: self.pointer(Some(&csr.indices)),
            positions: self.pointer(csr.positions.as_ref()),
            hub_rows: self.pointer(hubs.map(|hubs| &hubs.rows)),
            hub_first: self.pointer(hubs.map(|hubs| &hubs.first)),
            hub_owner: self.pointer(hubs.map(|hubs| &hubs.owner)),
            n_rows: csr.shape.rows as u64,
            n_hubs: csr.n_hubs() as u64,
            n_segments: csr.n_segments() as u64,
        }
    }

    /// Address of a slice; zero if it is absent. Work that is put on the stream while `slice` lives may use it.
    pub(crate) fn pointer<T>(&self, slice: Option<&Buffer<T>>) -> u64 {
        slice.map_or(0, |slice| slice.device_ptr(&self.device.stream).0)
    }
}

/// Largest absolute value of the scales; one if there are none.
pub(super) fn largest(factors: Option<&[f32]>) -> f32 {
    factors.map_or(1.0, |factors| factors.iter().fold(0.0, |most, factor| factor.abs().max(most)))
}
