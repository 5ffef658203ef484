//! Layer and batch normalisation on the reference backend.

use super::{RefMatrix, Reference};
use crate::{ColumnMoments, ComputeError, Fits, NormOps};

impl NormOps for Reference {
    fn run_normalize_rows(
        &self,
        _: Fits,
        eps: f32,
        x: &RefMatrix,
        (gain, bias): (&RefMatrix, &RefMatrix),
        out: &mut RefMatrix,
        moments: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        let n = x.shape.cols as f64;
        for r in 0..x.shape.rows {
            let values = || (0..x.shape.cols).map(|c| x.get(r, c));
            let mean = values().sum::<f64>() / n;
            let variance = values().map(|value| (value - mean).powi(2)).sum::<f64>() / n;
            moments.set(r, 0, mean);
            moments.set(r, 1, 1.0 / (variance + f64::from(eps)).sqrt());
        }
        out.update(|r, c, _| hat_in_row(x, moments, r, c) * gain.get(0, c) + bias.get(0, c));
        Ok(())
    }

    fn run_normalize_rows_backward(
        &self,
        _: Fits,
        x: &RefMatrix,
        gain: &RefMatrix,
        moments: &RefMatrix,
        grad: &mut RefMatrix,
        (gain_grad, bias_grad): (&mut RefMatrix, &mut RefMatrix),
    ) -> Result<(), ComputeError> {
        let old = grad.clone();
        let hat = |r, c| hat_in_row(x, moments, r, c);
        gain_grad.update(|_, c, _| (0..x.shape.rows).map(|r| old.get(r, c) * hat(r, c)).sum());
        bias_grad.update(|_, c, _| (0..x.shape.rows).map(|r| old.get(r, c)).sum());
        let scaled = |r, c| old.get(r, c) * gain.get(0, c);
        let mean = |r, f: &dyn Fn(usize) -> f64| {
            (0..x.shape.cols).map(|c| scaled(r, c) * f(c)).sum::<f64>() / x.shape.cols as f64
        };
        grad.update(|r, c, _| {
            let (shift, slope) = (mean(r, &|_| 1.0), mean(r, &|c| hat(r, c)));
            moments.get(r, 1) * (scaled(r, c) - shift - hat(r, c) * slope)
        });
        Ok(())
    }

    fn run_column_squares(
        &self,
        _: Fits,
        x: &RefMatrix,
        means: &RefMatrix,
        out: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        out.update(|_, c, _| (0..x.shape.rows).map(|r| (x.get(r, c) - means.get(0, c)).powi(2)).sum());
        Ok(())
    }

    fn run_normalize_columns(
        &self,
        _: Fits,
        moments: ColumnMoments<'_, RefMatrix>,
        x: &RefMatrix,
        (gain, bias): (&RefMatrix, &RefMatrix),
        out: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        out.update(|r, c, _| hat_in_column(&moments, x, r, c) * gain.get(0, c) + bias.get(0, c));
        Ok(())
    }

    fn run_normalized_products(
        &self,
        _: Fits,
        moments: ColumnMoments<'_, RefMatrix>,
        x: &RefMatrix,
        grad: &RefMatrix,
        out: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        out.update(|_, c, _| (0..x.shape.rows).map(|r| grad.get(r, c) * hat_in_column(&moments, x, r, c)).sum());
        Ok(())
    }

    fn run_normalize_columns_backward(
        &self,
        _: Fits,
        moments: ColumnMoments<'_, RefMatrix>,
        x: &RefMatrix,
        gain: &RefMatrix,
        (shift, slope): (&RefMatrix, &RefMatrix),
        grad: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        grad.update(|r, c, grad| {
            let centred = grad - shift.get(0, c) - hat_in_column(&moments, x, r, c) * slope.get(0, c);
            gain.get(0, c) * rstd(&moments, c) * centred
        });
        Ok(())
    }
}

/// `x̂` by the moments of its row.
fn hat_in_row(x: &RefMatrix, moments: &RefMatrix, r: usize, c: usize) -> f64 {
    (x.get(r, c) - moments.get(r, 0)) * moments.get(r, 1)
}

/// `x̂` by the moments of its column.
fn hat_in_column(moments: &ColumnMoments<'_, RefMatrix>, x: &RefMatrix, r: usize, c: usize) -> f64 {
    (x.get(r, c) - moments.means.get(0, c)) * rstd(moments, c)
}

fn rstd(moments: &ColumnMoments<'_, RefMatrix>, c: usize) -> f64 {
    1.0 / (moments.variances.get(0, c) + f64::from(moments.eps)).sqrt()
}
