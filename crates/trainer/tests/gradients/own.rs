//! Gradient of an operation from outside, which is composed of operations of the backend.

use girih_compute::{Backend, ComputeError, Epilogue, Transpose};
use girih_trainer::{BackwardPass, Operation};

use super::*;

/// Product with a weight that is pulled towards the identity: `(1 - β)·X + β·X·W`, for a square `W`.
struct Pulled {
    x: Var,
    weight: Var,
    beta: f32,
}

impl Pulled {
    fn on<B: Backend>(tape: &mut Tape<'_, B>, x: Var, weight: Var, beta: f32) -> Result<Var, ComputeError> {
        let (backend, shape, no) = (tape.backend(), tape.shape(x), Transpose::No);
        let (mut product, mut out) = (tape.activations(shape)?, tape.activations(shape)?);
        backend.gemm((tape.value(x), no), None, (tape.value(weight), no), Epilogue::default(), &mut product)?;
        backend.scale(1.0 - beta, tape.value(x), &mut out)?;
        backend.add_scaled(beta, &product, &mut out)?;
        tape.keep(product);
        Ok(tape.record(out, &[x, weight], Self { x, weight, beta }))
    }
}

impl<B: Backend> Operation<B> for Pulled {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, _out: Var, grad: B::Matrix) -> Result<(), ComputeError> {
        let &Self { x, weight, beta } = self;
        let (backend, no, yes) = (pass.backend(), Transpose::No, Transpose::Yes);
        let mut through = pass.buffer(backend.shape(&grad))?;
        backend.scale(beta, &grad, &mut through)?;
        pass.with_grad(weight, |pass, share, accumulate| {
            let epilogue = Epilogue { accumulate, ..Epilogue::default() };
            backend.gemm((pass.value(x), yes), None, (&through, no), epilogue, share)
        })?;
        pass.with_grad(x, |pass, share, accumulate| {
            let epilogue = Epilogue { accumulate, ..Epilogue::default() };
            backend.gemm((&through, no), None, (pass.value(weight), yes), epilogue, share)?;
            backend.add_scaled(1.0 - beta, &grad, share)
        })?;
        pass.recycle(through);
        pass.recycle(grad);
        Ok(())
    }
}

/// Both operands have other uses, whose gradients are added.
#[test]
fn of_an_operation_from_outside() {
    for targets in [single_targets(), multi_targets()] {
        check_operation(&targets, |tape, of| {
            let (other, square) = (tape.param(of.other), tape.param(of.square));
            let x = tape.combine(&[(1.0, other)], None, Activation::Relu).unwrap();
            let once = Pulled::on(tape, x, square, 0.3).unwrap();
            let twice = Pulled::on(tape, once, square, 0.8).unwrap();
            tape.combine(&[(1.0, twice), (0.5, x)], None, Activation::Identity).unwrap()
        });
    }
}
