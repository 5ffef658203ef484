//! Operations on whole matrices: weighted sums, concatenation, placement.

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

/// Direction in which matrices follow each other.
#[derive(Clone, Copy, PartialEq)]
enum Axis {
    Rows,
    Columns,
}

struct Concatenated {
    parts: Vec<Var>,
    axis: Axis,
}

struct Placed {
    x: Var,
    first: usize,
}

struct Reshaped {
    x: Var,
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
        self.concat_along(parts, Axis::Columns)
    }

    /// Rows of all `parts`, one part after the other.
    ///
    /// # Errors
    /// On shapes that do not fit, or when the backend fails.
    ///
    /// # Panics
    /// When there are no parts.
    pub fn concat_rows(&mut self, parts: &[Var]) -> Result<Var, ComputeError> {
        match parts {
            &[only] => Ok(only),
            _ => self.concat_along(parts, Axis::Rows),
        }
    }

    fn concat_along(&mut self, parts: &[Var], axis: Axis) -> Result<Var, ComputeError> {
        let shapes: Vec<Shape> = parts.iter().map(|&part| self.shape(part)).collect();
        let mut shape = *shapes.first().expect("at least one part");
        match axis {
            Axis::Rows => shape.rows = shapes.iter().map(|of| of.rows).sum(),
            Axis::Columns => shape.cols = shapes.iter().map(|of| of.cols).sum(),
        }
        let mut out = self.activations(shape)?;
        let mut to = (0, 0);
        for (&part, &of) in parts.iter().zip(&shapes) {
            self.backend().copy_block(of, self.value(part), (0, 0), &mut out, to)?;
            to = axis.after(to, of);
        }
        Ok(self.record(out, parts, Concatenated { parts: parts.to_vec(), axis }))
    }

    /// Elements in row-major order as a matrix of another shape; see
    /// [`DenseOps::reshape`](girih_compute::DenseOps::reshape).
    ///
    /// # Errors
    /// On shapes that do not fit, or when the backend fails.
    pub fn reshape(&mut self, x: Var, shape: Shape) -> Result<Var, ComputeError> {
        let mut out = self.activations(shape)?;
        self.backend().reshape(self.value(x), &mut out)?;
        Ok(self.record(out, &[x], Reshaped { x }))
    }

    /// Matrix of `n` rows that has those of `x` from row `first` on; others are zero.
    ///
    /// # Errors
    /// On shapes that do not fit, or when the backend fails.
    pub fn place_rows(&mut self, x: Var, first: usize, n: usize) -> Result<Var, ComputeError> {
        let shape = self.shape(x);
        if shape.rows == n {
            return Ok(x);
        }
        let mut out = self.activations(Shape::new(n, shape.cols))?;
        self.backend().set_zero(&mut out)?;
        self.backend().copy_block(shape, self.value(x), (0, 0), &mut out, (first, 0))?;
        Ok(self.record(out, &[x], Placed { x, first }))
    }
}

impl Axis {
    /// Place behind a part of a shape.
    fn after(self, (row, col): (usize, usize), part: Shape) -> (usize, usize) {
        match self {
            Self::Rows => (row + part.rows, col),
            Self::Columns => (row, col + part.cols),
        }
    }
}

impl<B: Backend> Operation<B> for Concatenated {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, _out: Var, grad: B::Matrix) -> Result<(), ComputeError> {
        let mut from = (0, 0);
        for &part in &self.parts {
            let shape = pass.backend().shape(pass.value(part));
            give_block(pass, part, &grad, from)?;
            from = self.axis.after(from, shape);
        }
        pass.recycle(grad);
        Ok(())
    }
}

impl<B: Backend> Operation<B> for Placed {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, _out: Var, grad: B::Matrix) -> Result<(), ComputeError> {
        give_block(pass, self.x, &grad, (self.first, 0))?;
        pass.recycle(grad);
        Ok(())
    }
}

impl<B: Backend> Operation<B> for Reshaped {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, _out: Var, grad: B::Matrix) -> Result<(), ComputeError> {
        if pass.needs_grad(self.x) {
            let mut of_x = pass.grad_buffer(self.x)?;
            pass.backend().reshape(&grad, &mut of_x)?;
            pass.give(self.x, of_x)?;
        }
        pass.recycle(grad);
        Ok(())
    }
}

/// Gives an operand its block of a gradient, if it needs one.
fn give_block<B: Backend>(
    pass: &mut BackwardPass<'_, '_, B>,
    var: Var,
    grad: &B::Matrix,
    from: (usize, usize),
) -> Result<(), ComputeError> {
    if !pass.needs_grad(var) {
        return Ok(());
    }
    let shape = pass.backend().shape(pass.value(var));
    let mut share = pass.grad_buffer(var)?;
    pass.backend().copy_block(shape, grad, from, &mut share, (0, 0))?;
    pass.give(var, share)
}
