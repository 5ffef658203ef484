//! Normalisation of rows, and of columns by moments over all nodes of all ranks.

use girih_compute::{Backend, ColumnMoments, ComputeError, Dtype, Shape};

use super::ranks::Ranks;
use super::{BackwardPass, Operation, Pool, Tape, Var};

/// Epsilon, added to variances before the square root.
const EPS: f32 = 1e-5;

struct NormalizedRows {
    x: Var,
    gain: Var,
    bias: Var,
    moments: Var,
}

struct NormalizedColumns<'a, B: Backend> {
    ranks: Option<&'a Ranks<B>>,
    x: Var,
    gain: Var,
    bias: Var,
    means: Var,
    variances: Var,
}

impl<B: Backend> Tape<'_, B> {
    /// Normalisation of rows: `(x - mean) / √(variance + 10⁻⁵) · gain + bias` with the moments of each row. `gain`
    /// and `bias` are one row.
    ///
    /// # Errors
    /// On shapes that do not fit, or when the backend fails.
    pub fn normalize_rows(&mut self, x: Var, gain: Var, bias: Var) -> Result<Var, ComputeError> {
        let shape = self.shape(x);
        let (mut out, mut moments) = (self.activations(shape)?, self.buffer(Shape::new(shape.rows, 2))?);
        let scales = (self.value(gain), self.value(bias));
        self.backend.normalize_rows(EPS, self.value(x), scales, &mut out, &mut moments)?;
        let moments = self.keep(moments);
        Ok(self.record(out, &[x, gain, bias], NormalizedRows { x, gain, bias, moments }))
    }

    /// Normalisation of columns: `(x - mean) / √(variance + 10⁻⁵) · gain + bias` with the moments of each column.
    /// `gain` and `bias` are one row. On one of several ranks, `x` has a row per local node, and the moments are over
    /// all nodes.
    ///
    /// # Errors
    /// On shapes that do not fit, when the backend or another rank fails, and where ranks share a mini-batch: its
    /// moments are known to none of them.
    pub fn normalize_columns(&mut self, x: Var, gain: Var, bias: Var) -> Result<Var, ComputeError> {
        if self.is_batch_share {
            return Err(ComputeError::argument(
                "normalize_columns",
                "batch normalisation needs the statistics of a whole mini-batch, and each rank sees its own seeds only: \
                 normalise rows (NormAxis::Rows), or train on one rank",
            ));
        }
        let (shape, ranks) = (self.shape(x), self.ranks);
        let (mut out, mut sums) = (self.activations(shape)?, self.buffer(Shape::new(1, shape.cols))?);
        self.backend.column_sums(self.value(x), &mut sums)?;
        let means = mean_of_all(self.backend, self.pool, ranks, &sums, shape.rows)?;
        // Second pass for the squared deviations from the means: squares of the values themselves would cancel.
        self.backend.column_squares(self.value(x), &means, &mut sums)?;
        let variances = mean_of_all(self.backend, self.pool, ranks, &sums, shape.rows)?;
        self.pool.give(self.backend, sums);
        let moments = ColumnMoments { means: &means, variances: &variances, eps: EPS };
        self.backend.normalize_columns(moments, self.value(x), (self.value(gain), self.value(bias)), &mut out)?;
        let (means, variances) = (self.keep(means), self.keep(variances));
        Ok(self.record(out, &[x, gain, bias], NormalizedColumns { ranks, x, gain, bias, means, variances }))
    }
}

/// Mean over all rows of all ranks, from the sums over this rank's `n_here` rows.
fn mean_of_all<B: Backend>(
    backend: &B,
    pool: &mut Pool<B>,
    ranks: Option<&Ranks<B>>,
    sums: &B::Matrix,
    n_here: usize,
) -> Result<B::Matrix, ComputeError> {
    let n_all = ranks.map_or(n_here, |ranks| ranks.plan().n_nodes);
    let mut means = pool.take(backend, backend.shape(sums), Dtype::F32)?;
    backend.scale(1.0 / n_all as f32, sums, &mut means)?;
    ranks.map_or(Ok(()), |ranks| ranks.sum(&mut means))?;
    Ok(means)
}

impl<B: Backend> Operation<B> for NormalizedRows {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, _out: Var, mut grad: B::Matrix) -> Result<(), ComputeError> {
        let (mut of_gain, mut of_bias) = (pass.grad_buffer(self.gain)?, pass.grad_buffer(self.bias)?);
        let (x, gain, moments) = (pass.value(self.x), pass.value(self.gain), pass.value(self.moments));
        pass.backend.normalize_rows_backward(x, gain, moments, &mut grad, (&mut of_gain, &mut of_bias))?;
        pass.give(self.gain, of_gain)?;
        pass.give(self.bias, of_bias)?;
        pass.give(self.x, grad)
    }
}

impl<B: Backend> Operation<B> for NormalizedColumns<'_, B> {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, _out: Var, mut grad: B::Matrix) -> Result<(), ComputeError> {
        let (backend, shape) = (pass.backend, pass.backend.shape(&grad));
        let (mut of_gain, mut of_bias) = (pass.grad_buffer(self.gain)?, pass.grad_buffer(self.bias)?);
        backend.column_sums(&grad, &mut of_bias)?;
        backend.normalized_products(self.moments(pass), pass.value(self.x), &grad, &mut of_gain)?;
        // Gain and bias get this rank's contribution, as every parameter does; the moments depend on all rows.
        let shift = mean_of_all(backend, pass.pool, self.ranks, &of_bias, shape.rows)?;
        let slope = mean_of_all(backend, pass.pool, self.ranks, &of_gain, shape.rows)?;
        let (x, gain) = (pass.value(self.x), pass.value(self.gain));
        backend.normalize_columns_backward(self.moments(pass), x, gain, (&shift, &slope), &mut grad)?;
        pass.recycle(shift);
        pass.recycle(slope);
        pass.give(self.gain, of_gain)?;
        pass.give(self.bias, of_bias)?;
        pass.give(self.x, grad)
    }
}

impl<B: Backend> NormalizedColumns<'_, B> {
    fn moments<'p>(&self, pass: &'p BackwardPass<'_, '_, B>) -> ColumnMoments<'p, B::Matrix> {
        ColumnMoments { means: pass.value(self.means), variances: pass.value(self.variances), eps: EPS }
    }
}
