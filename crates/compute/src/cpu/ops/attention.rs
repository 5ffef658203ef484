//! Attention over sparse patterns on the CPU.

use crate::cpu::matrix::as_f32;
use crate::cpu::{Cpu, CpuMatrix, CpuSparse, attention, entries, heads};
use crate::{Attention, AttentionGrads, AttentionOps, ComputeError, Fits, Transpose};

impl AttentionOps for Cpu {
    fn run_segment_softmax(&self, _: Fits, a: &CpuSparse, scores: &mut CpuMatrix) -> Result<(), ComputeError> {
        let (direction, heads) = (a.direction(Transpose::No, false), scores.shape().cols);
        scores.write_with(|scores| entries::softmax(direction, heads, scores));
        Ok(())
    }

    fn run_segment_softmax_backward(
        &self,
        _: Fits,
        a: &CpuSparse,
        shares: &CpuMatrix,
        grad: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let (direction, heads) = (a.direction(Transpose::No, false), shares.shape().cols);
        grad.write_with(|grad| entries::softmax_backward(direction, heads, &as_f32(shares), grad));
        Ok(())
    }

    fn run_head_dots(
        &self,
        _: Fits,
        x: &CpuMatrix,
        vector: &CpuMatrix,
        out: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let heads = out.shape().cols;
        out.write_with(|out| heads::dots(&as_f32(x), &as_f32(vector), heads, out));
        Ok(())
    }

    fn run_head_dots_backward(
        &self,
        _: Fits,
        x: &CpuMatrix,
        vector: &CpuMatrix,
        grad: &CpuMatrix,
        x_grad: Option<&mut CpuMatrix>,
        vector_grad: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let (heads, width, grad) = (grad.shape().cols, x.shape().cols, as_f32(grad));
        vector_grad.write_all(&heads::vector_grad(&as_f32(x), &grad, heads, width));
        if let Some(x_grad) = x_grad {
            x_grad.write_with(|x_grad| heads::add_outer(&as_f32(vector), &grad, heads, x_grad));
        }
        Ok(())
    }

    fn run_attention(
        &self,
        _: Fits,
        attention: &Attention<'_, Self>,
        out: &mut CpuMatrix,
        log_sums: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        attention::forward(&self.machine, attention, out, log_sums);
        Ok(())
    }

    fn run_attention_backward(
        &self,
        _: Fits,
        attention: &Attention<'_, Self>,
        (out, log_sums): (&CpuMatrix, &CpuMatrix),
        grad: &CpuMatrix,
        grads: AttentionGrads<'_, CpuMatrix>,
    ) -> Result<(), ComputeError> {
        attention::backward(&self.machine, attention, (out, log_sums), grad, grads);
        Ok(())
    }
}
