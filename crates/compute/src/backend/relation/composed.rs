//! Operations of [`RelationOps`](super::RelationOps), composed of those of other families: slow, for every backend.

use super::{BasisOperands, runs_of};
use crate::{ComputeError, DenseOps, Dtype, Epilogue, Shape, SparseOps, Transpose};

/// Products of runs, one run after the other.
pub(crate) fn gemm_runs<B: DenseOps + SparseOps>(
    backend: &B,
    runs: &[usize],
    x: &B::Matrix,
    (weights, transpose): (&B::Matrix, Transpose),
    out: &mut B::Matrix,
) -> Result<(), ComputeError> {
    let (of_x, of_out) = (backend.shape(x).cols, backend.shape(out).cols);
    let (k, d) = if transpose == Transpose::No { (of_x, of_out) } else { (of_out, of_x) };
    for (run, n, first) in runs_of(runs) {
        let mut weight = backend.zeros(Shape::new(k, d), backend.dtype(weights))?;
        for row in 0..k {
            backend.copy_block(Shape::new(1, d), weights, (run, row * d), &mut weight, (row, 0))?;
        }
        let x = rows(backend, x, (first, n))?;
        let mut product = backend.zeros(Shape::new(n, of_out), backend.dtype(out))?;
        backend.gemm((&x, Transpose::No), None, (&weight, transpose), Epilogue::default(), &mut product)?;
        backend.copy_block(Shape::new(n, of_out), &product, (0, 0), out, (first, 0))?;
    }
    Ok(())
}

/// Gradients of the weights of runs, one run after the other.
pub(crate) fn gemm_runs_backward<B: DenseOps + SparseOps>(
    backend: &B,
    runs: &[usize],
    x: &B::Matrix,
    grad: &B::Matrix,
    accumulate: bool,
    out: &mut B::Matrix,
) -> Result<(), ComputeError> {
    let (k, d) = (backend.shape(x).cols, backend.shape(grad).cols);
    if !accumulate {
        backend.set_zero(out)?;
    }
    for (run, n, first) in runs_of(runs) {
        let (x, grad) = (rows(backend, x, (first, n))?, rows(backend, grad, (first, n))?);
        let mut sum = backend.zeros(Shape::new(k, d), Dtype::F32)?;
        for row in 0..k {
            backend.copy_block(Shape::new(1, d), out, (run, row * d), &mut sum, (row, 0))?;
        }
        let added = Epilogue { accumulate: true, ..Epilogue::default() };
        backend.gemm((&x, Transpose::Yes), None, (&grad, Transpose::No), added, &mut sum)?;
        for row in 0..k {
            backend.copy_block(Shape::new(1, d), &sum, (row, 0), out, (run, row * d))?;
        }
    }
    Ok(())
}

/// Sums of bases, one basis after the other.
pub(crate) fn basis_rows<B: DenseOps + SparseOps>(
    backend: &B,
    operands: &BasisOperands<'_, B>,
    out: &mut B::Matrix,
) -> Result<(), ComputeError> {
    let bases = Bases::of(backend, operands)?;
    backend.set_zero(out)?;
    for basis in 0..bases.n {
        let (factors, mut rows) = (bases.factors(backend, basis)?, bases.rows(backend, operands, basis)?);
        backend.scale_rows_in_place(&factors, &mut rows)?;
        backend.add_scaled(1.0, &rows, out)?;
    }
    Ok(())
}

/// Gradients of sums of bases, one basis after the other.
pub(crate) fn basis_rows_backward<B: DenseOps + SparseOps>(
    backend: &B,
    operands: &BasisOperands<'_, B>,
    grad: &B::Matrix,
    (coefficients_grad, adds): (&mut B::Matrix, bool),
    (x_grad, x_adds): (&mut B::Matrix, bool),
) -> Result<(), ComputeError> {
    let bases = Bases::of(backend, operands)?;
    let (of_grad, n_rows) = (backend.shape(grad), backend.shape(operands.x).rows);
    let mut dots = backend.zeros(Shape::new(of_grad.rows, bases.n), Dtype::F32)?;
    if !x_adds {
        backend.set_zero(x_grad)?;
    }
    for basis in 0..bases.n {
        let (factors, rows) = (bases.factors(backend, basis)?, bases.rows(backend, operands, basis)?);
        let mut of_basis = backend.zeros(Shape::new(of_grad.rows, 1), Dtype::F32)?;
        backend.sddmm(&operands.pairs.diagonal, &rows, grad, &mut of_basis)?;
        backend.copy_block(backend.shape(&of_basis), &of_basis, (0, 0), &mut dots, (0, basis))?;
        let mut scaled = backend.zeros(of_grad, Dtype::F32)?;
        backend.scale_rows(&factors, (grad, 0), &mut scaled)?;
        let block = Shape::new(n_rows, bases.width);
        let mut sum = backend.zeros(block, Dtype::F32)?;
        backend.copy_block(block, x_grad, (0, basis * bases.width), &mut sum, (0, 0))?;
        backend.scatter_add_rows(&scaled, &operands.pairs.rows, &mut sum)?;
        backend.copy_block(block, &sum, (0, 0), x_grad, (0, basis * bases.width))?;
    }
    if !adds {
        backend.set_zero(coefficients_grad)?;
    }
    backend.scatter_add_rows(&dots, &operands.pairs.relations, coefficients_grad)
}

/// Coefficients of each pair, and sizes of the bases.
struct Bases<M> {
    /// Coefficients, `n_pairs × n`.
    of_pairs: M,
    n: usize,
    width: usize,
}

impl<M> Bases<M> {
    fn of<B: DenseOps<Matrix = M>>(
        backend: &B,
        &BasisOperands { pairs, coefficients, x }: &BasisOperands<'_, B>,
    ) -> Result<Self, ComputeError> {
        let (n, len) = (backend.shape(coefficients).cols, backend.id_range(&pairs.rows).len);
        let mut of_pairs = backend.zeros(Shape::new(len, n), Dtype::F32)?;
        backend.gather_rows(coefficients, &pairs.relations, &mut of_pairs)?;
        Ok(Self { of_pairs, n, width: backend.shape(x).cols / n.max(1) })
    }

    /// Coefficient of a basis for each pair, `n_pairs × 1`.
    fn factors<B: DenseOps<Matrix = M>>(&self, backend: &B, basis: usize) -> Result<M, ComputeError> {
        let shape = Shape::new(backend.shape(&self.of_pairs).rows, 1);
        let mut factors = backend.zeros(shape, Dtype::F32)?;
        backend.copy_block(shape, &self.of_pairs, (0, basis), &mut factors, (0, 0))?;
        Ok(factors)
    }

    /// Rows of a basis for each pair, `n_pairs × width`.
    fn rows<B: DenseOps<Matrix = M>>(
        &self,
        backend: &B,
        &BasisOperands { pairs, x, .. }: &BasisOperands<'_, B>,
        basis: usize,
    ) -> Result<M, ComputeError> {
        let of_all = Shape::new(backend.shape(x).rows, self.width);
        let mut all = backend.zeros(of_all, Dtype::F32)?;
        backend.copy_block(of_all, x, (0, basis * self.width), &mut all, (0, 0))?;
        let mut rows = backend.zeros(Shape::new(backend.shape(&self.of_pairs).rows, self.width), Dtype::F32)?;
        backend.gather_rows(&all, &pairs.rows, &mut rows)?;
        Ok(rows)
    }
}

/// Copies `n` rows of `x`, from row `first` on.
fn rows<B: DenseOps>(backend: &B, x: &B::Matrix, (first, n): (usize, usize)) -> Result<B::Matrix, ComputeError> {
    let shape = Shape::new(n, backend.shape(x).cols);
    let mut out = backend.zeros(shape, backend.dtype(x))?;
    backend.copy_block(shape, x, (first, 0), &mut out, (0, 0))?;
    Ok(out)
}
