//! `linear`: `out = mask ⊙ activation(dropout(X)·W + add + bias)`.

use girih_compute::{Activation, Backend, ComputeError, Dropout, Epilogue, Shape, Transpose};

use super::epilogue::Recorded;
use super::{BackwardPass, Operation, Tape, Var};

/// What goes into a [`Tape::linear`] besides its operand and weight.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinearOptions {
    /// Masks the operand ([`Tape::next_dropout`]); the masked operand is never stored, and two products may share a mask.
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

struct Linear {
    x: Var,
    weight: Var,
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
        Ok(self.record(out, &operands, Linear { x, weight, dropout, epilogue }))
    }
}

impl<B: Backend> Operation<B> for Linear {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, out: Var, mut grad: B::Matrix) -> Result<(), ComputeError> {
        self.epilogue.backward(pass, out, &mut grad)?;
        // ∂W = dropout(X)ᵀ·∂Z
        pass.with_grad(self.weight, |pass, weight_grad, accumulate| {
            let epilogue = Epilogue { accumulate, ..Epilogue::default() };
            let (x, dz) = ((pass.value(self.x), Transpose::Yes), (&grad, Transpose::No));
            pass.backend().gemm(x, self.dropout, dz, epilogue, weight_grad)
        })?;
        self.operand_backward(pass, &grad)?;
        self.epilogue.finish(pass, grad)
    }

    fn epilogue(&self) -> Option<Recorded> {
        Some(self.epilogue)
    }
}

impl Linear {
    /// `∂X = mask ⊙ (∂Z·Wᵀ)`
    fn operand_backward<B: Backend>(
        &self,
        pass: &mut BackwardPass<'_, '_, B>,
        grad: &B::Matrix,
    ) -> Result<(), ComputeError> {
        let product = |pass: &BackwardPass<'_, '_, B>, out: &mut B::Matrix, accumulate: bool| {
            let epilogue = Epilogue { accumulate, ..Epilogue::default() };
            let (dz, weight) = ((grad, Transpose::No), (pass.value(self.weight), Transpose::Yes));
            pass.backend().gemm(dz, None, weight, epilogue, out)
        };
        let Some(dropout) = self.dropout else {
            return match pass.next_epilogue(self.x) {
                Some(epilogue) => epilogue.backward_of_product(pass, self.x, grad, (self.weight, Transpose::Yes)),
                None => pass.with_grad(self.x, product),
            };
        };
        if !pass.needs_grad(self.x) {
            return Ok(());
        }
        let mut x_grad = pass.grad_buffer(self.x)?;
        product(pass, &mut x_grad, false)?;
        pass.backend().dropout_in_place(dropout, &mut x_grad)?;
        pass.give(self.x, x_grad)
    }
}
