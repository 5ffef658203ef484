//! [`NormOps`]: layer and batch normalisation.

use crate::{ComputeError, Memory, Shape};

/// Moments of columns for batch normalisation, taken over all rows. A rank may hold only some of these rows.
///
/// Normalisation with them turns `x` into `x̂ = (x - mean) / √(variance + eps)`.
#[derive(Debug)]
pub struct ColumnMoments<'a, M> {
    /// Mean of each column (`1 × d`).
    pub means: &'a M,
    /// Variance of each column (`1 × d`), biased: the mean squared deviation.
    pub variances: &'a M,
    /// Constant added to the variances before the square root.
    pub eps: f32,
}

impl<M> ColumnMoments<'_, M> {
    /// Names and shapes of the two moments, for [`checks`](crate::checks).
    pub(crate) fn shapes<B: Memory<Matrix = M>>(&self, backend: &B) -> [(&'static str, Shape); 2] {
        [("means", backend.shape(self.means)), ("variances", backend.shape(self.variances))]
    }
}

/// Layer normalisation along rows and batch normalisation along columns, with their backward passes.
pub trait NormOps: Memory {
    /// Layer normalisation (Ba et al., 2016): `out = (x - mean) · rstd · gain + bias` along each row, with
    /// `rstd = 1 / √(variance + eps)`. `x` and `out` are `n × d`; `gain` and `bias` are `1 × d`. Row `i` of `moments`
    /// (`n × 2`) receives the mean and `rstd` of row `i`.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn normalize_rows(
        &self,
        eps: f32,
        x: &Self::Matrix,
        gain_and_bias: (&Self::Matrix, &Self::Matrix),
        out: &mut Self::Matrix,
        moments: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// Backward pass of [`normalize_rows`](Self::normalize_rows). In place, `grad` (`n × d`) becomes the gradient of
    /// `x`. `grads` (`1 × d` each) are overwritten with the gradients of gain and bias.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn normalize_rows_backward(
        &self,
        x: &Self::Matrix,
        gain: &Self::Matrix,
        moments: &Self::Matrix,
        grad: &mut Self::Matrix,
        grads: (&mut Self::Matrix, &mut Self::Matrix),
    ) -> Result<(), ComputeError>;

    /// Column sums of squared deviations: `out` (`1 × d`) becomes the sum of `(x - means)²` over the rows of `x`
    /// (`n × d`). `means` is `1 × d`.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn column_squares(
        &self,
        x: &Self::Matrix,
        means: &Self::Matrix,
        out: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// Batch normalisation (Ioffe and Szegedy, ICML 2015) by given moments: `out = x̂ · gain + bias`. `x` and `out`
    /// are `n × d`; `gain` and `bias` are `1 × d`.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn normalize_columns(
        &self,
        moments: ColumnMoments<'_, Self::Matrix>,
        x: &Self::Matrix,
        gain_and_bias: (&Self::Matrix, &Self::Matrix),
        out: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// Gradient of the gain of [`normalize_columns`](Self::normalize_columns): `out` (`1 × d`) becomes the sum of
    /// `grad · x̂` over rows. `x` and `grad`, the gradient of the result, are `n × d`.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn normalized_products(
        &self,
        moments: ColumnMoments<'_, Self::Matrix>,
        x: &Self::Matrix,
        grad: &Self::Matrix,
        out: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// Backward pass of [`normalize_columns`](Self::normalize_columns), including its moments, in place: `grad`
    /// becomes `gain / √(variance + eps) · (grad - mean of grad - x̂ · mean of grad · x̂)`. `x` and `grad` are
    /// `n × d`, and `gain` is `1 × d`. `means` are the two means of the formula (`1 × d` each), over the same rows as
    /// the moments.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn normalize_columns_backward(
        &self,
        moments: ColumnMoments<'_, Self::Matrix>,
        x: &Self::Matrix,
        gain: &Self::Matrix,
        means: (&Self::Matrix, &Self::Matrix),
        grad: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;
}
