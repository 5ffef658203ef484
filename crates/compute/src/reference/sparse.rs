//! Products with sparse matrices on the reference backend.

use super::{Entry, RefMatrix, RefSparse, Reference, apply_epilogue, apply_to_columns};
use crate::{ComputeError, Dtype, Epilogue, Fits, Shape, SparseOps, Transpose};

impl SparseOps for Reference {
    fn run_spmm(
        &self,
        _: Fits,
        (a, ta): (&RefSparse, Transpose),
        weights: Option<&RefMatrix>,
        x: &RefMatrix,
        epilogue: Epilogue<'_, RefMatrix>,
        out: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        let product = a.times(ta, weights, x, out.shape.rows);
        apply_epilogue(&epilogue, out, |r, c| product.get(r, c));
        Ok(())
    }

    fn run_spmm_columns(
        &self,
        _: Fits,
        (a, ta): (&RefSparse, Transpose),
        x: &RefMatrix,
        epilogue: Epilogue<'_, RefMatrix>,
        (out, first): (&mut RefMatrix, usize),
    ) -> Result<(), ComputeError> {
        let product = a.times(ta, None, x, out.shape.rows);
        let columns = first..first + x.shape.cols;
        apply_to_columns(&epilogue, (out, columns), |r, c| product.get(r, c - first));
        Ok(())
    }

    fn run_sddmm(
        &self,
        _: Fits,
        a: &RefSparse,
        x: &RefMatrix,
        y: &RefMatrix,
        out: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        let (heads, width) = (out.shape.cols, x.shape.cols);
        out.update(|e, h, _| {
            let Entry { row, col, scale, .. } = a.entries[e];
            scale * (h..width).step_by(heads).map(|c| x.get(row, c) * y.get(col, c)).sum::<f64>()
        });
        Ok(())
    }
}

impl RefSparse {
    /// Returns `op(L·A·R)·X` (`n_rows × x.cols`). `weights` (`nnz × heads`) replace the values if given.
    fn times(&self, transpose: Transpose, weights: Option<&RefMatrix>, x: &RefMatrix, n_rows: usize) -> RefMatrix {
        let mut product = RefMatrix::zeros(Shape::new(n_rows, x.shape.cols), Dtype::F32);
        for (e, entry) in self.entries.iter().enumerate() {
            let (to, from) = if transpose == Transpose::No { (entry.row, entry.col) } else { (entry.col, entry.row) };
            for c in 0..x.shape.cols {
                let weight = weights.map_or(entry.value, |weights| weights.get(e, c % weights.shape.cols));
                let value = entry.scale * weight;
                product.set(to, c, product.get(to, c) + value * x.get(from, c));
            }
        }
        product
    }
}
