//! `dropout`: `out = mask ⊙ X`, where neither the producer of `X` nor the next product can fuse it.

use girih_compute::{Backend, ComputeError, Dropout};

use super::{BackwardPass, Operation, Tape, Var};

/// Dropouts of a layer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Masks {
    /// Dropout of the operand rows.
    pub operand: Option<Dropout>,
    /// Dropout of the result rows.
    pub result: Option<Dropout>,
}

struct Masked {
    x: Var,
    dropout: Dropout,
}

impl<B: Backend> Tape<'_, B> {
    /// `x` masked by `dropout` ([`Tape::next_dropout`]), or `x` itself without dropout.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn dropout(&mut self, x: Var, dropout: Option<Dropout>) -> Result<Var, ComputeError> {
        let Some(dropout) = dropout else { return Ok(x) };
        let shape = self.shape(x);
        let mut out = self.activations(shape)?;
        self.backend().dropout(self.value(x), dropout, &mut out)?;
        Ok(self.record(out, &[x], Masked { x, dropout }))
    }
}

impl<B: Backend> Operation<B> for Masked {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, _out: Var, mut grad: B::Matrix) -> Result<(), ComputeError> {
        pass.backend().dropout_in_place(self.dropout, &mut grad)?;
        pass.give(self.x, grad)
    }
}
