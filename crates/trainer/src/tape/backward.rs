//! [`BackwardPass`]: the walk back over a tape.

use girih_compute::{Activation, Backend, ComputeError, Dropout, Dtype, Shape, Transpose};

use super::epilogue::Recorded;
use super::linear::weight_gradient;
use super::{Node, Pool, Value, Var};
use crate::distributed::Beside;
use crate::params::Gradients;

/// Gradients of parameters that are left until the rank waits for others anyway: `dropout(X)ᵀ·∂Z` for each operand `X`
/// and its weight.
pub(super) struct WeightGradients<B: Backend> {
    pub(super) terms: Vec<(Var, Var)>,
    pub(super) dropout: Option<Dropout>,
    /// `∂Z`, which goes back to the pool then.
    pub(super) grad: B::Matrix,
    /// Whether the gradient of the operand, of which there is one, is also left: the product `∂Z·Wᵀ`, its only share,
    /// on its way back through the epilogue that made the operand. Whoever takes it on from there makes it.
    pub(super) leaves_operand: bool,
}

impl<B: Backend> WeightGradients<B> {
    /// Computes them, of values of `nodes`.
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

/// A gradient that was left to whoever takes it back further: `∂Z·Wᵀ`, that of `y`.
pub(super) struct LeftProduct<'p, B: Backend> {
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
    pub(super) put_off: Vec<WeightGradients<B>>,
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

    /// The epilogue whose way back the gradient of `var` goes next, where it has one share alone: whoever computes that
    /// may take it through ([`Recorded::backward_of_product`]).
    pub(super) fn next_epilogue(&self, var: Var) -> Option<Recorded> {
        let node = &self.nodes[var.0];
        let operation = node.operation.as_ref().filter(|_| node.n_uses == 1)?;
        operation.epilogue().filter(|epilogue| epilogue.activation != Activation::Identity)
    }

    /// Puts the gradient of `var` as it is behind its epilogue.
    pub(super) fn put_through(&mut self, var: Var, grad: B::Matrix) {
        self.nodes[var.0].is_through = true;
        self.put(var, grad);
    }

    /// Whether the gradient of `var` has been taken back through its epilogue.
    pub(super) fn is_through(&self, var: Var) -> bool {
        self.nodes[var.0].is_through
    }

    /// Whether `var` is a parameter.
    pub(super) fn is_param(&self, var: Var) -> bool {
        self.nodes[var.0].param.is_some()
    }

    /// Whether gradients of weights may be [put off](Self::put_off) when that of `x` has been given: the way back from
    /// there waits for other ranks.
    pub(super) fn may_put_off(&self, x: Var) -> bool {
        let operation = self.nodes[x.0].operation.as_ref();
        self.needs_grad(x) && operation.is_some_and(|operation| operation.waits_for_others())
    }

    /// Leaves gradients of parameters until the rank waits for others.
    ///
    /// # Errors
    /// When the backend fails.
    pub(super) fn put_off(&mut self, gradients: WeightGradients<B>) -> Result<(), ComputeError> {
        if gradients.leaves_operand && self.left().is_some() {
            self.do_put_off()?;
        }
        self.put_off.push(gradients);
        Ok(())
    }

    /// The value whose gradient was left to be made of what was put off.
    fn left(&self) -> Option<Var> {
        self.put_off.iter().find(|put_off| put_off.leaves_operand).map(|put_off| put_off.terms[0].0)
    }

    /// Lets `wait` wait for other ranks, and do meanwhile what was put off. It is given the gradient that was left, if
    /// one was.
    pub(super) fn waiting<T>(
        &mut self,
        wait: impl FnOnce(&'a B, &mut Pool<B>, Option<LeftProduct<'_, B>>, &mut Beside<'_>) -> T,
    ) -> T {
        let Self { backend, pool, nodes, gradients, put_off, .. } = self;
        let (backend, nodes, put_off) = (*backend, &nodes[..], std::mem::take(put_off));
        let left = put_off.iter().find(|put_off| put_off.leaves_operand).map(|left| {
            let (y, weight) = left.terms[0];
            LeftProduct { dz: &left.grad, weight: nodes[weight.0].matrix(), y: nodes[y.0].matrix() }
        });
        let done = wait(backend, pool, left, &mut || {
            put_off.iter().try_for_each(|put_off| put_off.compute((backend, nodes), gradients))
        });
        put_off.into_iter().for_each(|put_off| pool.give(backend, put_off.grad));
        done
    }

    /// Does what was put off, without a wait, and makes the gradient that was left.
    fn do_put_off(&mut self) -> Result<(), ComputeError> {
        for put_off in std::mem::take(&mut self.put_off) {
            put_off.compute((self.backend, &self.nodes), self.gradients)?;
            if put_off.leaves_operand {
                let (x, weight) = put_off.terms[0];
                let epilogue = self.next_epilogue(x).expect("it was left because of its epilogue");
                epilogue.backward_of_product(self, x, &put_off.grad, (weight, Transpose::Yes))?;
            }
            self.recycle(put_off.grad);
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
            let (node, left) = (&self.nodes[i], self.left());
            let is_left = left == Some(Var(i));
            let waits = node.operation.as_ref().is_some_and(|operation| operation.waits_for_others());
            let does_put_off = waits && (is_left || (left.is_none() && self.grads[i].is_some()));
            // What was put off reads values of nodes before this one: it is done before any of them is freed.
            if !does_put_off && (waits || matches!(node.value, Value::Owned(_))) {
                self.do_put_off()?;
            }
            if is_left {
                let operation = self.nodes[i].operation.take().expect("what is left is the result of an operation");
                operation.backward_of_left(&mut self, Var(i))?;
            } else if let Some(grad) = self.grads[i].take() {
                match self.nodes[i].operation.take() {
                    Some(operation) => operation.backward(&mut self, Var(i), grad)?,
                    None => self.recycle(grad),
                }
            }
            let shape = Shape::new(0, 0);
            match std::mem::replace(&mut self.nodes[i].value, Value::Moved(shape)) {
                Value::Owned(matrix) => self.recycle(matrix),
                // Of what is not freed, weights may still be read by what was put off.
                kept => self.nodes[i].value = kept,
            }
        }
        debug_assert!(self.put_off.is_empty(), "a product that waits does what was put off");
        Ok(())
    }
}
