//! Allocations, uploads, downloads and shapes on a CUDA device.

use girih_compute::{ComputeError, Dtype, Memory, Shape, SparseOperand};
use girih_graph_format::Matrix;

use crate::Cuda;
use crate::{CudaIds, CudaMatrix, CudaSparse};

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
        Self::resize(matrix, shape)
    }

    fn upload(&self, host: &Matrix, dtype: Dtype) -> Result<CudaMatrix, ComputeError> {
        Self::upload(self, host, dtype)
    }

    fn download(&self, matrix: &CudaMatrix) -> Result<Matrix, ComputeError> {
        Self::download(self, matrix)
    }

    fn write(&self, host: &Matrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::write(self, host, out)
    }

    fn upload_sparse(&self, operand: &SparseOperand<'_>) -> Result<CudaSparse, ComputeError> {
        Self::upload_sparse(self, operand)
    }

    fn upload_ids(&self, ids: &[u32]) -> Result<CudaIds, ComputeError> {
        Self::upload_ids(self, ids)
    }

    fn shape(&self, matrix: &CudaMatrix) -> Shape {
        matrix.shape
    }

    fn dtype(&self, matrix: &CudaMatrix) -> Dtype {
        matrix.dtype
    }

    fn sparse_shape(&self, sparse: &CudaSparse) -> Shape {
        Self::sparse_shape(self, sparse)
    }

    fn nnz(&self, sparse: &CudaSparse) -> usize {
        Self::nnz(self, sparse)
    }

    fn set_zero(&self, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::set_zero(self, out)
    }

    fn zero_ids(&self, len: usize) -> Result<CudaIds, ComputeError> {
        self.recorder.obstacle(OUTLIVES)?;
        Self::zero_ids(self, len)
    }
}
