//! Attention over sparse patterns on the CPU.

use crate::cpu::matrix::as_f32;
use crate::cpu::{Cpu, CpuMatrix, CpuSparse, attention, entries, heads};
use crate::{Attention, AttentionGrads, AttentionOps, ComputeError, Fits, Transpose, runs_of};

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
        runs: &[usize],
        x: &CpuMatrix,
        vectors: &CpuMatrix,
        out: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let (heads, width) = (out.shape().cols, x.shape().cols);
        let (x, vectors) = (as_f32(x), as_f32(vectors));
        out.write_with(|out| {
            for (run, n, first) in runs_of(runs) {
                let (rows, vector) = (&x[first * width..][..n * width], &vectors[run * width..][..width]);
                heads::dots(rows, vector, heads, &mut out[first * heads..][..n * heads]);
            }
        });
        Ok(())
    }

    fn run_head_dots_backward(
        &self,
        _: Fits,
        runs: &[usize],
        (x, vectors): (&CpuMatrix, &CpuMatrix),
        grad: &CpuMatrix,
        x_grad: Option<&mut CpuMatrix>,
        vector_grads: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let (heads, width, grad) = (grad.shape().cols, x.shape().cols, as_f32(grad));
        let x = as_f32(x);
        let mut of_vectors = vec![0.0; vectors.shape().len()];
        for (run, n, first) in runs_of(runs) {
            let (rows, grad) = (&x[first * width..][..n * width], &grad[first * heads..][..n * heads]);
            of_vectors[run * width..][..width].copy_from_slice(&heads::vector_grad(rows, grad, heads, width));
        }
        vector_grads.write_all(&of_vectors);
        if let Some(x_grad) = x_grad {
            let vectors = as_f32(vectors);
            x_grad.write_with(|x_grad| {
                for (run, n, first) in runs_of(runs) {
                    let (vector, grad) = (&vectors[run * width..][..width], &grad[first * heads..][..n * heads]);
                    heads::add_outer(vector, grad, heads, &mut x_grad[first * width..][..n * width]);
                }
            });
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
