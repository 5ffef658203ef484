//! `linear`: `out = mask ⊙ activation(dropout(X)·W + add + bias)`, and `linear_pair`: the same of the sum of two
//! products.

use girih_compute::{Activation, Backend, ComputeError, Dropout, Epilogue, Shape, Transpose};

use super::backward::DeferredGrads;
use super::epilogue::Recorded;
use super::{BackwardPass, Operation, Tape, Var};

/// What goes into a [`Tape::linear`] besides its operand and weight.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinearOptions {
    /// Masks the operand ([`Tape::next_dropout`]); the masked operand is never stored, and two products may share a
    /// mask.
    pub dropout: Option<Dropout>,
    /// One row, added to every row of the result.
    pub bias: Option<Var>,
    /// Applied to the sum.
    pub activation: Activation,
    /// Masks the result of ReLU; what is stored then tells the way back, and the operation that reads it draws nothing.
    pub mask: Option<Dropout>,
    /// A result of the same shape that nothing else reads; its buffer becomes that of this result. With the weight of
    /// a concatenation cut into rows, `[X ‖ Y]·W` is `linear(X, W₁)` added to `linear(Y, W₂)`.
    pub add: Option<Var>,
}

pub(super) struct Linear {
    /// Operands and their weights.
    terms: Vec<(Var, Var)>,
    dropout: Option<Dropout>,
    epilogue: Recorded,
}

impl<B: Backend> Tape<'_, B> {
    /// `mask ⊙ activation(dropout(X)·W + add + bias)` for `x` of shape `n × f` and `weight` of shape `f × h`.
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

    /// `mask ⊙ activation(X·W + Y·V + bias)` for pairs `(x, w)` and `(y, v)`: the product of a concatenation that is
    /// never stored, in one pass where the backend has one. Neither operand is masked, and nothing is added.
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

/// `∂W = dropout(X)ᵀ·∂Z`, in the place of what is there or added to it.
pub(super) fn weight_gradient<B: Backend>(
    backend: &B,
    (x, dropout): (&B::Matrix, Option<Dropout>),
    dz: &B::Matrix,
    weight_grad: &mut B::Matrix,
    accumulate: bool,
) -> Result<(), ComputeError> {
    let epilogue = Epilogue { accumulate, ..Epilogue::default() };
    backend.gemm((x, Transpose::Yes), dropout, (dz, Transpose::No), epilogue, weight_grad)
}

impl Linear {
    /// `X·W`, without anything behind it.
    pub(super) fn plain(x: Var, weight: Var) -> Self {
        Self { terms: vec![(x, weight)], dropout: None, epilogue: Recorded::default() }
    }

    /// Whether gradients of weights can be deferred: nothing else reads the gradient of the result, and the next operation
    /// of the backward pass communicates.
    fn may_defer<B: Backend>(&self, pass: &BackwardPass<'_, '_, B>) -> bool {
        let mut terms = self.terms.iter();
        self.epilogue.add.is_none()
            && terms.all(|&(_, weight)| pass.is_param(weight))
            && pass.may_defer(self.terms[0].0)
    }

    /// Whether the operation that made the operand may compute its gradient, one feature chunk at a time as it travels: the
    /// operand has a single consumer, and its epilogue adds to nothing.
    fn may_defer_input_grad<B: Backend>(&self, pass: &BackwardPass<'_, '_, B>) -> bool {
        let [(x, _)] = self.terms[..] else { return false };
        self.dropout.is_none() && pass.next_epilogue(x).is_some_and(|epilogue| epilogue.add.is_none())
    }

    /// `∂X = mask ⊙ (∂Z·Wᵀ)`
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
