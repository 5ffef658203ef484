//! Gradient of a fused epilogue: `out = mask ⊙ activation(sum + add + bias)`.

use girih_compute::{Activation, ActivationGrad, Backend, ComputeError, Epilogue, EpilogueGrad, Shape, Transpose};

use super::{BackwardPass, Recorded, Tape, Var};

impl Recorded {
    /// Operands of the epilogue.
    pub(super) fn operands(self) -> impl Iterator<Item = Var> {
        self.bias.into_iter().chain(self.add)
    }

    /// Buffer for the result (the buffer of `add`, if any), and whether to accumulate into it.
    pub(super) fn target<B: Backend>(
        self,
        tape: &mut Tape<'_, B>,
        shape: Shape,
    ) -> Result<(B::Matrix, bool), ComputeError> {
        match self.add {
            Some(add) => Ok((tape.consume(add), true)),
            None => Ok((tape.activations(shape)?, false)),
        }
    }

    /// Epilogue in the backend's form.
    pub(super) fn on<'t, B: Backend>(self, tape: &'t Tape<'_, B>, accumulate: bool) -> Epilogue<'t, B::Matrix> {
        let Self { bias, activation, mask, .. } = self;
        Epilogue { accumulate, bias: bias.map(|b| tape.value(b)), activation, dropout: mask }
    }

    /// Turns the gradient of the result into that of the sum, and adds to the gradient of the bias, unless already
    /// done.
    pub(super) fn backward<B: Backend>(
        self,
        pass: &mut BackwardPass<'_, '_, B>,
        out: Var,
        grad: &mut B::Matrix,
    ) -> Result<(), ComputeError> {
        if pass.is_before_epilogue(out) {
            return Ok(());
        }
        let mut bias_grad = self.bias_buffer(pass)?;
        match self.activation {
            // Another operation may have consumed the result. The identity does not need it.
            Activation::Identity => {
                if let Some(bias_grad) = &mut bias_grad {
                    pass.backend().column_sums(grad, bias_grad)?;
                }
            }
            Activation::Relu | Activation::Elu => {
                pass.backend().epilogue_backward(self.slope(), pass.value(out), grad, bias_grad.as_mut())?;
            }
        }
        self.give_bias(pass, bias_grad)
    }

    /// Computes the gradient of `out` as the product `A·op(B)`, fused with the gradient of the epilogue that produced
    /// `out`. The product must be the only contribution to the gradient.
    pub(super) fn backward_of_product<B: Backend>(
        self,
        pass: &mut BackwardPass<'_, '_, B>,
        out: Var,
        a: &B::Matrix,
        b: (Var, Transpose),
    ) -> Result<(), ComputeError> {
        let mut grad = pass.grad_buffer(out)?;
        let mut bias_grad = self.bias_buffer(pass)?;
        let (a, b, y) = ((a, Transpose::No), (pass.value(b.0), b.1), pass.value(out));
        let epilogue_grad = EpilogueGrad::new(self.slope(), y);
        pass.backend().gemm_backward(a, b, epilogue_grad, &mut grad, bias_grad.as_mut())?;
        self.give_bias(pass, bias_grad)?;
        pass.put_before_epilogue(out, grad);
        Ok(())
    }

    /// Derivative of activation and dropout, as a function of the result.
    pub(super) fn slope(self) -> ActivationGrad {
        ActivationGrad::of(self.activation, self.mask)
    }

    /// Buffer for the gradient of the bias, if it is needed.
    pub(super) fn bias_buffer<B: Backend>(
        self,
        pass: &mut BackwardPass<'_, '_, B>,
    ) -> Result<Option<B::Matrix>, ComputeError> {
        let bias = self.bias.filter(|&bias| pass.needs_grad(bias));
        bias.map(|bias| pass.grad_buffer(bias)).transpose()
    }

    /// Passes on the gradient of the bias, if there is one.
    pub(super) fn give_bias<B: Backend>(
        self,
        pass: &mut BackwardPass<'_, '_, B>,
        bias_grad: Option<B::Matrix>,
    ) -> Result<(), ComputeError> {
        self.bias.zip(bias_grad).map_or(Ok(()), |(bias, bias_grad)| pass.give(bias, bias_grad))
    }

    /// Passes the gradient of the sum to `add`, or returns its buffer to the pool.
    pub(super) fn finish<B: Backend>(
        self,
        pass: &mut BackwardPass<'_, '_, B>,
        grad: B::Matrix,
    ) -> Result<(), ComputeError> {
        match self.add {
            Some(add) => pass.give(add, grad),
            None => {
                pass.recycle(grad);
                Ok(())
            }
        }
    }
}
