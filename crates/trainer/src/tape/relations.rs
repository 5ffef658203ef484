//! `linear_runs` and `basis_rows`: products of rows that have types.

use std::borrow::Cow;

use girih_compute::{Backend, BasisOperands, ComputeError, RelationRows, Shape, Transpose};

use super::{BackwardPass, Operation, Tape, Var};

struct LinearRuns<'a> {
    runs: Cow<'a, [usize]>,
    x: Var,
    weights: Var,
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
