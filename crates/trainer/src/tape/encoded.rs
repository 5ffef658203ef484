//! `linear_encoded`: a [`linear`](Tape::linear) product of features that are decoded in blocks of rows.

use girih_compute::{Backend, ComputeError, Dropout, Epilogue, Shape, Transpose};

use super::encoded_input::EncodedInput;
use super::{BackwardPass, LinearOptions, Operation, Recorded, Tape, Var};

struct LinearEncoded<'a> {
    x: &'a EncodedInput,
    weight: Var,
    dropout: Option<Dropout>,
    epilogue: Recorded,
}

/// Dropout of a block that begins at row `first` of the masked matrix.
fn from_row(dropout: Option<Dropout>, first: usize) -> Option<Dropout> {
    dropout.map(|dropout| dropout.from_row(dropout.first_element(1) + first))
}

impl<'a, B: Backend> Tape<'a, B> {
    /// As [`linear`](Self::linear), but for the decoded rows of `x`, with bitwise equal results.
    ///
    /// # Errors
    /// On shapes that do not fit, or when the backend fails.
    pub fn linear_encoded(
        &mut self,
        x: &'a EncodedInput,
        weight: Var,
        options: LinearOptions,
    ) -> Result<Var, ComputeError> {
        let LinearOptions { dropout, bias, activation, mask, add } = options;
        let epilogue = Recorded { bias, activation, mask, add };
        let cols = self.shape(weight).cols;
        let (mut out, accumulate) = epilogue.target(self, Shape::new(x.shape().rows, cols))?;
        let backend = self.backend;
        let (weight_value, nodes) = (self.nodes[weight.0].matrix(), &self.nodes);
        let bias = bias.map(|bias| nodes[bias.0].matrix());
        x.for_each_block(backend, self.pool, |pool, first, block| {
            let shape = Shape::new(backend.shape(block).rows, cols);
            let mut part = pool.take(backend, shape, backend.dtype(&out))?;
            if accumulate {
                backend.copy_block(shape, &out, (first, 0), &mut part, (0, 0))?;
            }
            let epilogue = Epilogue { accumulate, bias, activation, dropout: from_row(mask, first) };
            let (x, weight) = ((block, Transpose::No), (weight_value, Transpose::No));
            backend.gemm(x, from_row(dropout, first), weight, epilogue, &mut part)?;
            backend.copy_block(shape, &part, (0, 0), &mut out, (first, 0))?;
            pool.give(backend, part);
            Ok(())
        })?;
        let operands: Vec<Var> = std::iter::once(weight).chain(epilogue.operands()).collect();
        Ok(self.record(out, &operands, LinearEncoded { x, weight, dropout, epilogue }))
    }
}

impl<B: Backend> Operation<B> for LinearEncoded<'_> {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, out: Var, mut grad: B::Matrix) -> Result<(), ComputeError> {
        self.epilogue.backward(pass, out, &mut grad)?;
        if pass.needs_grad(self.weight) {
            self.weight_backward(pass, &grad)?;
        }
        self.epilogue.finish(pass, grad)
    }

    fn epilogue(&self) -> Option<Recorded> {
        Some(self.epilogue)
    }
}

impl LinearEncoded<'_> {
    /// Computes `∂W = Σ dropout(block)ᵀ·∂Z`, over blocks of rows.
    fn weight_backward<B: Backend>(
        &self,
        pass: &mut BackwardPass<'_, '_, B>,
        grad: &B::Matrix,
    ) -> Result<(), ComputeError> {
        let (backend, cols) = (pass.backend, pass.backend.shape(grad).cols);
        let mut sum = pass.grad_buffer(self.weight)?;
        let mut accumulate = false;
        self.x.for_each_block(backend, pass.pool, |pool, first, block| {
            let shape = Shape::new(backend.shape(block).rows, cols);
            let mut part = pool.take(backend, shape, backend.dtype(grad))?;
            backend.copy_block(shape, grad, (first, 0), &mut part, (0, 0))?;
            let epilogue = Epilogue { accumulate, ..Epilogue::default() };
            let (x, dz) = ((block, Transpose::Yes), (&part, Transpose::No));
            backend.gemm(x, from_row(self.dropout, first), dz, epilogue, &mut sum)?;
            accumulate = true;
            pool.give(backend, part);
            Ok(())
        })?;
        if !accumulate {
            backend.set_zero(&mut sum)?;
        }
        pass.give(self.weight, sum)
    }
}
