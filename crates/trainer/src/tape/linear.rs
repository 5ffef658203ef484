//! `linear`: dense product with a fused epilogue, `out = mask ⊙ activation(dropout(X)·W + add + bias)`, and
//! `linear_pair`: the sum of two products with such an epilogue.

use girih_compute::{Activation, Backend, ComputeError, Dropout, Epilogue, Shape, Transpose};

use super::deferred::{DeferredGrads, weight_gradient};
use super::{BackwardPass, Operation, Recorded, Tape, Var};

/// Options of a [`Tape::linear`] besides its operand and weight.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinearOptions {
    /// Dropout of the operand ([`Tape::next_dropout`]). The masked operand is never stored, and two products may
    /// share a mask.
    pub dropout: Option<Dropout>,
    /// Bias, `1 × h`, added to every row of the result.
    pub bias: Option<Var>,
    /// Activation applied to the sum.
    pub activation: Activation,
    /// Dropout of the result of ReLU. The stored result determines the gradient, so that its consumer needs no
    /// dropout.
    pub mask: Option<Dropout>,
    /// A result of the same shape without other consumers. The sum is written to its buffer, in place. If the weight
    /// of a concatenation is split into row blocks, `[X ‖ Y]·W` is `linear(X, W₁)` added to `linear(Y, W₂)`.
    pub add: Option<Var>,
}

pub(super) struct Linear {
    /// Pairs of an operand and its weight.
    terms: Vec<(Var, Var)>,
    dropout: Option<Dropout>,
    epilogue: Recorded,
}

impl<B: Backend> Tape<'_, B> {
    /// Computes `mask ⊙ activation(dropout(X)·W + add + bias)` for `x` of shape `n × f` and `weight` of shape `f ×
    /// h`.
    ///
    /// # Errors
    /// On shapes that do not fit, or when the backend fails.
    pub fn linear(&mut self, x: Var, weight: Var, options: LinearOptions) -> Result<Var, ComputeError> {
        let LinearOptions { dropout, bias, activation, mask, add } = options;
        let epilogue = Recorded { bias, activation, mask, add };
        let shape = Shape::new(self.shape(x).rows, self.shape(weight).cols);
        let (mut out, accumulate) = epilogue.target(self, shape)?;
        self.backend().gemm(
            (self.value(x), Transpose::No),
            dropout,
            (self.value(weight), Transpose::No),
            epilogue.on(self, accumulate),
            &mut out,
        )?;
        let operands: Vec<Var> = [x, weight].into_iter().chain(epilogue.operands()).collect();
        Ok(self.record(out, &operands, Linear { terms: vec![(x, weight)], dropout, epilogue }))
    }

    /// Computes `mask ⊙ activation(X·W + Y·V + bias)` for pairs `(x, w)` and `(y, v)`: the product of a concatenation
    /// that is never stored. Fused into one pass if the backend supports it. Options may not mask an operand or add
    /// to a result.
    ///
    /// # Errors
    /// On shapes that do not fit, or when the backend fails.
    ///
    /// # Panics
    /// When the options mask an operand or add to a result.
    pub fn linear_pair(&mut self, terms: [(Var, Var); 2], options: LinearOptions) -> Result<Var, ComputeError> {
        let LinearOptions { dropout, bias, activation, mask, add } = options;
        assert!(dropout.is_none() && add.is_none(), "a pair of products is neither masked nor added to");
        let epilogue = Recorded { bias, activation, mask, add };
        let shape = Shape::new(self.shape(terms[0].0).rows, self.shape(terms[0].1).cols);
        let (mut out, accumulate) = epilogue.target(self, shape)?;
        let [first, second] = terms.map(|(x, weight)| (self.value(x), self.value(weight)));
        self.backend().gemm_pair(first, second, epilogue.on(self, accumulate), &mut out)?;
        let operands: Vec<Var> = terms.into_iter().flat_map(|(x, weight)| [x, weight]).chain(bias).collect();
        Ok(self.record(out, &operands, Linear { terms: terms.to_vec(), dropout, epilogue }))
    }
}

impl<B: Backend> Operation<B> for Linear {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, out: Var, mut grad: B::Matrix) -> Result<(), ComputeError> {
        self.epilogue.backward(pass, out, &mut grad)?;
        if self.may_defer(pass) {
            let defers_input_grad = self.may_defer_input_grad(pass);
            if !defers_input_grad {
                for &term in self.terms.iter().rev() {
                    self.operand_backward(pass, term, &grad)?;
                }
            }
            let (terms, dropout) = (self.terms.clone(), self.dropout);
            return pass.defer(DeferredGrads { terms, dropout, grad, defers_input_grad });
        }
        for &(x, weight) in self.terms.iter().rev() {
            pass.with_grad(weight, |pass, weight_grad, accumulate| {
                weight_gradient(pass.backend(), (pass.value(x), self.dropout), &grad, weight_grad, accumulate)
            })?;
            self.operand_backward(pass, (x, weight), &grad)?;
        }
        self.epilogue.finish(pass, grad)
    }

    fn epilogue(&self) -> Option<Recorded> {
        Some(self.epilogue)
    }
}

impl Linear {
    /// `X·W` without an epilogue.
    pub(super) fn plain(x: Var, weight: Var) -> Self {
        Self { terms: vec![(x, weight)], dropout: None, epilogue: Recorded::default() }
    }

    /// Whether gradients of weights can be deferred: the gradient of the result has no other consumer, and the next
    /// operation of the backward pass communicates.
    fn may_defer<B: Backend>(&self, pass: &BackwardPass<'_, '_, B>) -> bool {
        let mut terms = self.terms.iter();
        self.epilogue.add.is_none()
            && terms.all(|&(_, weight)| pass.is_param(weight))
            && pass.producer_communicates(self.terms[0].0)
    }

    /// Whether the operation that produced the operand may compute its gradient, one feature chunk at a time while
    /// sending. The operand must have a single consumer, and its epilogue must not add to a result.
    fn may_defer_input_grad<B: Backend>(&self, pass: &BackwardPass<'_, '_, B>) -> bool {
        let [(x, _)] = self.terms[..] else { return false };
        self.dropout.is_none() && pass.next_epilogue(x).is_some_and(|epilogue| epilogue.add.is_none())
    }

    /// Computes `∂X = mask ⊙ (∂Z·Wᵀ)`.
    fn operand_backward<B: Backend>(
        &self,
        pass: &mut BackwardPass<'_, '_, B>,
        (x, weight): (Var, Var),
        grad: &B::Matrix,
    ) -> Result<(), ComputeError> {
        let product = |pass: &BackwardPass<'_, '_, B>, out: &mut B::Matrix, accumulate: bool| {
            let epilogue = Epilogue { accumulate, ..Epilogue::default() };
            let (dz, weight) = ((grad, Transpose::No), (pass.value(weight), Transpose::Yes));
            pass.backend().gemm(dz, None, weight, epilogue, out)
        };
        let Some(dropout) = self.dropout else {
            return match pass.next_epilogue(x) {
                Some(epilogue) => epilogue.backward_of_product(pass, x, grad, (weight, Transpose::Yes)),
                None => pass.with_grad(x, product),
            };
        };
        if !pass.needs_grad(x) {
            return Ok(());
        }
        let mut x_grad = pass.grad_buffer(x)?;
        product(pass, &mut x_grad, false)?;
        pass.backend().dropout_in_place(dropout, &mut x_grad)?;
        pass.give(x, x_grad)
    }
}
