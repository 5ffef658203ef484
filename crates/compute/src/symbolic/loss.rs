//! Losses, predictions and rankings on a symbolic device.

use girih_graph_format::Csr;

use super::{Symbolic, SymbolicMatrix, cuda};
use crate::{ComputeError, LossOps, NO_COLUMN};

impl LossOps for Symbolic {
    fn softmax_cross_entropy(
        &self,
        logits: &SymbolicMatrix,
        _classes: &SymbolicMatrix,
        _rows: &SymbolicMatrix,
        grad: Option<&mut SymbolicMatrix>,
        _loss: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.scratch(|| logits.shape.rows * size_of::<u32>());
        self.pass(&[logits]);
        if let Some(grad) = grad {
            self.pass(&[grad]);
        }
        Ok(())
    }

    fn sigmoid_cross_entropy(
        &self,
        logits: &SymbolicMatrix,
        targets: &SymbolicMatrix,
        _rows: &SymbolicMatrix,
        grad: Option<&mut SymbolicMatrix>,
        _loss: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.pass(&[logits, targets]);
        if let Some(grad) = grad {
            self.pass(&[grad]);
        }
        Ok(())
    }

    /// Returns zeros, since there are no values to compare.
    fn argmax_rows(&self, x: &SymbolicMatrix) -> Result<Vec<u32>, ComputeError> {
        self.scratch(|| x.shape.rows * size_of::<u32>());
        self.pass(&[x]);
        Ok(vec![0; x.shape.rows])
    }

    /// Returns zero, since there are no values to compare.
    fn count_correct(
        &self,
        x: &SymbolicMatrix,
        _classes: &SymbolicMatrix,
        _rows: &SymbolicMatrix,
    ) -> Result<u64, ComputeError> {
        self.pass(&[x]);
        Ok(0)
    }

    fn bpr_loss(
        &self,
        triples: &SymbolicMatrix,
        grad: Option<&mut SymbolicMatrix>,
        _loss: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.pass(&[triples]);
        grad.iter().for_each(|grad| self.pass(&[grad]));
        Ok(())
    }

    fn l2_penalty(
        &self,
        _weight: f32,
        x: &SymbolicMatrix,
        grad: Option<&mut SymbolicMatrix>,
        _loss: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.pass(&[x]);
        grad.iter().for_each(|grad| self.pass(&[grad]));
        Ok(())
    }

    /// Returns [`NO_COLUMN`] everywhere, since there are no values to compare.
    fn top_k_rows(&self, x: &SymbolicMatrix, k: usize, excluded: &Csr) -> Result<Vec<u32>, ComputeError> {
        self.scratch(|| cuda::top_k(x.shape, k, excluded));
        self.pass(&[x]);
        Ok(vec![NO_COLUMN; x.shape.rows * k])
    }
}
