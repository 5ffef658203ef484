//! Maximum and LSTM over neighbors on the CPU.

use girih_random::Key;

use crate::cpu::matrix::typed;
use crate::cpu::{Cpu, CpuIds, CpuMatrix, CpuSparse, segment_lstm, segment_max};
use crate::{ComputeError, Fits, SegmentOps, Transpose};

impl SegmentOps for Cpu {
    fn run_segment_max(
        &self,
        _: Fits,
        a: &CpuSparse,
        x: &CpuMatrix,
        out: &mut CpuMatrix,
        winners: Option<&mut CpuIds>,
    ) -> Result<(), ComputeError> {
        let (direction, cols) = (a.direction(Transpose::No, false), x.shape().cols);
        let winners = winners.map(|winners| {
            winners.range.end = x.shape().rows as u64;
            &mut winners.ids[..]
        });
        typed!(x = x.storage(), out = out.storage_mut() => segment_max::forward(direction, x, cols, out, winners));
        Ok(())
    }

    fn run_segment_max_backward(
        &self,
        _: Fits,
        a: &CpuSparse,
        winners: &CpuIds,
        grad: &CpuMatrix,
        x_grad: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let (direction, winners, cols) = (a.direction(Transpose::Yes, false), &winners.ids[..], grad.shape().cols);
        typed!(grad = grad.storage(), out = x_grad.storage_mut() =>
            segment_max::backward(direction, winners, grad, cols, out));
        Ok(())
    }

    fn run_segment_lstm(
        &self,
        _: Fits,
        (a, order): (&CpuSparse, Option<Key>),
        inputs: &CpuMatrix,
        weight: &CpuMatrix,
        out: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let pattern = (a.direction(Transpose::No, false).csr, a.names());
        segment_lstm::forward(&self.machine, (pattern, order), inputs, weight, out);
        Ok(())
    }

    fn run_segment_lstm_backward(
        &self,
        _: Fits,
        (a, order): (&CpuSparse, Option<Key>),
        (inputs, weight): (&CpuMatrix, &CpuMatrix),
        grad: &CpuMatrix,
        (inputs_grad, weight_grad): (&mut CpuMatrix, &mut CpuMatrix),
    ) -> Result<(), ComputeError> {
        let pattern = (a.direction(Transpose::No, false).csr, a.names());
        let grads = segment_lstm::Grads { inputs: inputs_grad, weight: weight_grad };
        segment_lstm::backward(&self.machine, (pattern, order), (inputs, weight), grad, grads);
        Ok(())
    }
}
