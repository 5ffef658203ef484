//! Losses, predictions and rankings on a CUDA device.

use girih_compute::{ComputeError, LossOps};
use girih_graph_format::Csr;

use crate::Cuda;
use crate::{CudaIds, CudaMatrix};

impl LossOps for Cuda {
    fn softmax_cross_entropy(
        &self,
        logits: &CudaMatrix,
        classes: &CudaIds,
        rows: &CudaIds,
        grad: Option<&mut CudaMatrix>,
        loss: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::softmax_cross_entropy(self, logits, classes, rows, grad, loss)
    }

    fn sigmoid_cross_entropy(
        &self,
        logits: &CudaMatrix,
        targets: &CudaMatrix,
        rows: &CudaIds,
        grad: Option<&mut CudaMatrix>,
        loss: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::sigmoid_cross_entropy(self, logits, targets, rows, grad, loss)
    }

    fn argmax_rows(&self, x: &CudaMatrix) -> Result<Vec<u32>, ComputeError> {
        Self::argmax_rows(self, x)
    }

    fn count_correct(&self, x: &CudaMatrix, classes: &CudaIds, rows: &CudaIds) -> Result<u64, ComputeError> {
        Self::count_correct(self, x, classes, rows)
    }

    fn bpr_loss(
        &self,
        triples: &CudaMatrix,
        grad: Option<&mut CudaMatrix>,
        loss: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::bpr_loss(self, triples, grad, loss)
    }

    fn l2_penalty(
        &self,
        weight: f32,
        x: &CudaMatrix,
        grad: Option<&mut CudaMatrix>,
        loss: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::l2_penalty(self, weight, x, grad, loss)
    }

    fn top_k_rows(&self, x: &CudaMatrix, k: usize, excluded: &Csr) -> Result<Vec<u32>, ComputeError> {
        Self::top_k_rows(self, x, k, excluded)
    }
}
