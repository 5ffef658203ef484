//! [`NormOps`]: layer and batch normalisation.

use crate::checks::{self, Checked};
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

/// Layer normalisation along rows and batch normalisation along columns, with their backward passes.
pub trait NormOps: Memory {
    checked! {
        /// Layer normalisation (Ba et al., 2016): `out = (x - mean) · rstd · gain + bias` along each row, with `rstd =
        /// 1 / √(variance + eps)`. `x` and `out` are `n × d`; `gain` and `bias` are `1 × d`. Row `i` of `moments` (`n ×
        /// 2`) receives the mean and `rstd` of row `i`.
        ///
        /// # Errors
        /// On shapes that do not fit.
        fn normalize_rows, run_normalize_rows(
            &self,
            eps: f32,
            x: &Self::Matrix,
            gain_and_bias: (&Self::Matrix, &Self::Matrix),
            out: &mut Self::Matrix,
            moments: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            check_rows(self, "normalize_rows", x, ["gain", "bias"], [gain_and_bias.0, gain_and_bias.1])?;
            check_row_moments(self, x, out, moments)
        }

        /// Backward pass of [`normalize_rows`](Self::normalize_rows). In place, `grad` (`n × d`) becomes the gradient
        /// of `x`. `grads` (`1 × d` each) are overwritten with the gradients of gain and bias.
        ///
        /// # Errors
        /// On shapes that do not fit.
        fn normalize_rows_backward, run_normalize_rows_backward(
            &self,
            x: &Self::Matrix,
            gain: &Self::Matrix,
            moments: &Self::Matrix,
            grad: &mut Self::Matrix,
            grads: (&mut Self::Matrix, &mut Self::Matrix),
        ) -> Result<(), ComputeError> {
            let names = ["gain", "gain_grad", "bias_grad"];
            check_rows(self, "normalize_rows_backward", x, names, [gain, grads.0, grads.1])?;
            check_row_moments(self, x, grad, moments)
        }

        /// Column sums of squared deviations: `out` (`1 × d`) becomes the sum of `(x - means)²` over the rows of `x`
        /// (`n × d`). `means` is `1 × d`.
        ///
        /// # Errors
        /// On shapes that do not fit.
        fn column_squares, run_column_squares(
            &self,
            x: &Self::Matrix,
            means: &Self::Matrix,
            out: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            check_rows(self, "column_squares", x, ["means", "out"], [means, out])
        }

        /// Batch normalisation (Ioffe and Szegedy, ICML 2015) by given moments: `out = x̂ · gain + bias`. `x` and `out`
        /// are `n × d`; `gain` and `bias` are `1 × d`.
        ///
        /// # Errors
        /// On shapes that do not fit.
        fn normalize_columns, run_normalize_columns(
            &self,
            moments: ColumnMoments<'_, Self::Matrix>,
            x: &Self::Matrix,
            gain_and_bias: (&Self::Matrix, &Self::Matrix),
            out: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            const OPERATION: &str = "normalize_columns";
            let rows = [moments.means, moments.variances, gain_and_bias.0, gain_and_bias.1];
            check_rows(self, OPERATION, x, ["means", "variances", "gain", "bias"], rows)?;
            checks::expect(OPERATION, "out", self.shape(out), self.shape(x))
        }

        /// Gradient of the gain of [`normalize_columns`](Self::normalize_columns): `out` (`1 × d`) becomes the sum of
        /// `grad · x̂` over rows. `x` and `grad`, the gradient of the result, are `n × d`.
        ///
        /// # Errors
        /// On shapes that do not fit.
        fn normalized_products, run_normalized_products(
            &self,
            moments: ColumnMoments<'_, Self::Matrix>,
            x: &Self::Matrix,
            grad: &Self::Matrix,
            out: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            const OPERATION: &str = "normalized_products";
            check_rows(self, OPERATION, x, ["means", "variances", "out"], [moments.means, moments.variances, out])?;
            checks::expect(OPERATION, "out", self.shape(grad), self.shape(x))
        }

        /// Backward pass of [`normalize_columns`](Self::normalize_columns), including its moments, in place: `grad`
        /// becomes `gain / √(variance + eps) · (grad - mean of grad - x̂ · mean of grad · x̂)`. `x` and `grad` are `n ×
        /// d`, and `gain` is `1 × d`. `means` are the two means of the formula (`1 × d` each), over the same rows as
        /// the moments.
        ///
        /// # Errors
        /// On shapes that do not fit.
        fn normalize_columns_backward, run_normalize_columns_backward(
            &self,
            moments: ColumnMoments<'_, Self::Matrix>,
            x: &Self::Matrix,
            gain: &Self::Matrix,
            means: (&Self::Matrix, &Self::Matrix),
            grad: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            const OPERATION: &str = "normalize_columns_backward";
            let names = ["means", "variances", "gain", "mean of grad", "mean of products"];
            let rows = [moments.means, moments.variances, gain, means.0, means.1];
            check_rows(self, OPERATION, x, names, rows)?;
            checks::expect(OPERATION, "out", self.shape(grad), self.shape(x))
        }
    }
}

/// Checks that each of the named matrices is one row as wide as `x`.
fn check_rows<B: Memory + ?Sized, const N: usize>(
    device: &B,
    operation: &'static str,
    x: &B::Matrix,
    names: [&'static str; N],
    rows: [&B::Matrix; N],
) -> Checked {
    let expected = Shape::new(1, device.shape(x).cols);
    names.into_iter().zip(rows).try_for_each(|(name, row)| checks::expect(operation, name, device.shape(row), expected))
}

/// Checks that `out` is shaped like `x`, and that `moments` has two columns and the rows of `x`.
fn check_row_moments<B: Memory + ?Sized>(device: &B, x: &B::Matrix, out: &B::Matrix, moments: &B::Matrix) -> Checked {
    checks::expect("normalize_rows", "out", device.shape(out), device.shape(x))?;
    checks::expect("normalize_rows", "moments", device.shape(moments), Shape::new(device.shape(x).rows, 2))
}
