//! Attention over sparse patterns on the CPU.

use crate::cpu::matrix::as_f32;
use crate::cpu::{Cpu, CpuMatrix, CpuSparse, attention, entries, heads};
use crate::{Attention, AttentionGrads, AttentionOps, ComputeError, Transpose, checks};

impl AttentionOps for Cpu {
    fn segment_softmax(&self, a: &CpuSparse, scores: &mut CpuMatrix) -> Result<(), ComputeError> {
        checks::segment_softmax(a.nnz(), scores.shape(), None)?;
        let (direction, heads) = (a.direction(Transpose::No, false), scores.shape().cols);
        scores.write_with(|scores| entries::softmax(direction, heads, scores));
        Ok(())
    }

    fn segment_softmax_backward(
        &self,
        a: &CpuSparse,
        shares: &CpuMatrix,
        grad: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        checks::segment_softmax(a.nnz(), shares.shape(), Some(grad.shape()))?;
        let (direction, heads) = (a.direction(Transpose::No, false), shares.shape().cols);
        grad.write_with(|grad| entries::softmax_backward(direction, heads, &as_f32(shares), grad));
        Ok(())
    }

    fn head_dots(&self, x: &CpuMatrix, vector: &CpuMatrix, out: &mut CpuMatrix) -> Result<(), ComputeError> {
        checks::head_dots(x.shape(), vector.shape(), out.shape())?;
        let heads = out.shape().cols;
        out.write_with(|out| heads::dots(&as_f32(x), &as_f32(vector), heads, out));
        Ok(())
    }

    fn head_dots_backward(
        &self,
        x: &CpuMatrix,
        vector: &CpuMatrix,
        grad: &CpuMatrix,
        x_grad: Option<&mut CpuMatrix>,
        vector_grad: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let x_grad_shape = x_grad.as_deref().map(CpuMatrix::shape);
        checks::head_dots_backward(x.shape(), vector.shape(), grad.shape(), x_grad_shape, vector_grad.shape())?;
        let (heads, width, grad) = (grad.shape().cols, x.shape().cols, as_f32(grad));
        vector_grad.write_all(&heads::vector_grad(&as_f32(x), &grad, heads, width));
        if let Some(x_grad) = x_grad {
            x_grad.write_with(|x_grad| heads::add_outer(&as_f32(vector), &grad, heads, x_grad));
        }
        Ok(())
    }

    fn attention(
        &self,
        attention: &Attention<'_, Self>,
        out: &mut CpuMatrix,
        log_sums: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        checks::attention(&attention::shapes(attention), out.shape(), log_sums.shape())?;
        attention::forward(&self.machine, attention, out, log_sums);
        Ok(())
    }

    fn attention_backward(
        &self,
        attention: &Attention<'_, Self>,
        (out, log_sums): (&CpuMatrix, &CpuMatrix),
        grad: &CpuMatrix,
        grads: AttentionGrads<'_, CpuMatrix>,
    ) -> Result<(), ComputeError> {
        let vector_shape = grads.vector.as_deref().map(CpuMatrix::shape);
        let grad_shapes = checks::AttentionGradShapes {
            destination: grads.destination.shape(),
            source: grads.source.shape(),
            vector: vector_shape,
            values: grads.values.shape(),
        };
        let results = (out.shape(), log_sums.shape());
        checks::attention_backward(&attention::shapes(attention), results, grad.shape(), grad_shapes)?;
        attention::backward(&self.machine, attention, (out, log_sums), grad, grads);
        Ok(())
    }
}
