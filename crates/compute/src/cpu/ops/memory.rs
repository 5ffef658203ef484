//! Allocations, uploads, downloads and shapes on the CPU.

use girih_graph_format::Matrix;

use crate::checks::IdRange;
use crate::cpu::matrix::typed;
use crate::cpu::{Cpu, CpuIds, CpuMatrix, CpuSparse, elementwise};
use crate::{ComputeError, Dtype, Fits, Memory, Shape, SparseOperand, checks};

impl Memory for Cpu {
    type Matrix = CpuMatrix;
    type Sparse = CpuSparse;
    type Ids = CpuIds;

    fn name(&self) -> String {
        "cpu".to_owned()
    }

    fn zeros(&self, shape: Shape, dtype: Dtype) -> Result<CpuMatrix, ComputeError> {
        checks::allocation(shape, dtype.n_bytes())?;
        Ok(CpuMatrix::zeros(shape, dtype))
    }

    fn resize(&self, matrix: &mut CpuMatrix, shape: Shape) -> bool {
        matrix.resize(shape)
    }

    fn upload(&self, host: &Matrix, dtype: Dtype) -> Result<CpuMatrix, ComputeError> {
        if dtype == Dtype::F32 {
            return Ok(CpuMatrix::shared(host));
        }
        let mut matrix = self.zeros(Shape::new(host.n_rows(), host.n_cols()), dtype)?;
        matrix.write_all(host.data());
        Ok(matrix)
    }

    fn download(&self, matrix: &CpuMatrix) -> Result<Matrix, ComputeError> {
        let Shape { rows, cols } = matrix.shape();
        let mut values = vec![0.0; rows * cols];
        typed!(x = matrix.storage() => elementwise::convert(x, &mut values));
        Matrix::new(rows, cols, values).map_err(|error| ComputeError::argument("download", error.to_string()))
    }

    fn run_write(&self, _: Fits, host: &Matrix, out: &mut CpuMatrix) -> Result<(), ComputeError> {
        out.write_all(host.data());
        Ok(())
    }

    fn write_rows(&self, fill: &(dyn Fn(usize, &mut [f32]) + Sync), out: &mut CpuMatrix) -> Result<(), ComputeError> {
        out.write_rows(fill);
        Ok(())
    }

    fn run_upload_sparse(&self, _: Fits, operand: &SparseOperand<'_>) -> Result<CpuSparse, ComputeError> {
        CpuSparse::new(operand)
    }

    fn upload_ids(&self, ids: &[u32]) -> Result<CpuIds, ComputeError> {
        Ok(CpuIds { ids: ids.to_vec(), range: IdRange::of(ids) })
    }

    fn shape(&self, matrix: &CpuMatrix) -> Shape {
        matrix.shape()
    }

    fn dtype(&self, matrix: &CpuMatrix) -> Dtype {
        matrix.dtype()
    }

    fn sparse_shape(&self, sparse: &CpuSparse) -> Shape {
        sparse.shape()
    }

    fn nnz(&self, sparse: &CpuSparse) -> usize {
        sparse.nnz()
    }

    fn id_range(&self, ids: &CpuIds) -> IdRange {
        ids.range
    }

    fn set_zero(&self, out: &mut CpuMatrix) -> Result<(), ComputeError> {
        typed!(out = out.storage_mut() => elementwise::set_zero(out));
        Ok(())
    }

    fn zero_ids(&self, len: usize) -> Result<CpuIds, ComputeError> {
        checks::allocation(Shape::new(len, 1), size_of::<u32>())?;
        Ok(CpuIds { ids: vec![0; len], range: IdRange { len, end: u64::from(len > 0) } })
    }
}
