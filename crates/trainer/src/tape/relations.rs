//! `linear_runs`, `block_diagonal` and `basis_rows`: products of rows that have types.

use std::borrow::Cow;

use girih_compute::{Backend, BasisOperands, ComputeError, RelationRows, Shape, Transpose};

use super::{BackwardPass, Operation, Tape, Var};

struct LinearRuns<'a> {
    runs: Cow<'a, [usize]>,
    x: Var,
    weights: Var,
}

struct BlockDiagonal {
    blocks: Var,
    /// Place of each row of the blocks, and of the same elements in the matrices.
    places: Vec<(usize, usize)>,
    width: usize,
}

struct BasisRows<'a, B: Backend> {
    pairs: &'a RelationRows<B>,
    coefficients: Var,
    bases: Var,
}

impl<'a, B: Backend> Tape<'a, B> {
    /// Computes `X·W_r` for the rows of each run `r`. `runs` lists the first row of each run, then the number of rows.
    /// `x` is `n × k`, and row `r` of `weights` has the `k · outputs` elements of `W_r`, row by row.
    ///
    /// # Errors
    /// On shapes that do not fit, or when the backend fails.
    pub fn linear_runs(
        &mut self,
        runs: impl Into<Cow<'a, [usize]>>,
        x: Var,
        weights: Var,
        outputs: usize,
    ) -> Result<Var, ComputeError> {
        let runs = runs.into();
        let mut out = self.activations(Shape::new(self.shape(x).rows, outputs))?;
        self.backend().gemm_runs(&runs, self.value(x), (self.value(weights), Transpose::No), &mut out)?;
        Ok(self.record(out, &[x, weights], LinearRuns { runs, x, weights }))
    }

    /// Matrices that are zero but for `n` blocks along their diagonal, with `outputs` columns. A row of `blocks` has the
    /// blocks of one matrix, one after the other, row by row; a row of the result has all elements of the matrix.
    ///
    /// # Errors
    /// When the backend fails.
    ///
    /// # Panics
    /// When `n` does not divide `outputs`, or the rows of `blocks` are no such blocks.
    pub fn block_diagonal(&mut self, blocks: Var, n: usize, outputs: usize) -> Result<Var, ComputeError> {
        let (shape, width) = (self.shape(blocks), outputs / n);
        let inputs = shape.cols / width;
        assert!(n * width == outputs && inputs * width == shape.cols && inputs.is_multiple_of(n), "blocks of one size");
        let place = |row: usize| (row * width, row * outputs + row / (inputs / n) * width);
        let places: Vec<(usize, usize)> = (0..inputs).map(place).collect();
        let mut out = self.buffer(Shape::new(shape.rows, inputs * outputs))?;
        self.backend().set_zero(&mut out)?;
        let part = Shape::new(shape.rows, width);
        for &(from, to) in &places {
            self.backend().copy_block(part, self.value(blocks), (0, from), &mut out, (0, to))?;
        }
        Ok(self.record(out, &[blocks], BlockDiagonal { blocks, places, width }))
    }

    /// Sums of bases: `Σ_b a[r, b]·V_b[v]` for each pair of a row `v` and a relation `r`. Both operands are parameters:
    /// the coefficients `a` (`R × B`), and the bases side by side, `[V_1 … V_B]`.
    ///
    /// # Errors
    /// On shapes that do not fit, or when the backend fails.
    pub fn basis_rows(
        &mut self,
        (pairs, n_pairs): (&'a RelationRows<B>, usize),
        coefficients: Var,
        bases: Var,
    ) -> Result<Var, ComputeError> {
        let width = self.shape(bases).cols / self.shape(coefficients).cols.max(1);
        let mut out = self.buffer(Shape::new(n_pairs, width))?;
        let operands = BasisOperands { pairs, coefficients: self.value(coefficients), x: self.value(bases) };
        self.backend().basis_rows(&operands, &mut out)?;
        Ok(self.record(out, &[coefficients, bases], BasisRows { pairs, coefficients, bases }))
    }
}

impl<B: Backend> Operation<B> for LinearRuns<'_> {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, _out: Var, grad: B::Matrix) -> Result<(), ComputeError> {
        let Self { runs, x, weights } = self;
        let (x, weights) = (*x, *weights);
        pass.with_grad(weights, |pass, weights_grad, accumulate| {
            pass.backend().gemm_runs_backward(runs, pass.value(x), &grad, accumulate, weights_grad)
        })?;
        if pass.needs_grad(x) {
            let mut x_grad = pass.grad_buffer(x)?;
            pass.backend().gemm_runs(runs, &grad, (pass.value(weights), Transpose::Yes), &mut x_grad)?;
            pass.give(x, x_grad)?;
        }
        pass.recycle(grad);
        Ok(())
    }
}

impl<B: Backend> Operation<B> for BlockDiagonal {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, _out: Var, grad: B::Matrix) -> Result<(), ComputeError> {
        if pass.needs_grad(self.blocks) {
            let mut share = pass.grad_buffer(self.blocks)?;
            let part = Shape::new(pass.backend().shape(&share).rows, self.width);
            for &(from, to) in &self.places {
                pass.backend().copy_block(part, &grad, (0, to), &mut share, (0, from))?;
            }
            pass.give(self.blocks, share)?;
        }
        pass.recycle(grad);
        Ok(())
    }
}

impl<B: Backend> Operation<B> for BasisRows<'_, B> {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, _out: Var, grad: B::Matrix) -> Result<(), ComputeError> {
        let &Self { pairs, coefficients, bases } = self;
        let mut coefficients_grad = pass.grad_buffer(coefficients)?;
        pass.with_grad(bases, |pass, bases_grad, accumulate| {
            let operands = BasisOperands { pairs, coefficients: pass.value(coefficients), x: pass.value(bases) };
            let of_coefficients = (&mut coefficients_grad, false);
            pass.backend().basis_rows_backward(&operands, &grad, of_coefficients, (bases_grad, accumulate))
        })?;
        pass.recycle(grad);
        pass.give(coefficients, coefficients_grad)
    }
}
