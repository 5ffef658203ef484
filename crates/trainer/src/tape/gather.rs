//! `gather_rows`, `param_rows` and `first_rows`: selected rows of a matrix or parameter, by id or from the start.

use std::sync::Arc;

use girih_compute::{Backend, ComputeError, Shape};

use super::params::{RowGradient, RowIds};
use super::{BackwardPass, Operation, ParamId, Tape, Var};

struct Gathered<'a, B: Backend> {
    x: Var,
    ids: &'a B::Ids,
}

struct First {
    x: Var,
}

struct RowsOfParam<B: Backend> {
    param: ParamId,
    rows: Arc<RowIds<B>>,
}

impl<'a, B: Backend> Tape<'a, B> {
    /// First `n` rows of `x`.
    ///
    /// # Errors
    /// When `x` has fewer rows, or the backend fails.
    pub fn first_rows(&mut self, x: Var, n: usize) -> Result<Var, ComputeError> {
        let shape = Shape::new(n, self.shape(x).cols);
        if shape == self.shape(x) {
            return Ok(x);
        }
        let mut out = self.activations(shape)?;
        self.backend().copy_block(shape, self.value(x), (0, 0), &mut out, (0, 0))?;
        Ok(self.record(out, &[x], First { x }))
    }

    /// Gathers rows: row `i` of the result is row `ids[i]` of `x`. `n_ids` is the number of ids; an id may occur
    /// twice.
    ///
    /// # Errors
    /// When an id is out of range, `n_ids` is wrong, or the backend fails.
    pub fn gather_rows(&mut self, x: Var, ids: &'a B::Ids, n_ids: usize) -> Result<Var, ComputeError> {
        let mut out = self.activations(Shape::new(n_ids, self.shape(x).cols))?;
        self.backend().gather_rows(self.value(x), ids, &mut out)?;
        Ok(self.record(out, &[x], Gathered::<B> { x, ids }))
    }
}

impl<'a, B: Backend> Tape<'a, B> {
    /// Rows of a parameter with a row for each node, each listed once. The pass may read no other rows of it.
    ///
    /// A step changes these rows and their moments alone, and takes time in proportion to their number. Ranks that share a
    /// batch sum gradients of all rows instead.
    ///
    /// # Errors
    /// When an id is out of range, or the backend fails.
    pub fn param_rows(&mut self, param: ParamId, rows: &'a Arc<RowIds<B>>) -> Result<Var, ComputeError> {
        let all = self.param(param);
        if self.shares_batch() {
            return self.gather_rows(all, &rows.ids, rows.n);
        }
        let mut out = self.activations(Shape::new(rows.n, self.shape(all).cols))?;
        self.backend().gather_rows(self.value(all), &rows.ids, &mut out)?;
        Ok(self.record(out, &[all], RowsOfParam { param, rows: Arc::clone(rows) }))
    }
}

impl<B: Backend> Operation<B> for RowsOfParam<B> {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, _out: Var, grad: B::Matrix) -> Result<(), ComputeError> {
        pass.keep_rows(self.param, RowGradient { rows: Arc::clone(&self.rows), grad });
        Ok(())
    }
}

impl<B: Backend> Operation<B> for Gathered<'_, B> {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, _out: Var, grad: B::Matrix) -> Result<(), ComputeError> {
        pass.with_grad(self.x, |pass, x_grad, accumulate| {
            if !accumulate {
                pass.backend().set_zero(x_grad)?;
            }
            pass.backend().scatter_add_rows(&grad, self.ids, x_grad)
        })?;
        pass.recycle(grad);
        Ok(())
    }
}

impl<B: Backend> Operation<B> for First {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, _out: Var, grad: B::Matrix) -> Result<(), ComputeError> {
        pass.with_grad(self.x, |pass, x_grad, accumulate| {
            if !accumulate {
                pass.backend().set_zero(x_grad)?;
            }
            pass.backend().add_scaled(1.0, &grad, x_grad)
        })?;
        pass.recycle(grad);
        Ok(())
    }
}
