//! Layer and batch normalisation on the CPU.

use crate::cpu::matrix::as_f32;
use crate::cpu::{Cpu, CpuMatrix, normalize};
use crate::{ColumnMoments, ComputeError, NormOps, checks};

impl NormOps for Cpu {
    fn normalize_rows(
        &self,
        eps: f32,
        x: &CpuMatrix,
        (gain, bias): (&CpuMatrix, &CpuMatrix),
        out: &mut CpuMatrix,
        moments: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        checks::per_column("normalize_rows", x.shape(), &[("gain", gain.shape()), ("bias", bias.shape())])?;
        checks::normalize_rows(x.shape(), out.shape(), moments.shape())?;
        let (cols, x, gain, bias) = (x.shape().cols, as_f32(x), as_f32(gain), as_f32(bias));
        let operand = normalize::Operand { x: &x, cols, gain: &gain };
        out.write_with(|out| moments.write_with(|moments| normalize::rows(operand, &bias, eps, out, moments)));
        Ok(())
    }

    fn normalize_rows_backward(
        &self,
        x: &CpuMatrix,
        gain: &CpuMatrix,
        moments: &CpuMatrix,
        grad: &mut CpuMatrix,
        (gain_grad, bias_grad): (&mut CpuMatrix, &mut CpuMatrix),
    ) -> Result<(), ComputeError> {
        let rows = [("gain", gain.shape()), ("gain_grad", gain_grad.shape()), ("bias_grad", bias_grad.shape())];
        checks::per_column("normalize_rows_backward", x.shape(), &rows)?;
        checks::normalize_rows(x.shape(), grad.shape(), moments.shape())?;
        let (cols, x, gain, moments) = (x.shape().cols, as_f32(x), as_f32(gain), as_f32(moments));
        let operand = normalize::Operand { x: &x, cols, gain: &gain };
        grad.write_with(|grad| {
            let [of_gain, of_bias] = normalize::rows_backward(operand, &moments, grad);
            gain_grad.write_all(&of_gain);
            bias_grad.write_all(&of_bias);
        });
        Ok(())
    }

    fn column_squares(&self, x: &CpuMatrix, means: &CpuMatrix, out: &mut CpuMatrix) -> Result<(), ComputeError> {
        checks::per_column("column_squares", x.shape(), &[("means", means.shape()), ("out", out.shape())])?;
        out.write_all(&normalize::squares(&as_f32(x), &as_f32(means)));
        Ok(())
    }

    fn normalize_columns(
        &self,
        moments: ColumnMoments<'_, CpuMatrix>,
        x: &CpuMatrix,
        (gain, bias): (&CpuMatrix, &CpuMatrix),
        out: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let rows = [("gain", gain.shape()), ("bias", bias.shape())];
        checks::per_column("normalize_columns", x.shape(), &[&moments.shapes(self)[..], &rows].concat())?;
        checks::same("normalize_columns", x.shape(), out.shape())?;
        let (cols, x, gain, bias) = (x.shape().cols, as_f32(x), as_f32(gain), as_f32(bias));
        let (means, variances) = (as_f32(moments.means), as_f32(moments.variances));
        let norm = normalize::ColumnNorm::new(&means, &variances, moments.eps);
        out.write_with(|out| norm.apply(normalize::Operand { x: &x, cols, gain: &gain }, &bias, out));
        Ok(())
    }

    fn normalized_products(
        &self,
        moments: ColumnMoments<'_, CpuMatrix>,
        x: &CpuMatrix,
        grad: &CpuMatrix,
        out: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let rows = [("out", out.shape())];
        checks::per_column("normalized_products", x.shape(), &[&moments.shapes(self)[..], &rows].concat())?;
        checks::same("normalized_products", x.shape(), grad.shape())?;
        let (means, variances) = (as_f32(moments.means), as_f32(moments.variances));
        let norm = normalize::ColumnNorm::new(&means, &variances, moments.eps);
        out.write_all(&norm.products(&as_f32(x), x.shape().cols, &as_f32(grad)));
        Ok(())
    }

    fn normalize_columns_backward(
        &self,
        moments: ColumnMoments<'_, CpuMatrix>,
        x: &CpuMatrix,
        gain: &CpuMatrix,
        (shift, slope): (&CpuMatrix, &CpuMatrix),
        grad: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let rows = [("gain", gain.shape()), ("mean of grad", shift.shape()), ("mean of products", slope.shape())];
        let operation = "normalize_columns_backward";
        checks::per_column(operation, x.shape(), &[&moments.shapes(self)[..], &rows].concat())?;
        checks::same(operation, x.shape(), grad.shape())?;
        let (cols, x, gain, shift, slope) = (x.shape().cols, as_f32(x), as_f32(gain), as_f32(shift), as_f32(slope));
        let (means, variances) = (as_f32(moments.means), as_f32(moments.variances));
        let norm = normalize::ColumnNorm::new(&means, &variances, moments.eps);
        let operand = normalize::Operand { x: &x, cols, gain: &gain };
        grad.write_with(|grad| norm.backward(operand, [&shift, &slope], grad));
        Ok(())
    }
}
