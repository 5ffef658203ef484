//! Losses, predictions and rankings on the CPU.

use girih_graph_format::Csr;

use crate::cpu::element::Element;
use crate::cpu::matrix::typed;
use crate::cpu::{Cpu, CpuIds, CpuMatrix, bpr, elementwise, loss, rows, top_k};
use crate::{ComputeError, DenseOps, Fits, LossOps, checks};

impl LossOps for Cpu {
    fn check_classes(&self, classes: &CpuIds, rows: &CpuIds, n_columns: usize) -> Result<(), ComputeError> {
        checks::classes(&classes.ids, &rows.ids, n_columns)
    }

    fn run_softmax_cross_entropy(
        &self,
        _: Fits,
        logits: &CpuMatrix,
        classes: &CpuIds,
        rows: &CpuIds,
        grad: Option<&mut CpuMatrix>,
        loss: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let counts = loss::multiplicities(&rows.ids, logits.shape().rows);
        let (isa, classes, counts) = (self.machine.isa, &classes.ids[..], &counts[..]);
        let mean = match grad {
            None => {
                typed!(z = logits.storage() => loss::softmax_cross_entropy::<_, f32>(isa, z, classes, counts, None))
            }
            Some(grad) => typed!(z = logits.storage(), grad = grad.storage_mut() =>
                loss::softmax_cross_entropy(isa, z, classes, counts, Some(grad))),
        };
        loss.write_all(&[mean as f32]);
        Ok(())
    }

    fn run_sigmoid_cross_entropy(
        &self,
        _: Fits,
        logits: &CpuMatrix,
        targets: &CpuMatrix,
        rows: &CpuIds,
        grad: Option<&mut CpuMatrix>,
        loss: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let counts = &loss::multiplicities(&rows.ids, logits.shape().rows)[..];
        let (isa, z, targets) = (self.machine.isa, logits.storage(), targets.storage());
        let mean = match grad {
            None => typed!(z = z, t = targets => loss::sigmoid_cross_entropy::<_, _, f32>(isa, z, t, counts, None)),
            Some(grad) => typed!(z = z, t = targets, grad = grad.storage_mut() =>
                loss::sigmoid_cross_entropy(isa, z, t, counts, Some(grad))),
        };
        loss.write_all(&[mean as f32]);
        Ok(())
    }

    fn run_argmax_rows(&self, _: Fits, x: &CpuMatrix) -> Result<Vec<u32>, ComputeError> {
        Ok(typed!(values = x.storage() => rows::argmax(values, x.shape().cols)))
    }

    fn run_count_correct(&self, _: Fits, x: &CpuMatrix, classes: &CpuIds, rows: &CpuIds) -> Result<u64, ComputeError> {
        let cols = x.shape().cols;
        Ok(typed!(values = x.storage() => rows::count_correct(values, cols, &classes.ids, &rows.ids)))
    }

    fn run_bpr_loss(
        &self,
        _: Fits,
        triples: &CpuMatrix,
        grad: Option<&mut CpuMatrix>,
        loss: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let n_triples = triples.shape().rows / 3;
        let mean = match grad {
            None => typed!(rows = triples.storage() => bpr::loss(rows, n_triples)),
            Some(grad) => typed!(rows = triples.storage(), grad = grad.storage_mut() =>
                bpr::loss_with_grad(rows, n_triples, grad)),
        };
        loss.write_all(&[mean as f32]);
        Ok(())
    }

    fn run_l2_penalty(
        &self,
        _: Fits,
        weight: f32,
        x: &CpuMatrix,
        grad: Option<&mut CpuMatrix>,
        loss: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let squares = typed!(x = x.storage() => elementwise::sum_of_squares(x));
        let before = typed!(loss = loss.storage() => f64::from(loss[0].to_f32()));
        loss.write_all(&[(before + f64::from(weight) / 2.0 * squares) as f32]);
        grad.map_or(Ok(()), |grad| self.scale(weight, x, grad))
    }

    fn run_top_k_rows(&self, _: Fits, x: &CpuMatrix, k: usize, excluded: &Csr) -> Result<Vec<u32>, ComputeError> {
        Ok(typed!(values = x.storage() => top_k::rows(values, x.shape().cols, k, excluded)))
    }
}
