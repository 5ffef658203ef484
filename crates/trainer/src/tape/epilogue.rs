//! The way back through a fused epilogue: `out = activation(sum + add + bias)`.

use girih_compute::{Activation, Backend, ComputeError, Epilogue, Shape};

use super::{BackwardPass, Tape, Var};

/// The epilogue of a recorded operation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recorded {
    pub bias: Option<Var>,
    pub activation: Activation,
    pub add: Option<Var>,
}

impl Recorded {
    /// The operands that the epilogue reads.
    pub fn operands(self) -> impl Iterator<Item = Var> {
        self.bias.into_iter().chain(self.add)
    }

    /// The buffer for the result (that of `add` if there is one) and whether to accumulate into it.
    pub fn target<B: Backend>(self, tape: &mut Tape<'_, B>, shape: Shape) -> Result<(B::Matrix, bool), ComputeError> {
        match self.add {
            Some(add) => Ok((tape.consume(add), true)),
            None => Ok((tape.activations(shape)?, false)),
        }
    }

    /// The epilogue as a backend takes it.
    pub fn on<'t, B: Backend>(self, tape: &'t Tape<'_, B>, accumulate: bool) -> Epilogue<'t, B::Matrix> {
        Epilogue { accumulate, bias: self.bias.map(|b| tape.value(b)), activation: self.activation }
    }

    /// Turns the gradient of the result into that of the sum, and hands the bias its share.
    pub fn backward<B: Backend>(
        self,
        pass: &mut BackwardPass<'_, '_, B>,
        out: Var,
        grad: &mut B::Matrix,
    ) -> Result<(), ComputeError> {
        let bias = self.bias.filter(|&b| pass.needs_grad(b));
        let cols = pass.backend().shape(grad).cols;
        let mut bias_grad = bias.map(|_| pass.buffer(Shape::new(1, cols))).transpose()?;
        match self.activation {
            // The result may have been consumed by now; the identity does not need it.
            Activation::Identity => {
                if let Some(bias_grad) = &mut bias_grad {
                    pass.backend().column_sums(grad, bias_grad)?;
                }
            }
            activation @ (Activation::Relu | Activation::Elu) => {
                pass.backend().epilogue_backward(activation, pass.value(out), grad, bias_grad.as_mut())?;
            }
        }
        match bias.zip(bias_grad) {
            Some((bias, bias_grad)) => pass.give(bias, bias_grad),
            None => Ok(()),
        }
    }

    /// Hands the gradient of the sum to `add`, or its buffer back to the pool.
    pub fn finish<B: Backend>(self, pass: &mut BackwardPass<'_, '_, B>, grad: B::Matrix) -> Result<(), ComputeError> {
        match self.add {
            Some(add) => pass.give(add, grad),
            None => {
                pass.recycle(grad);
                Ok(())
            }
        }
    }
}
