//! Maximum and LSTM over neighbors on a symbolic device.

use girih_random::Key;

use super::{Symbolic, SymbolicIds, SymbolicMatrix, SymbolicSparse, cuda};
use crate::{ComputeError, Fits, SegmentOps};

impl SegmentOps for Symbolic {
    fn run_segment_max(
        &self,
        _: Fits,
        a: &SymbolicSparse,
        x: &SymbolicMatrix,
        out: &mut SymbolicMatrix,
        winners: Option<&mut SymbolicIds>,
    ) -> Result<(), ComputeError> {
        self.gather(a.nnz, &[x]);
        self.pass(&[out]);
        if let Some(winners) = winners {
            self.pass(&[&winners.list]);
        }
        Ok(())
    }

    fn run_segment_max_backward(
        &self,
        _: Fits,
        a: &SymbolicSparse,
        winners: &SymbolicIds,
        grad: &SymbolicMatrix,
        x_grad: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.need_transpose(a, false);
        self.gather(a.nnz, &[grad, &winners.list]);
        self.pass(&[x_grad]);
        Ok(())
    }

    fn run_segment_lstm(
        &self,
        _: Fits,
        (a, _): (&SymbolicSparse, Option<Key>),
        inputs: &SymbolicMatrix,
        weight: &SymbolicMatrix,
        out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.scratch(|| cuda::lstm(a, inputs, weight));
        self.gather(a.nnz, &[inputs]);
        self.operation(out.n_bytes() as f64, 2.0 * (a.nnz * weight.shape.len()) as f64, inputs.dtype);
        Ok(())
    }

    fn run_segment_lstm_backward(
        &self,
        _: Fits,
        (a, _): (&SymbolicSparse, Option<Key>),
        (inputs, weight): (&SymbolicMatrix, &SymbolicMatrix),
        grad: &SymbolicMatrix,
        (inputs_grad, _): (&mut SymbolicMatrix, &mut SymbolicMatrix),
    ) -> Result<(), ComputeError> {
        self.need_transpose(a, true);
        self.scratch(|| cuda::lstm_backward(a, inputs, weight));
        // The forward pass again, then one product for the states and one for the weight. Gradients of gates are
        // added to those of their inputs.
        self.gather(2 * a.nnz, &[inputs]);
        let bytes = (grad.n_bytes() + inputs_grad.n_bytes()) as f64;
        self.operation(bytes, 6.0 * (a.nnz * weight.shape.len()) as f64, inputs.dtype);
        Ok(())
    }
}
