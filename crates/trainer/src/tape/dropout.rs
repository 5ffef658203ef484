//! `dropout`: `out = mask ⊙ X`, for places where it cannot be fused into the next product.

use girih_compute::{Backend, ComputeError, Dropout};

use super::{BackwardPass, Operation, Tape, Var};

struct Masked {
    x: Var,
    dropout: Dropout,
}

impl<B: Backend> Tape<'_, B> {
    /// `x` masked by `dropout` ([`Tape::next_dropout`]); `x` itself when there is none.
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
