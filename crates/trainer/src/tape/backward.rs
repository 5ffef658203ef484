//! [`BackwardPass`]: the walk back over a tape.

use girih_compute::{Activation, Backend, ComputeError, Dropout, Dtype, Shape, Transpose};

use super::epilogue::Recorded;
use super::linear::weight_gradient;
use super::{Node, Pool, Value, Var};
use crate::distributed::OverlappedWork;
use crate::params::Gradients;

/// Deferred gradients of weights, `∂W = dropout(X)ᵀ·∂Z` for each operand `X` and its weight `W`. They are computed while
/// the rank waits for rows of other ranks.
pub(super) struct DeferredGrads<B: Backend> {
    pub(super) terms: Vec<(Var, Var)>,
    pub(super) dropout: Option<Dropout>,
    /// `∂Z`, given back to the pool once they are computed.
    pub(super) grad: B::Matrix,
    /// If true, `∂X = ∂Z·Wᵀ` is not computed here: the next distributed aggregate computes it one feature chunk at a time,
    /// so that sending overlaps the product. There is one term, and `X` has a single consumer.
    pub(super) defers_input_grad: bool,
}

impl<B: Backend> DeferredGrads<B> {
    /// Computes the gradients from the values of `nodes`.
    fn compute(
        &self,
        (backend, nodes): (&B, &[Node<'_, B>]),
        gradients: &mut Gradients<B>,
    ) -> Result<(), ComputeError> {
        for &(x, weight) in self.terms.iter().rev() {
            let Node { param: Some(param), needs_grad: true, .. } = nodes[weight.0] else { continue };
            let (mut weight_grad, accumulate) = gradients.take(param);
            weight_gradient(backend, (nodes[x.0].matrix(), self.dropout), &self.grad, &mut weight_grad, accumulate)?;
            gradients.put(param, weight_grad);
        }
        Ok(())
    }
}

/// Deferred gradient `∂Z·Wᵀ` of `y`, as the operation that made `y` computes it.
pub(super) struct DeferredInputGrad<'p, B: Backend> {
    pub(super) dz: &'p B::Matrix,
    pub(super) weight: &'p B::Matrix,
    pub(super) y: &'p B::Matrix,
}

/// The walk back over a tape, as an [`Operation`](super::Operation) sees it.
pub struct BackwardPass<'p, 'a, B: Backend> {
    pub(super) backend: &'a B,
    pub(super) pool: &'p mut Pool<B>,
    pub(super) nodes: Vec<Node<'a, B>>,
    pub(super) grads: Vec<Option<B::Matrix>>,
    pub(super) gradients: &'p mut Gradients<B>,
    pub(super) deferred: Vec<DeferredGrads<B>>,
}

impl<'a, B: Backend> BackwardPass<'_, 'a, B> {
    /// The device that the tape runs on.
    #[must_use]
    pub fn backend(&self) -> &'a B {
        self.backend
    }

    /// The value of `var` in the forward pass.
    ///
    /// # Panics
    /// When it was consumed as the `add` of another operation.
    #[must_use]
    pub fn value(&self, var: Var) -> &B::Matrix {
        self.nodes[var.0].matrix()
    }

    /// Whether anybody wants the gradient of `var`.
    #[must_use]
    pub fn needs_grad(&self, var: Var) -> bool {
        self.nodes[var.0].needs_grad
    }

    /// A buffer for the gradient of `var`, which has to be given to it: of its shape and type, with unspecified
    /// contents. For the first share of a parameter it is the one that its gradient always has, so that shares are given
    /// in the order in which they were asked for.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    ///
    /// # Panics
    /// When the value was consumed as the `add` of another operation.
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

    /// As [`grad_buffer`](Self::grad_buffer), of zeros.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    ///
    /// # Panics
    /// When the value was consumed as the `add` of another operation.
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

    /// Whether `var` is a parameter.
    pub(super) fn is_param(&self, var: Var) -> bool {
        self.nodes[var.0].param.is_some()
    }

    /// Whether gradients of weights may be [deferred](Self::defer) once that of `x` is computed: the backward pass of the
    /// operation that made `x` communicates.
    pub(super) fn may_defer(&self, x: Var) -> bool {
        let operation = self.nodes[x.0].operation.as_ref();
        self.needs_grad(x) && operation.is_some_and(|operation| operation.communicates_in_backward())
    }

    /// Defers gradients of weights until the rank waits for others.
    ///
    /// # Errors
    /// When the backend fails.
    pub(super) fn defer(&mut self, gradients: DeferredGrads<B>) -> Result<(), ComputeError> {
        if gradients.defers_input_grad && self.deferred_input().is_some() {
            self.flush_deferred()?;
        }
        self.deferred.push(gradients);
        Ok(())
    }

    /// The value whose gradient is deferred, if one is.
    fn deferred_input(&self) -> Option<Var> {
        self.deferred.iter().find(|deferred| deferred.defers_input_grad).map(|deferred| deferred.terms[0].0)
    }

    /// Runs `communicate`, which computes the deferred gradients while rows of other ranks travel. It is given the deferred
    /// gradient of an input, if there is one.
    pub(super) fn overlap_with_comm<T>(
        &mut self,
        communicate: impl FnOnce(&'a B, &mut Pool<B>, Option<DeferredInputGrad<'_, B>>, &mut OverlappedWork<'_>) -> T,
    ) -> T {
        let Self { backend, pool, nodes, gradients, deferred, .. } = self;
        let (backend, nodes, deferred) = (*backend, &nodes[..], std::mem::take(deferred));
        let input_grad = deferred.iter().find(|deferred| deferred.defers_input_grad).map(|deferred| {
            let (y, weight) = deferred.terms[0];
            DeferredInputGrad { dz: &deferred.grad, weight: nodes[weight.0].matrix(), y: nodes[y.0].matrix() }
        });
        let done = communicate(backend, pool, input_grad, &mut || {
            deferred.iter().try_for_each(|deferred| deferred.compute((backend, nodes), gradients))
        });
        deferred.into_iter().for_each(|deferred| pool.give(backend, deferred.grad));
        done
    }

    /// Computes all deferred gradients now, without communication to overlap.
    fn flush_deferred(&mut self) -> Result<(), ComputeError> {
        for deferred in std::mem::take(&mut self.deferred) {
            deferred.compute((self.backend, &self.nodes), self.gradients)?;
            if deferred.defers_input_grad {
                let (x, weight) = deferred.terms[0];
                let epilogue = self.next_epilogue(x).expect("an input gradient is deferred because of its epilogue");
                epilogue.backward_of_product(self, x, &deferred.grad, (weight, Transpose::Yes))?;
            }
            self.recycle(deferred.grad);
        }
        Ok(())
    }

    /// Gives a buffer back to the pool.
    pub fn recycle(&mut self, matrix: B::Matrix) {
        self.pool.give(self.backend, matrix);
    }

    /// Lets `write` put a share of the gradient of `var` into its buffer: overwriting it, or adding to it when
    /// the flag says so. Does nothing when nobody wants the gradient.
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

    /// Hands `grad` over as a share of the gradient of `var`.
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

    /// Runs every operation's backward, last first, and frees each node's buffers right after its own.
    pub(super) fn run(mut self) -> Result<(), ComputeError> {
        for i in (0..self.nodes.len()).rev() {
            let (node, deferred) = (&self.nodes[i], self.deferred_input());
            let is_deferred = deferred == Some(Var(i));
            let communicates = node.operation.as_ref().is_some_and(|operation| operation.communicates_in_backward());
            let overlaps = communicates && (is_deferred || (deferred.is_none() && self.grads[i].is_some()));
            // Deferred gradients read values of nodes before this one: they are computed before any of them is freed.
            if !overlaps && (communicates || matches!(node.value, Value::Owned(_))) {
                self.flush_deferred()?;
            }
            if is_deferred {
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
