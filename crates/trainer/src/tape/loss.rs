//! Losses at the end of a tape. One pass over the logits computes value and gradient.

use girih_compute::{Backend, ComputeError, Epilogue, Shape, Transpose};

use super::targets::{Part, Targets};
use super::{Tape, Var};

/// Result of a forward pass: the mean loss and, in training, the gradients of its operands.
pub struct Loss<B: Backend> {
    pub(super) value: B::Matrix,
    pub(super) grads: Vec<(Var, B::Matrix)>,
}

/// Rows that a loss is taken of, with their weights.
pub(crate) struct LossRows<B: Backend> {
    /// Row ids in the logits.
    pub(crate) ids: B::Ids,
    /// Number of ids.
    pub(crate) n_ids: usize,
    /// Factor of their mean: the share of these rows among all rows of the loss, including those of other ranks.
    pub(crate) share: f32,
    /// Diagonal matrix of each logit row's weight in the gradient; `None` for weights of one.
    pub(crate) weights: Option<B::Sparse>,
}

impl<B: Backend> Loss<B> {
    /// Loss on the host.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn value(&self, backend: &B) -> Result<f32, ComputeError> {
        Ok(backend.download(&self.value)?.data()[0])
    }

    /// Loss on the device, `1 × 1`.
    #[must_use]
    pub fn matrix(&self) -> &B::Matrix {
        &self.value
    }

    /// Buffer of the loss of an evaluation, which has no gradients.
    pub(crate) fn into_value(self) -> B::Matrix {
        debug_assert!(self.grads.is_empty(), "gradients are walked back from, not dropped");
        self.value
    }
}

impl<B: Backend> Tape<'_, B> {
    /// Mean cross-entropy of `logits` over `rows`: softmax for single labels, sigmoids for multiple labels.
    ///
    /// # Errors
    /// On shapes that do not fit, empty `rows`, or when the backend fails.
    pub fn loss(&mut self, logits: Var, targets: &Targets<B>, rows: &B::Ids) -> Result<Loss<B>, ComputeError> {
        let mut value = self.buffer(Shape::new(1, 1))?;
        let mut grad = self.grad_buffer(logits)?;
        match targets {
            Targets::Single(classes) => {
                self.backend().softmax_cross_entropy(self.value(logits), classes, rows, grad.as_mut(), &mut value)?;
            }
            Targets::Multi(wanted) => {
                self.backend().sigmoid_cross_entropy(self.value(logits), wanted, rows, grad.as_mut(), &mut value)?;
            }
        }
        Ok(Loss { value, grads: grad.map(|grad| (logits, grad)).into_iter().collect() })
    }

    /// Mean loss over the nodes of `part`. Each of several ranks contributes its share, and all get the same value.
    ///
    /// # Errors
    /// As [`loss`](Self::loss), or when another rank fails.
    pub fn loss_of(&mut self, logits: Var, targets: &Targets<B>, part: &Part<B>) -> Result<Loss<B>, ComputeError> {
        let Some(ranks) = self.ranks else { return self.loss(logits, targets, &part.rows) };
        let mut mean = if part.n_here > 0 { self.loss(logits, targets, &part.rows)? } else { self.no_loss(logits)? };
        self.weigh(part.n_here as f32 / part.n_all as f32, &mut mean)?;
        ranks.sum(&mut mean.value)?;
        Ok(mean)
    }

    /// Share of `rows` in a mean loss. Row weights apply to the gradients only; the value weighs all rows equally.
    ///
    /// # Errors
    /// As [`loss`](Self::loss).
    pub(crate) fn loss_of_rows(
        &mut self,
        logits: Var,
        targets: &Targets<B>,
        rows: &LossRows<B>,
    ) -> Result<Loss<B>, ComputeError> {
        let mut mean = if rows.n_ids > 0 { self.loss(logits, targets, &rows.ids)? } else { self.no_loss(logits)? };
        if let Some(weights) = &rows.weights {
            for (_, grad) in &mut mean.grads {
                let mut weighed = self.pool.take_like(self.backend, grad)?;
                self.backend.spmm((weights, Transpose::No), None, grad, Epilogue::default(), &mut weighed)?;
                self.pool.give(self.backend, std::mem::replace(grad, weighed));
            }
        }
        if rows.share != 1.0 {
            self.weigh(rows.share, &mut mean)?;
        }
        Ok(mean)
    }

    /// Scales a mean over some rows to its share of the mean over all rows.
    fn weigh(&mut self, share: f32, mean: &mut Loss<B>) -> Result<(), ComputeError> {
        for matrix in std::iter::once(&mut mean.value).chain(mean.grads.iter_mut().map(|(_, grad)| grad)) {
            let mut weighed = self.pool.take_like(self.backend, matrix)?;
            self.backend.scale(share, matrix, &mut weighed)?;
            self.pool.give(self.backend, std::mem::replace(matrix, weighed));
        }
        Ok(())
    }

    /// Zero loss, for no rows.
    fn no_loss(&mut self, logits: Var) -> Result<Loss<B>, ComputeError> {
        let (mut value, mut grad) = (self.buffer(Shape::new(1, 1))?, self.grad_buffer(logits)?);
        self.backend.set_zero(&mut value)?;
        grad.as_mut().map_or(Ok(()), |grad| self.backend.set_zero(grad))?;
        Ok(Loss { value, grads: grad.map(|grad| (logits, grad)).into_iter().collect() })
    }

    /// Mean ranking loss of a batch of `b = n_triples`, plus `decay / 2b` times the sum of squares of `penalized`
    /// (equation 15 of He et al., SIGIR 2020).
    ///
    /// `triples` (`3b × d`) are the users' rows, then those of positive items, then those of negative items.
    /// `penalized` are their embeddings before propagation. Each of several ranks passes some whole triples and some
    /// penalised rows, not necessarily of its triples. All ranks get the same value.
    ///
    /// # Errors
    /// When there are no whole triples, or the backend or another rank fails.
    pub fn ranking_loss(
        &mut self,
        (triples, n_triples): (Var, usize),
        penalized: Var,
        decay: f32,
    ) -> Result<Loss<B>, ComputeError> {
        let mut loss = self.mean_ranking_loss(triples)?;
        if self.ranks.is_some() {
            self.weigh(self.shape(triples).rows as f32 / (3 * n_triples) as f32, &mut loss)?;
        }
        self.penalize(&mut loss, penalized, decay / n_triples as f32)?;
        self.ranks.map_or(Ok(()), |ranks| ranks.sum(&mut loss.value))?;
        Ok(loss)
    }

    /// Adds `weight / 2` times the sum of squares of `penalized` to a loss, which has no gradient of it so far.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn penalize(&mut self, loss: &mut Loss<B>, penalized: Var, weight: f32) -> Result<(), ComputeError> {
        let mut grad = self.grad_buffer(penalized)?;
        self.backend.l2_penalty(weight, self.value(penalized), grad.as_mut(), &mut loss.value)?;
        loss.grads.extend(grad.map(|grad| (penalized, grad)));
        Ok(())
    }

    /// Mean ranking loss of `triples`; zero on a rank without triples.
    fn mean_ranking_loss(&mut self, triples: Var) -> Result<Loss<B>, ComputeError> {
        if self.ranks.is_some() && self.shape(triples).rows == 0 {
            return self.no_loss(triples);
        }
        let (mut value, mut grad) = (self.buffer(Shape::new(1, 1))?, self.grad_buffer(triples)?);
        self.backend.bpr_loss(self.value(triples), grad.as_mut(), &mut value)?;
        Ok(Loss { value, grads: grad.map(|grad| (triples, grad)).into_iter().collect() })
    }

    /// Buffer for the gradient of `var`, if it is needed.
    fn grad_buffer(&mut self, var: Var) -> Result<Option<B::Matrix>, ComputeError> {
        let value = self.nodes[var.0].matrix();
        self.nodes[var.0].needs_grad.then(|| self.pool.take_like(self.backend, value)).transpose()
    }
}
