//! `apply`: element-wise functions whose derivative reads the operand.

use girih_compute::{Backend, ComputeError, Function};

use super::{BackwardPass, Operation, Tape, Var};

struct Applied {
    function: Function,
    x: Var,
}

impl<B: Backend> Tape<'_, B> {
    /// Element-wise function of a matrix.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn apply(&mut self, function: Function, x: Var) -> Result<Var, ComputeError> {
        let mut out = self.activations(self.shape(x))?;
        self.backend().apply(function, self.value(x), &mut out)?;
        Ok(self.record(out, &[x], Applied { function, x }))
    }
}

impl<B: Backend> Operation<B> for Applied {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, _out: Var, mut grad: B::Matrix) -> Result<(), ComputeError> {
        pass.backend().apply_backward(self.function, pass.value(self.x), &mut grad)?;
        pass.give(self.x, grad)
    }
}
