//! Losses, predictions and rankings on a symbolic device.

use girih_graph_format::Csr;

use super::{Symbolic, SymbolicIds, SymbolicMatrix, cuda};
use crate::{ComputeError, Fits, LossOps, NO_COLUMN};

impl LossOps for Symbolic {
    /// Passes, since there are no values to compare.
    fn check_classes(&self, _classes: &SymbolicIds, _rows: &SymbolicIds, _n: usize) -> Result<(), ComputeError> {
        Ok(())
    }

    fn run_softmax_cross_entropy(
        &self,
        _: Fits,
        logits: &SymbolicMatrix,
        _classes: &SymbolicIds,
        _rows: &SymbolicIds,
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

    fn run_sigmoid_cross_entropy(
        &self,
        _: Fits,
        logits: &SymbolicMatrix,
        targets: &SymbolicMatrix,
        _rows: &SymbolicIds,
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
    fn run_argmax_rows(&self, _: Fits, x: &SymbolicMatrix) -> Result<Vec<u32>, ComputeError> {
        self.scratch(|| x.shape.rows * size_of::<u32>());
        self.pass(&[x]);
        Ok(vec![0; x.shape.rows])
    }

    /// Returns zero, since there are no values to compare.
    fn run_count_correct(
        &self,
        _: Fits,
        x: &SymbolicMatrix,
        _classes: &SymbolicIds,
        _rows: &SymbolicIds,
    ) -> Result<u64, ComputeError> {
        self.pass(&[x]);
        Ok(0)
    }

    fn run_bpr_loss(
        &self,
        _: Fits,
        triples: &SymbolicMatrix,
        grad: Option<&mut SymbolicMatrix>,
        _loss: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.pass(&[triples]);
        grad.iter().for_each(|grad| self.pass(&[grad]));
        Ok(())
    }

    fn run_l2_penalty(
        &self,
        _: Fits,
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
    fn run_top_k_rows(&self, _: Fits, x: &SymbolicMatrix, k: usize, excluded: &Csr) -> Result<Vec<u32>, ComputeError> {
        self.scratch(|| cuda::top_k(x.shape, k, excluded));
        self.pass(&[x]);
        Ok(vec![NO_COLUMN; x.shape.rows * k])
    }
}
