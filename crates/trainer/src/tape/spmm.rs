//! `spmm`: aggregation over neighbors, `out = mask ⊙ activation(L·A·R·X + add + bias)`.

use girih_compute::{Activation, Backend, ComputeError, Dropout, Epilogue, Shape, Transpose};

use super::{BackwardPass, Operation, Recorded, Tape, Var};

/// Options of a [`Tape::spmm`] besides its operands.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpmmOptions {
    /// Weights of the stored entries instead of the matrix's own: `nnz × 1`, or `nnz × heads` with columns of heads
    /// interleaved.
    pub weights: Option<Var>,
    /// Bias, `1 × f`, added to every row of the result.
    pub bias: Option<Var>,
    /// Activation applied to the sum.
    pub activation: Activation,
    /// Dropout of the result of ReLU. The stored result determines the gradient, so that its consumer needs no
    /// dropout.
    pub mask: Option<Dropout>,
    /// A result of the same shape without other consumers. The sum is written to its buffer, in place.
    pub add: Option<Var>,
}

struct Spmm<'a, B: Backend> {
    matrix: &'a B::Sparse,
    weights: Option<Var>,
    x: Var,
    epilogue: Recorded,
}

impl<'a, B: Backend> Tape<'a, B> {
    /// Computes `mask ⊙ activation(L·A·R·X + add + bias)` for a sparse `m × n` matrix and `x` of shape `n × f`.
    ///
    /// # Errors
    /// On shapes that do not fit, or when the backend fails.
    pub fn spmm(&mut self, matrix: &'a B::Sparse, x: Var, options: SpmmOptions) -> Result<Var, ComputeError> {
        let SpmmOptions { weights, bias, activation, mask, add } = options;
        let epilogue = Recorded { bias, activation, mask, add };
        let shape = Shape::new(self.backend().sparse_shape(matrix).rows, self.shape(x).cols);
        let (mut out, accumulate) = epilogue.target(self, shape)?;
        self.backend().spmm(
            (matrix, Transpose::No),
            weights.map(|w| self.value(w)),
            self.value(x),
            epilogue.on(self, accumulate),
            &mut out,
        )?;
        let operands: Vec<Var> = std::iter::once(x).chain(weights).chain(epilogue.operands()).collect();
        Ok(self.record(out, &operands, Spmm::<B> { matrix, weights, x, epilogue }))
    }
}

impl<B: Backend> Operation<B> for Spmm<'_, B> {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, out: Var, mut grad: B::Matrix) -> Result<(), ComputeError> {
        self.epilogue.backward(pass, out, &mut grad)?;
        // ∂X = (L·A·R)ᵀ·∂Z
        pass.with_grad(self.x, |pass, x_grad, accumulate| {
            let epilogue = Epilogue { accumulate, ..Epilogue::default() };
            let weights = self.weights.map(|w| pass.value(w));
            pass.backend().spmm((self.matrix, Transpose::Yes), weights, &grad, epilogue, x_grad)
        })?;
        // ∂w[i, j] = l[i]·r[j]·⟨∂Z[i], X[j]⟩
        if let Some(weights) = self.weights.filter(|&weights| pass.needs_grad(weights)) {
            let shape = pass.backend().shape(pass.value(weights));
            let mut weights_grad = pass.buffer(shape)?;
            pass.backend().sddmm(self.matrix, &grad, pass.value(self.x), &mut weights_grad)?;
            pass.give(weights, weights_grad)?;
        }
        self.epilogue.finish(pass, grad)
    }

    fn epilogue(&self) -> Option<Recorded> {
        Some(self.epilogue)
    }
}
