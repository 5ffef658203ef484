//! Products with sparse matrices on a symbolic device.

use super::{BlockKind, Symbolic, SymbolicMatrix, SymbolicSparse, cuda, update};
use crate::{ComputeError, Dtype, Epilogue, Fits, Shape, SparseOps, Transpose};

impl SparseOps for Symbolic {
    fn run_spmm(
        &self,
        _: Fits,
        (a, ta): (&SymbolicSparse, Transpose),
        weights: Option<&SymbolicMatrix>,
        x: &SymbolicMatrix,
        epilogue: Epilogue<'_, SymbolicMatrix>,
        out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        if ta == Transpose::Yes {
            self.need_transpose(a, weights.is_some());
        }
        if weights.is_none() {
            self.need_tiles(a, ta == Transpose::Yes);
        }
        self.sparse_product(a, x, (out.shape.rows, out.dtype), epilogue.accumulate);
        Ok(())
    }

    fn run_spmm_columns(
        &self,
        fits: Fits,
        (a, ta): (&SymbolicSparse, Transpose),
        x: &SymbolicMatrix,
        epilogue: Epilogue<'_, SymbolicMatrix>,
        (out, _): (&mut SymbolicMatrix, usize),
    ) -> Result<(), ComputeError> {
        self.run_spmm(fits, (a, ta), None, x, epilogue, out)
    }

    fn run_spmm_in_place(
        &self,
        _: Fits,
        (a, ta): (&SymbolicSparse, Transpose),
        x: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        if ta == Transpose::Yes {
            self.need_transpose(a, false);
        }
        self.need_tiles(a, ta == Transpose::Yes);
        // A device that cannot multiply in place holds a second matrix during the product.
        self.scratch(|| {
            x.n_bytes() as usize
                + cuda::product(Shape::new(x.shape.rows, x.shape.rows), a.nnz, x.shape.cols, [x.dtype; 2])
        });
        self.sparse_product(a, x, (x.shape.rows, x.dtype), false);
        Ok(())
    }

    fn run_sddmm(
        &self,
        _: Fits,
        a: &SymbolicSparse,
        x: &SymbolicMatrix,
        y: &SymbolicMatrix,
        out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.gather(a.nnz, &[y]);
        self.pass(&[x, out]);
        Ok(())
    }
}

impl Symbolic {
    /// Allocates the dense blocks that a sparse product searches for on a CUDA device, once for each direction.
    fn need_tiles(&self, a: &SymbolicSparse, transposed: bool) {
        if self.cuda && !a.weighted {
            let transposed = transposed && !a.symmetric;
            let shape = if transposed { Shape::new(a.shape.cols, a.shape.rows) } else { a.shape };
            a.tiles[usize::from(transposed)].get_or_init(|| {
                let search = || cuda::tiles(shape, a.nnz) + cuda::tile_search(shape, a.nnz);
                self.scratch(|| search().max(cuda::tile_measurement(a.nnz)));
                self.matrix(Shape::new(cuda::tiles(shape, a.nnz).div_ceil(size_of::<u32>()), 1), Dtype::F32)
            });
        }
    }

    /// Counts a sparse product with `x`. Its result has `rows` rows of `dtype` and, if `adds`, is added to the old
    /// contents.
    fn sparse_product(&self, a: &SymbolicSparse, x: &SymbolicMatrix, (rows, dtype): (usize, Dtype), adds: bool) {
        let gathered = (a.nnz * x.row_bytes()) as f64;
        let flops = 2.0 * a.nnz as f64 * x.shape.cols as f64;
        self.scratch(|| cuda::product(Shape::new(rows, x.shape.rows), a.nnz, x.shape.cols, [x.dtype, dtype]));
        let written = (rows * x.shape.cols * dtype.n_bytes()) as u64;
        let [of_operand, of_result] = [a.kind.operand_passes(), BlockKind::result_passes(adds)].map(|n| n as u64);
        let streamed = (of_operand * x.n_bytes() + of_result * written) as f64;
        let seconds = self.speed.gather(a.kind, a.nnz as f64, x.shape.cols, x.dtype)
            + self.speed.operation(streamed, 0.0, x.dtype);
        self.charge(gathered + streamed, flops, seconds);
        update(&self.cost, |cost| cost.product_seconds += seconds);
    }
}
