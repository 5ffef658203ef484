//! Allocations, uploads, downloads and shapes on the reference backend.

use girih_graph_format::Matrix;

use super::{Entry, RefIds, RefMatrix, RefSparse, Reference};
use crate::checks::IdRange;
use crate::{ComputeError, Dtype, Fits, Memory, Shape, SparseOperand, checks};

impl Memory for Reference {
    type Matrix = RefMatrix;
    type Sparse = RefSparse;
    type Ids = RefIds;

    fn name(&self) -> String {
        "reference".to_owned()
    }

    fn zeros(&self, shape: Shape, dtype: Dtype) -> Result<RefMatrix, ComputeError> {
        checks::allocation(shape, size_of::<f64>())?;
        Ok(RefMatrix::zeros(shape, dtype))
    }

    fn upload(&self, host: &Matrix, dtype: Dtype) -> Result<RefMatrix, ComputeError> {
        let mut matrix = RefMatrix::zeros(Shape::new(host.n_rows(), host.n_cols()), dtype);
        self.write(host, &mut matrix)?;
        Ok(matrix)
    }

    fn download(&self, matrix: &RefMatrix) -> Result<Matrix, ComputeError> {
        let values: Vec<f32> = matrix.data.iter().map(|&v| v as f32).collect();
        Matrix::new(matrix.shape.rows, matrix.shape.cols, values)
            .map_err(|error| ComputeError::argument("download", error.to_string()))
    }

    fn run_write(&self, _: Fits, host: &Matrix, out: &mut RefMatrix) -> Result<(), ComputeError> {
        out.update(|r, c, _| f64::from(host.row(r)[c]));
        Ok(())
    }

    fn run_upload_sparse(&self, _: Fits, operand: &SparseOperand<'_>) -> Result<RefSparse, ComputeError> {
        let SparseOperand { csr, scales, names, .. } = operand;
        let shape = Shape::new(csr.n_rows(), csr.n_cols());
        let (left, right) = (scales.left.as_deref(), scales.right.as_deref());
        let factor = |scale: Option<&[f32]>, i: usize| scale.map_or(1.0, |scale| f64::from(scale[i]));
        let entries = (0..shape.rows).flat_map(|row| {
            csr.row_entries(row).map(move |(col, value)| {
                let col = col as usize;
                Entry { row, col, value: f64::from(value), scale: factor(left, row) * factor(right, col) }
            })
        });
        let indptr = csr.indptr().iter().map(|&offset| offset as usize).collect();
        Ok(RefSparse { shape, entries: entries.collect(), indptr, names: names.clone() })
    }

    fn upload_ids(&self, ids: &[u32]) -> Result<RefIds, ComputeError> {
        Ok(RefIds { ids: ids.to_vec(), range: IdRange::of(ids) })
    }

    fn shape(&self, matrix: &RefMatrix) -> Shape {
        matrix.shape
    }

    fn dtype(&self, matrix: &RefMatrix) -> Dtype {
        matrix.dtype
    }

    fn sparse_shape(&self, sparse: &RefSparse) -> Shape {
        sparse.shape
    }

    fn nnz(&self, sparse: &RefSparse) -> usize {
        sparse.entries.len()
    }

    fn id_range(&self, ids: &RefIds) -> IdRange {
        ids.range
    }

    fn set_zero(&self, out: &mut RefMatrix) -> Result<(), ComputeError> {
        out.update(|_, _, _| 0.0);
        Ok(())
    }

    fn zero_ids(&self, len: usize) -> Result<RefIds, ComputeError> {
        checks::allocation(Shape::new(len, 1), size_of::<u32>())?;
        self.upload_ids(&vec![0; len])
    }
}
