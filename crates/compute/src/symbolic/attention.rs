//! Attention over sparse patterns on a symbolic device.

use super::{Symbolic, SymbolicMatrix, SymbolicSparse, cuda};
use crate::{Attention, AttentionGrads, AttentionOps, ComputeError, Fits, Shape};

impl AttentionOps for Symbolic {
    fn run_segment_softmax(
        &self,
        _: Fits,
        _a: &SymbolicSparse,
        scores: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.pass(&[scores, scores]);
        Ok(())
    }

    fn run_segment_softmax_backward(
        &self,
        _: Fits,
        _a: &SymbolicSparse,
        shares: &SymbolicMatrix,
        grad: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.pass(&[shares, grad, grad]);
        Ok(())
    }

    fn run_head_dots(
        &self,
        _: Fits,
        _runs: &[usize],
        x: &SymbolicMatrix,
        _vectors: &SymbolicMatrix,
        out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.pass(&[x, out]);
        Ok(())
    }

    fn run_head_dots_backward(
        &self,
        _: Fits,
        _runs: &[usize],
        (x, _vectors): (&SymbolicMatrix, &SymbolicMatrix),
        grad: &SymbolicMatrix,
        x_grad: Option<&mut SymbolicMatrix>,
        _vector_grads: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.scratch(|| cuda::columns(x.shape));
        self.pass(&[x, grad]);
        if let Some(x_grad) = x_grad {
            self.pass(&[x_grad, x_grad]);
        }
        Ok(())
    }

    fn run_attention(
        &self,
        _: Fits,
        attention: &Attention<'_, Self>,
        out: &mut SymbolicMatrix,
        log_sums: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.scratch(|| {
            let Shape { rows, cols } = attention.values.shape;
            cuda::attention(attention.graph.nnz, attention.heads, cols, rows)
        });
        self.gather(attention.graph.nnz, &[attention.source, attention.values]);
        self.pass(&[attention.destination, out, log_sums]);
        Ok(())
    }

    /// Counts one pass over the pattern and one over its transpose.
    fn run_attention_backward(
        &self,
        _: Fits,
        attention: &Attention<'_, Self>,
        (out, log_sums): (&SymbolicMatrix, &SymbolicMatrix),
        grad: &SymbolicMatrix,
        grads: AttentionGrads<'_, SymbolicMatrix>,
    ) -> Result<(), ComputeError> {
        let nnz = attention.graph.nnz;
        self.need_transpose(attention.graph, true);
        self.scratch(|| cuda::attention_backward(nnz, attention.heads, grad.shape));
        self.gather(nnz, &[attention.source, attention.values, attention.destination, grad, log_sums]);
        self.pass(&[out, grad, grads.destination, grads.source, grads.values]);
        Ok(())
    }
}
