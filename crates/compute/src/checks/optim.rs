//! Checks of the steps of optimisers.

use super::{Checked, Kind, expect};
use crate::{ComputeError, Dtype};

/// Checks one step of Adam on `param`.
///
/// # Errors
/// When a shape differs from that of `param`, an operand is not `f32`, or `step` is 0, since the bias correction
/// would divide by zero.
pub fn adam(step: u64, param: Kind, grad: Kind, first: Kind, second: Kind) -> Checked {
    if step == 0 {
        return Err(ComputeError::argument("adam", "step 0; steps count from 1"));
    }
    optimizer("adam", param, &[("grad", grad), ("first moment", first), ("second moment", second)])
}

/// Checks one step of stochastic gradient descent on `param`.
///
/// # Errors
/// When a shape differs from that of `param`, or an operand is not `f32`.
pub fn sgd(param: Kind, grad: Kind, velocity: Kind) -> Checked {
    optimizer("sgd", param, &[("grad", grad), ("velocity", velocity)])
}

/// Checks that parameter, gradient and state have one shape and are `f32`. An update is often smaller than the
/// spacing of 16-bit numbers.
fn optimizer(operation: &'static str, param: Kind, others: &[(&'static str, Kind)]) -> Checked {
    for &(operand, (shape, _)) in others {
        expect(operation, operand, shape, param.0)?;
    }
    match others.iter().chain([&("param", param)]).find(|(_, (_, dtype))| *dtype != Dtype::F32) {
        None => Ok(()),
        Some((operand, (_, dtype))) => {
            Err(ComputeError::argument(operation, format!("{operand} is stored as {dtype:?}; optimisers update f32")))
        }
    }
}
