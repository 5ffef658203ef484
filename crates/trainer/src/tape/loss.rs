//! The losses at the end of a tape; value and gradient come from one pass over the logits.

use girih_compute::{Backend, ComputeError, Shape};

use super::{Tape, Var};
use crate::Targets;

/// The end of a forward pass: the mean loss, and in training the gradient of the logits.
pub struct Loss<B: Backend> {
    pub(super) value: B::Matrix,
    pub(super) logits: Var,
    pub(super) logits_grad: Option<B::Matrix>,
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
        let shape = self.shape(logits);
        let mut grad = if self.needs_grad(logits) { Some(self.buffer(shape)?) } else { None };
        match targets {
            Targets::Single(classes) => {
                self.backend().softmax_cross_entropy(self.value(logits), classes, rows, grad.as_mut(), &mut value)?;
            }
            Targets::Multi(wanted) => {
                self.backend().sigmoid_cross_entropy(self.value(logits), wanted, rows, grad.as_mut(), &mut value)?;
            }
        }
        Ok(Loss { value, logits, logits_grad: grad })
    }

    /// Gives the buffers of a loss that is not walked back from to the pool.
    pub fn discard(&mut self, loss: Loss<B>) {
        self.pool.give(self.backend, loss.value);
        if let Some(grad) = loss.logits_grad {
            self.pool.give(self.backend, grad);
        }
    }
}
