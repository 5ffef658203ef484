//! Layer and batch normalisation on the CPU.

use crate::cpu::matrix::as_f32;
use crate::cpu::{Cpu, CpuMatrix, normalize};
use crate::{ColumnMoments, ComputeError, Fits, NormOps};

impl NormOps for Cpu {
    fn run_normalize_rows(
        &self,
        _: Fits,
        eps: f32,
        x: &CpuMatrix,
        (gain, bias): (&CpuMatrix, &CpuMatrix),
        out: &mut CpuMatrix,
        moments: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let (cols, x, gain, bias) = (x.shape().cols, as_f32(x), as_f32(gain), as_f32(bias));
        let operand = normalize::Operand { x: &x, cols, gain: &gain };
        out.write_with(|out| moments.write_with(|moments| normalize::rows(operand, &bias, eps, out, moments)));
        Ok(())
    }

    fn run_normalize_rows_backward(
        &self,
        _: Fits,
        x: &CpuMatrix,
        gain: &CpuMatrix,
        moments: &CpuMatrix,
        grad: &mut CpuMatrix,
        (gain_grad, bias_grad): (&mut CpuMatrix, &mut CpuMatrix),
    ) -> Result<(), ComputeError> {
        let (cols, x, gain, moments) = (x.shape().cols, as_f32(x), as_f32(gain), as_f32(moments));
        let operand = normalize::Operand { x: &x, cols, gain: &gain };
        grad.write_with(|grad| {
            let [of_gain, of_bias] = normalize::rows_backward(operand, &moments, grad);
            gain_grad.write_all(&of_gain);
            bias_grad.write_all(&of_bias);
        });
        Ok(())
    }

    fn run_column_squares(
        &self,
        _: Fits,
        x: &CpuMatrix,
        means: &CpuMatrix,
        out: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        out.write_all(&normalize::squares(&as_f32(x), &as_f32(means)));
        Ok(())
    }

    fn run_normalize_columns(
        &self,
        _: Fits,
        moments: ColumnMoments<'_, CpuMatrix>,
        x: &CpuMatrix,
        (gain, bias): (&CpuMatrix, &CpuMatrix),
        out: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let (cols, x, gain, bias) = (x.shape().cols, as_f32(x), as_f32(gain), as_f32(bias));
        let (means, variances) = (as_f32(moments.means), as_f32(moments.variances));
        let norm = normalize::ColumnNorm::new(&means, &variances, moments.eps);
        out.write_with(|out| norm.apply(normalize::Operand { x: &x, cols, gain: &gain }, &bias, out));
        Ok(())
    }

    fn run_normalized_products(
        &self,
        _: Fits,
        moments: ColumnMoments<'_, CpuMatrix>,
        x: &CpuMatrix,
        grad: &CpuMatrix,
        out: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let (means, variances) = (as_f32(moments.means), as_f32(moments.variances));
        let norm = normalize::ColumnNorm::new(&means, &variances, moments.eps);
        out.write_all(&norm.products(&as_f32(x), x.shape().cols, &as_f32(grad)));
        Ok(())
    }

    fn run_normalize_columns_backward(
        &self,
        _: Fits,
        moments: ColumnMoments<'_, CpuMatrix>,
        x: &CpuMatrix,
        gain: &CpuMatrix,
        (shift, slope): (&CpuMatrix, &CpuMatrix),
        grad: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let (cols, x, gain, shift, slope) = (x.shape().cols, as_f32(x), as_f32(gain), as_f32(shift), as_f32(slope));
        let (means, variances) = (as_f32(moments.means), as_f32(moments.variances));
        let norm = normalize::ColumnNorm::new(&means, &variances, moments.eps);
        let operand = normalize::Operand { x: &x, cols, gain: &gain };
        grad.write_with(|grad| norm.backward(operand, [&shift, &slope], grad));
        Ok(())
    }
}
