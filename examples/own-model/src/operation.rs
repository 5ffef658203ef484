//! [`identity_mapping`]: an operation on the tape, with its gradient.

use girih_compute::{Activation, ActivationGrad, Backend, ComputeError, Epilogue, Transpose};
use girih_trainer::{BackwardPass, Operation, Tape, Var};

/// Operands of the operation; the tape keeps their values.
struct IdentityMapping {
    x: Var,
    weight: Var,
    beta: f32,
}

/// Computes `relu((1 - β)·X + β·X·W)` for a square `W`, in one buffer: GCNII's identity mapping.
///
/// # Errors
/// On shapes that do not fit, or when the backend fails.
pub fn identity_mapping<B: Backend>(
    tape: &mut Tape<'_, B>,
    x: Var,
    weight: Var,
    beta: f32,
) -> Result<Var, ComputeError> {
    let (backend, no) = (tape.backend(), Transpose::No);
    let (shape, square) = (tape.shape(x), tape.shape(weight));
    let (mut out, mut scaled) = (tape.activations(shape)?, tape.buffer(square)?);
    backend.scale(beta, tape.value(weight), &mut scaled)?;
    backend.scale(1.0 - beta, tape.value(x), &mut out)?;
    let epilogue = Epilogue { accumulate: true, activation: Activation::Relu, ..Epilogue::default() };
    backend.gemm((tape.value(x), no), None, (&scaled, no), epilogue, &mut out)?;
    // The tape gives the buffer back to its pool.
    tape.keep(scaled);
    Ok(tape.record(out, &[x, weight], IdentityMapping { x, weight, beta }))
}

impl<B: Backend> Operation<B> for IdentityMapping {
    /// With `G` the gradient before ReLU: `∂W = β·Xᵀ·G` and `∂X = (1 - β)·G + β·G·Wᵀ`.
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, out: Var, mut grad: B::Matrix) -> Result<(), ComputeError> {
        let &Self { x, weight, beta } = self;
        let (backend, no, yes) = (pass.backend(), Transpose::No, Transpose::Yes);
        let slope = ActivationGrad::of(Activation::Relu, None);
        backend.epilogue_backward(slope, pass.value(out), &mut grad, None)?;
        let mut scaled = pass.buffer(backend.shape(&grad))?;
        backend.scale(beta, &grad, &mut scaled)?;
        pass.with_grad(weight, |pass, share, accumulate| {
            let epilogue = Epilogue { accumulate, ..Epilogue::default() };
            backend.gemm((pass.value(x), yes), None, (&scaled, no), epilogue, share)
        })?;
        pass.with_grad(x, |pass, share, accumulate| {
            let epilogue = Epilogue { accumulate, ..Epilogue::default() };
            backend.gemm((&scaled, no), None, (pass.value(weight), yes), epilogue, share)?;
            backend.add_scaled(1.0 - beta, &grad, share)
        })?;
        pass.recycle(scaled);
        pass.recycle(grad);
        Ok(())
    }
}
