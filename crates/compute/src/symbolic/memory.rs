//! Allocations, uploads, downloads and shapes on a symbolic device.

use girih_graph_format::Matrix;

use super::{Symbolic, SymbolicIds, SymbolicMatrix, SymbolicSparse, cuda};
use crate::checks::IdRange;
use crate::{ComputeError, Dtype, Fits, Memory, Shape, SparseOperand};

impl Memory for Symbolic {
    type Matrix = SymbolicMatrix;
    type Sparse = SymbolicSparse;
    type Ids = SymbolicIds;

    fn name(&self) -> String {
        "plan".to_owned()
    }

    fn activations(&self) -> Dtype {
        self.activations
    }

    fn zeros(&self, shape: Shape, dtype: Dtype) -> Result<SymbolicMatrix, ComputeError> {
        Ok(self.matrix(shape, dtype))
    }

    fn upload(&self, host: &Matrix, dtype: Dtype) -> Result<SymbolicMatrix, ComputeError> {
        Ok(self.uploaded(Shape::new(host.n_rows(), host.n_cols()), dtype))
    }

    fn upload_made(
        &self,
        shape: Shape,
        dtype: Dtype,
        _make: &mut dyn FnMut() -> Vec<f32>,
    ) -> Result<SymbolicMatrix, ComputeError> {
        Ok(self.uploaded(shape, dtype))
    }

    /// Returns zeros, since there are no values.
    fn download(&self, matrix: &SymbolicMatrix) -> Result<Matrix, ComputeError> {
        let Shape { rows, cols } = matrix.shape;
        Matrix::new(rows, cols, vec![0.0; rows * cols]).map_err(|e| ComputeError::argument("download", e.to_string()))
    }

    fn run_write(&self, _: Fits, _host: &Matrix, _out: &mut SymbolicMatrix) -> Result<(), ComputeError> {
        Ok(())
    }

    fn write_made(&self, _make: &mut dyn FnMut() -> Vec<f32>, _out: &mut SymbolicMatrix) -> Result<(), ComputeError> {
        Ok(())
    }

    fn write_rows(
        &self,
        _fill: &(dyn Fn(usize, &mut [f32]) + Sync),
        out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.scratch(|| cuda::upload(out.shape, out.dtype));
        self.pass(&[out]);
        Ok(())
    }

    fn run_upload_sparse(&self, _: Fits, operand: &SparseOperand<'_>) -> Result<SymbolicSparse, ComputeError> {
        let csr = operand.csr;
        let shape = Shape::new(csr.n_rows(), csr.n_cols());
        Ok(self.sparse(shape, csr.nnz(), csr.values().is_some(), operand.symmetric))
    }

    fn upload_ids(&self, ids: &[u32]) -> Result<SymbolicIds, ComputeError> {
        Ok(SymbolicIds { range: IdRange::of(ids), ..self.ids(ids.len()) })
    }

    fn shape(&self, matrix: &SymbolicMatrix) -> Shape {
        matrix.shape
    }

    fn dtype(&self, matrix: &SymbolicMatrix) -> Dtype {
        matrix.dtype
    }

    fn sparse_shape(&self, sparse: &SymbolicSparse) -> Shape {
        sparse.shape
    }

    fn nnz(&self, sparse: &SymbolicSparse) -> usize {
        sparse.nnz
    }

    fn id_range(&self, ids: &SymbolicIds) -> IdRange {
        ids.range
    }

    fn set_zero(&self, out: &mut SymbolicMatrix) -> Result<(), ComputeError> {
        self.pass(&[out]);
        Ok(())
    }

    fn zero_ids(&self, len: usize) -> Result<SymbolicIds, ComputeError> {
        Ok(self.ids(len))
    }
}
