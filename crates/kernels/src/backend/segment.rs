//! Maximum and LSTM over neighbors on a CUDA device.

use girih_compute::{ComputeError, SegmentOps};
use girih_random::Key;

use crate::Cuda;
use crate::{CudaIds, CudaMatrix, CudaSparse};

impl SegmentOps for Cuda {
    fn segment_max(
        &self,
        a: &CudaSparse,
        x: &CudaMatrix,
        out: &mut CudaMatrix,
        winners: Option<&mut CudaIds>,
    ) -> Result<(), ComputeError> {
        Self::segment_max(self, a, x, out, winners)
    }

    fn segment_max_backward(
        &self,
        a: &CudaSparse,
        winners: &CudaIds,
        grad: &CudaMatrix,
        x_grad: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::segment_max_backward(self, a, winners, grad, x_grad)
    }

    fn segment_lstm(
        &self,
        sequences: (&CudaSparse, Option<Key>),
        inputs: &CudaMatrix,
        weight: &CudaMatrix,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::segment_lstm(self, sequences, inputs, weight, out)
    }

    fn segment_lstm_backward(
        &self,
        sequences: (&CudaSparse, Option<Key>),
        operands: (&CudaMatrix, &CudaMatrix),
        grad: &CudaMatrix,
        grads: (&mut CudaMatrix, &mut CudaMatrix),
    ) -> Result<(), ComputeError> {
        Self::segment_lstm_backward(self, sequences, operands, grad, grads)
    }
}
