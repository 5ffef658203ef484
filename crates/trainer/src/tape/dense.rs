//! Element-wise operations on whole matrices: weighted sums, concatenation, activations.

use girih_compute::{Activation, Backend, ComputeError, Shape};

use super::{BackwardPass, Operation, Recorded, Tape, Var};

struct Combined {
    terms: Vec<(f32, Var)>,
    epilogue: Recorded,
}

impl<B: Backend> Tape<'_, B> {
    /// Computes `activation(Σ factor · x + bias)` over terms of one shape: residual connections, means of layers,
    /// teleports.
    ///
    /// # Errors
    /// On shapes that do not fit, or when the backend fails.
    ///
    /// # Panics
    /// When there are no terms.
    pub fn combine(
        &mut self,
        terms: &[(f32, Var)],
        bias: Option<Var>,
        activation: Activation,
    ) -> Result<Var, ComputeError> {
        let ((first_factor, first), others) = terms.split_first().expect("at least one term");
        let shape = self.shape(*first);
        let mut out = self.activations(shape)?;
        self.backend().scale(*first_factor, self.value(*first), &mut out)?;
        for (factor, x) in others {
            self.backend().add_scaled(*factor, self.value(*x), &mut out)?;
        }
        if bias.is_some() || activation != Activation::Identity {
            self.backend().activate(activation, bias.map(|bias| self.value(bias)), &mut out)?;
        }
        let operands: Vec<Var> = terms.iter().map(|(_, x)| *x).chain(bias).collect();
        let epilogue = Recorded { bias, activation, ..Recorded::default() };
        Ok(self.record(out, &operands, Combined { terms: terms.to_vec(), epilogue }))
    }

    /// Sum of two matrices of one shape. [`combine`](Self::combine) adds more at once, and an epilogue. A product that
    /// is added to needs no buffer for the sum: [`LinearOptions::add`](super::linear::LinearOptions::add).
    ///
    /// # Errors
    /// On shapes that do not fit, or when the backend fails.
    pub fn add(&mut self, x: Var, y: Var) -> Result<Var, ComputeError> {
        self.combine(&[(1.0, x), (1.0, y)], None, Activation::Identity)
    }

    /// Element-wise maximum of two matrices of one shape: `y + relu(x - y)`.
    ///
    /// # Errors
    /// On shapes that do not fit, or when the backend fails.
    pub fn maximum(&mut self, x: Var, y: Var) -> Result<Var, ComputeError> {
        let excess = self.combine(&[(1.0, x), (-1.0, y)], None, Activation::Relu)?;
        self.add(y, excess)
    }
}

impl<B: Backend> Operation<B> for Combined {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, out: Var, mut grad: B::Matrix) -> Result<(), ComputeError> {
        self.epilogue.backward(pass, out, &mut grad)?;
        for &(factor, x) in &self.terms {
            pass.with_grad(x, |pass, share, accumulate| {
                if accumulate {
                    pass.backend().add_scaled(factor, &grad, share)
                } else {
                    pass.backend().scale(factor, &grad, share)
                }
            })?;
        }
        self.epilogue.finish(pass, grad)
    }

    fn epilogue(&self) -> Option<Recorded> {
        Some(self.epilogue)
    }
}

struct Concatenated {
    parts: Vec<Var>,
}

impl<B: Backend> Tape<'_, B> {
    /// Concatenation of the columns of `parts`. If a product follows, a sum of one product per part needs less
    /// memory: see [`LinearOptions::add`](super::linear::LinearOptions::add).
    ///
    /// # Errors
    /// On shapes that do not fit, or when the backend fails.
    ///
    /// # Panics
    /// When there are no parts.
    pub fn concat(&mut self, parts: &[Var]) -> Result<Var, ComputeError> {
        let rows = self.shape(*parts.first().expect("at least one part")).rows;
        let width = parts.iter().map(|&part| self.shape(part).cols).sum();
        let mut out = self.activations(Shape::new(rows, width))?;
        let mut to = 0;
        for &part in parts {
            let n = self.shape(part).cols;
            self.backend().copy_block(Shape::new(rows, n), self.value(part), (0, 0), &mut out, (0, to))?;
            to += n;
        }
        Ok(self.record(out, parts, Concatenated { parts: parts.to_vec() }))
    }
}

impl<B: Backend> Operation<B> for Concatenated {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, _out: Var, grad: B::Matrix) -> Result<(), ComputeError> {
        let mut from = 0;
        for &part in &self.parts {
            let shape = pass.backend().shape(pass.value(part));
            if pass.needs_grad(part) {
                let mut share = pass.grad_buffer(part)?;
                pass.backend().copy_block(shape, &grad, (0, from), &mut share, (0, 0))?;
                pass.give(part, share)?;
            }
            from += shape.cols;
        }
        pass.recycle(grad);
        Ok(())
    }
}
