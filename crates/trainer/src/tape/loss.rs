//! The losses at the end of a tape; value and gradient come from one pass over the logits.

use girih_compute::{Backend, ComputeError, Dtype, Shape};

use super::{Tape, Var};
use crate::targets::{Part, Targets};

/// The end of a forward pass: the mean loss, and in training the gradients of what it reads.
pub struct Loss<B: Backend> {
    pub(super) value: B::Matrix,
    pub(super) grads: Vec<(Var, B::Matrix)>,
}

impl<B: Backend> Loss<B> {
    /// The loss on the host.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn value(&self, backend: &B) -> Result<f32, ComputeError> {
        Ok(backend.download(&self.value)?.data()[0])
    }

    /// The loss on the device, `1 × 1`.
    #[must_use]
    pub fn matrix(&self) -> &B::Matrix {
        &self.value
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

    /// The mean loss over the nodes of `part`, wherever they are: of several ranks, each gives its share, and all get the
    /// same value.
    ///
    /// # Errors
    /// As [`loss`](Self::loss), or when another rank fails.
    pub fn loss_of(&mut self, logits: Var, targets: &Targets<B>, part: &Part<B>) -> Result<Loss<B>, ComputeError> {
        let Some(ranks) = self.ranks else { return self.loss(logits, targets, &part.rows) };
        let mut mean = if part.n_here > 0 { self.loss(logits, targets, &part.rows)? } else { self.no_loss(logits)? };
        let share = part.n_here as f32 / part.n_all as f32;
        for matrix in std::iter::once(&mut mean.value).chain(mean.grads.iter_mut().map(|(_, grad)| grad)) {
            let mut scaled = self.pool.take(self.backend, self.backend.shape(matrix), Dtype::F32)?;
            self.backend.scale(share, matrix, &mut scaled)?;
            self.pool.give(self.backend, std::mem::replace(matrix, scaled));
        }
        ranks.sum(&mut mean.value)?;
        Ok(mean)
    }

    /// The loss of no rows: zero.
    fn no_loss(&mut self, logits: Var) -> Result<Loss<B>, ComputeError> {
        let (mut value, mut grad) = (self.buffer(Shape::new(1, 1))?, self.grad_buffer(logits)?);
        self.backend.set_zero(&mut value)?;
        grad.as_mut().map_or(Ok(()), |grad| self.backend.set_zero(grad))?;
        Ok(Loss { value, grads: grad.map(|grad| (logits, grad)).into_iter().collect() })
    }

    /// The ranking loss of `triples` (`3b × d`: users, items that they met, items that they did not), and
    /// `decay / 2b` times the sum of squares of `penalized` (equation 15 of He et al., SIGIR 2020).
    ///
    /// # Errors
    /// When there are no whole triples, or when the backend fails.
    pub fn ranking_loss(&mut self, triples: Var, penalized: Var, decay: f32) -> Result<Loss<B>, ComputeError> {
        let weight = 3.0 * decay / self.shape(triples).rows as f32;
        let mut value = self.buffer(Shape::new(1, 1))?;
        let mut grads = [self.grad_buffer(triples)?, self.grad_buffer(penalized)?];
        let [grad, penalty_grad] = &mut grads;
        self.backend().bpr_loss(self.value(triples), grad.as_mut(), &mut value)?;
        self.backend().l2_penalty(weight, self.value(penalized), penalty_grad.as_mut(), &mut value)?;
        let grads = [triples, penalized].into_iter().zip(grads).filter_map(|(var, grad)| Some((var, grad?)));
        Ok(Loss { value, grads: grads.collect() })
    }

    /// A buffer for the gradient of `var`, if anybody wants it.
    fn grad_buffer(&mut self, var: Var) -> Result<Option<B::Matrix>, ComputeError> {
        let shape = self.shape(var);
        self.needs_grad(var).then(|| self.buffer(shape)).transpose()
    }

    /// Gives the buffers of a loss that is not walked back from to the pool.
    pub fn discard(&mut self, loss: Loss<B>) {
        self.pool.give(self.backend, loss.value);
        for (_, grad) in loss.grads {
            self.pool.give(self.backend, grad);
        }
    }
}
