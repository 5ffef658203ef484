//! [`BackwardPass`]: reverse pass over a tape.

use girih_compute::{Activation, Backend, ComputeError, Dtype, Shape};

use super::deferred::DeferredGrads;
use super::params::{Gradients, ParamId, RowGradient};
use super::{Node, Pool, Recorded, Value, Var};

/// State of the reverse pass over a tape, for an [`Operation`](super::Operation).
pub struct BackwardPass<'p, 'a, B: Backend> {
    pub(super) backend: &'a B,
    pub(super) pool: &'p mut Pool<B>,
    pub(super) nodes: Vec<Node<'a, B>>,
    pub(super) grads: Vec<Option<B::Matrix>>,
    pub(super) gradients: &'p mut Gradients<B>,
    pub(super) deferred: Vec<DeferredGrads<B>>,
}

impl<'a, B: Backend> BackwardPass<'_, 'a, B> {
    /// Backend that the tape runs on.
    #[must_use]
    pub fn backend(&self) -> &'a B {
        self.backend
    }

    /// Value of `var` in the forward pass.
    ///
    /// # Panics
    /// When another operation consumed the value as its `add`.
    #[must_use]
    pub fn value(&self, var: Var) -> &B::Matrix {
        self.nodes[var.0].matrix()
    }

    /// Whether the gradient of `var` is needed.
    #[must_use]
    pub fn needs_grad(&self, var: Var) -> bool {
        self.nodes[var.0].needs_grad
    }

    /// Buffer for the gradient of `var`, with its shape and type and unspecified contents. The caller must
    /// [`give`](Self::give) it. For a parameter's first contribution it is the parameter's own gradient buffer, so
    /// contributions must be given in the order in which they were requested.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    ///
    /// # Panics
    /// When another operation consumed the value as its `add`.
    pub fn grad_buffer(&mut self, var: Var) -> Result<B::Matrix, ComputeError> {
        let param = self.nodes[var.0].param;
        match param.filter(|&param| !self.gradients.has_share(param) && !self.gradients.is_out(param)) {
            Some(param) => Ok(self.gradients.take(param).0),
            None => self.pool.take_like(self.backend, self.nodes[var.0].matrix()),
        }
    }

    /// A buffer of `f32` with unspecified contents.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn buffer(&mut self, shape: Shape) -> Result<B::Matrix, ComputeError> {
        self.pool.take(self.backend, shape, Dtype::F32)
    }

    /// As [`grad_buffer`](Self::grad_buffer), but filled with zeros.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    ///
    /// # Panics
    /// When another operation consumed the value as its `add`.
    pub fn zero_grad(&mut self, var: Var) -> Result<B::Matrix, ComputeError> {
        let mut matrix = self.grad_buffer(var)?;
        self.backend.set_zero(&mut matrix)?;
        Ok(matrix)
    }

    /// Epilogue of the operation that made `var`, if `var` has a single consumer and the epilogue an activation. The
    /// consumer may fuse the epilogue's gradient into the product ([`Recorded::backward_of_product`]).
    pub(super) fn next_epilogue(&self, var: Var) -> Option<Recorded> {
        let node = &self.nodes[var.0];
        let operation = node.operation.as_ref().filter(|_| node.n_uses == 1)?;
        operation.epilogue().filter(|epilogue| epilogue.activation != Activation::Identity)
    }

    /// Stores the gradient of `var` with its epilogue's gradient already applied.
    pub(super) fn put_before_epilogue(&mut self, var: Var, grad: B::Matrix) {
        self.nodes[var.0].is_before_epilogue = true;
        self.put(var, grad);
    }

    /// Whether the stored gradient of `var` has its epilogue's gradient applied.
    pub(super) fn is_before_epilogue(&self, var: Var) -> bool {
        self.nodes[var.0].is_before_epilogue
    }

    /// Whether `var` is a model parameter.
    pub(super) fn is_param(&self, var: Var) -> bool {
        self.nodes[var.0].param.is_some()
    }

    /// Returns a buffer to the pool.
    pub fn recycle(&mut self, matrix: B::Matrix) {
        self.pool.give(self.backend, matrix);
    }

    /// Keeps the gradient of some rows of a parameter, for the optimiser.
    pub(super) fn keep_rows(&mut self, param: ParamId, gradient: RowGradient<B>) {
        self.gradients.put_rows(param, gradient);
    }

    /// Lets `write` contribute to the gradient of `var`. The flag tells `write` whether to add to the buffer or to
    /// overwrite it. Does nothing if the gradient is not needed.
    ///
    /// # Errors
    /// When `write` does.
    pub fn with_grad(
        &mut self,
        var: Var,
        write: impl FnOnce(&Self, &mut B::Matrix, bool) -> Result<(), ComputeError>,
    ) -> Result<(), ComputeError> {
        if !self.needs_grad(var) {
            return Ok(());
        }
        let (mut grad, accumulate) = match self.nodes[var.0].param {
            Some(param) => self.gradients.take(param),
            None => match self.grads[var.0].take() {
                Some(grad) => (grad, true),
                None => (self.grad_buffer(var)?, false),
            },
        };
        write(self, &mut grad, accumulate)?;
        self.put(var, grad);
        Ok(())
    }

    /// Adds `grad` to the gradient of `var`, and takes it over.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn give(&mut self, var: Var, grad: B::Matrix) -> Result<(), ComputeError> {
        if !self.needs_grad(var) {
            self.recycle(grad);
            return Ok(());
        }
        let earlier = match self.nodes[var.0].param {
            Some(param) if self.gradients.is_out(param) => None,
            Some(param) => Some(self.gradients.take(param)),
            None => self.grads[var.0].take().map(|sum| (sum, true)),
        };
        let Some((mut sum, has_share)) = earlier else {
            self.put(var, grad);
            return Ok(());
        };
        match has_share {
            true => self.backend.add_scaled(1.0, &grad, &mut sum)?,
            false => self.backend.convert(&grad, &mut sum)?,
        }
        self.recycle(grad);
        self.put(var, sum);
        Ok(())
    }

    fn put(&mut self, var: Var, grad: B::Matrix) {
        match self.nodes[var.0].param {
            Some(param) => self.gradients.put(param, grad),
            None => self.grads[var.0] = Some(grad),
        }
    }

    /// Runs the backward of every operation, last first. Frees the buffers of a node right after its own backward.
    pub(super) fn run(mut self) -> Result<(), ComputeError> {
        for i in (0..self.nodes.len()).rev() {
            let has_deferred_grad = self.deferred_input() == Some(Var(i));
            self.flush_unless_overlapped(Var(i))?;
            if has_deferred_grad {
                let operation =
                    self.nodes[i].operation.take().expect("a deferred gradient is of an operation's result");
                operation.backward_deferred(&mut self, Var(i))?;
            } else if let Some(grad) = self.grads[i].take() {
                match self.nodes[i].operation.take() {
                    Some(operation) => operation.backward(&mut self, Var(i), grad)?,
                    None => self.recycle(grad),
                }
            }
            let shape = Shape::new(0, 0);
            match std::mem::replace(&mut self.nodes[i].value, Value::Moved(shape)) {
                Value::Owned(matrix) => self.recycle(matrix),
                // Deferred gradients may still read weights, which are not freed.
                kept => self.nodes[i].value = kept,
            }
        }
        debug_assert!(self.deferred.is_empty(), "an operation that communicates computes deferred gradients");
        Ok(())
    }
}
