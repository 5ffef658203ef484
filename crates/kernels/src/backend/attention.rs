//! Attention over sparse patterns on a CUDA device.

use girih_compute::{Attention, AttentionGrads, AttentionOps, ComputeError};

use crate::Cuda;
use crate::{CudaMatrix, CudaSparse};

impl AttentionOps for Cuda {
    fn segment_softmax(&self, a: &CudaSparse, scores: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::segment_softmax(self, a, scores)
    }

    fn segment_softmax_backward(
        &self,
        a: &CudaSparse,
        shares: &CudaMatrix,
        grad: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::segment_softmax_backward(self, a, shares, grad)
    }

    fn head_dots(&self, x: &CudaMatrix, vector: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::head_dots(self, x, vector, out)
    }

    fn head_dots_backward(
        &self,
        x: &CudaMatrix,
        vector: &CudaMatrix,
        grad: &CudaMatrix,
        x_grad: Option<&mut CudaMatrix>,
        vector_grad: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::head_dots_backward(self, x, vector, grad, x_grad, vector_grad)
    }

    fn attention(
        &self,
        attention: &Attention<'_, Self>,
        out: &mut CudaMatrix,
        log_sums: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::attention(self, attention, out, log_sums)
    }

    fn attention_backward(
        &self,
        attention: &Attention<'_, Self>,
        results: (&CudaMatrix, &CudaMatrix),
        grad: &CudaMatrix,
        grads: AttentionGrads<'_, CudaMatrix>,
    ) -> Result<(), ComputeError> {
        Self::attention_backward(self, attention, results, grad, grads)
    }
}
