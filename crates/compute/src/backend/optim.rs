//! [`OptimOps`]: steps of optimisers.

use crate::checks::{self, Checked};
use crate::{ComputeError, Dtype, Memory};

/// One step of Adam or AdamW (Loshchilov and Hutter, ICLR 2019).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamStep {
    /// Learning rate of this step.
    pub lr: f32,
    /// Decay rate of the first moment.
    pub beta1: f32,
    /// Decay rate of the second moment.
    pub beta2: f32,
    /// Constant added to the square root of the second moment.
    pub eps: f32,
    /// If true, AdamW: the weights decay directly, in proportion to `lr`, instead of through the gradient.
    pub decoupled: bool,
    /// Number of this step, from 1. The bias correction of the moments uses it.
    pub step: u64,
}

/// Parameter and state for a step of Adam. All matrices have one shape and are `f32`.
#[derive(Debug)]
pub struct AdamUpdate<'a, M> {
    /// Parameter, updated in place.
    pub param: &'a mut M,
    /// Gradient of the parameter.
    pub grad: &'a M,
    /// First moment, updated in place.
    pub first: &'a mut M,
    /// Second moment, updated in place.
    pub second: &'a mut M,
    /// Weight decay; 0 for none.
    pub weight_decay: f32,
}

/// Parameter and state for a step of stochastic gradient descent. All matrices have one shape and are `f32`.
#[derive(Debug)]
pub struct SgdUpdate<'a, M> {
    /// Parameter, updated in place.
    pub param: &'a mut M,
    /// Gradient of the parameter.
    pub grad: &'a M,
    /// Velocity, updated in place.
    pub velocity: &'a mut M,
    /// Weight decay; 0 for none.
    pub weight_decay: f32,
}

/// Steps of optimisers on all parameters of a model.
pub trait OptimOps: Memory {
    checked! {
        /// One step of Adam on all parameters of a model. One call for all helps because many parameters are small.
        ///
        /// # Errors
        /// On shapes that do not fit, other storage than `f32`, or step 0.
        fn adam, run_adam(
            &self,
            step: AdamStep,
            updates: &mut [AdamUpdate<'_, Self::Matrix>],
        ) -> Result<(), ComputeError> {
            if step.step == 0 {
                return Err(ComputeError::argument("adam", "step 0; steps count from 1"));
            }
            for AdamUpdate { param, grad, first, second, .. } in &*updates {
                let others = [("grad", *grad), ("first moment", first), ("second moment", second)];
                check_update(self, "adam", param, &others)?;
            }
            Ok(())
        }

        /// One step of stochastic gradient descent on all parameters of a model:
        /// `v = momentum·v + grad + weight_decay·param`, then `param -= lr·v`.
        ///
        /// # Errors
        /// On shapes that do not fit, or other storage than `f32`.
        fn sgd, run_sgd(
            &self,
            lr: f32,
            momentum: f32,
            updates: &mut [SgdUpdate<'_, Self::Matrix>],
        ) -> Result<(), ComputeError> {
            for SgdUpdate { param, grad, velocity, .. } in &*updates {
                check_update(self, "sgd", param, &[("grad", *grad), ("velocity", velocity)])?;
            }
            Ok(())
        }
    }
}

/// Checks that a parameter and the other matrices of its update have one shape and are `f32`. An update is often
/// smaller than the spacing of 16-bit numbers.
fn check_update<B: Memory + ?Sized>(
    device: &B,
    operation: &'static str,
    param: &B::Matrix,
    others: &[(&'static str, &B::Matrix)],
) -> Checked {
    for &(name, other) in others {
        checks::expect(operation, name, device.shape(other), device.shape(param))?;
    }
    for &(name, matrix) in others.iter().chain([&("param", param)]) {
        let dtype = device.dtype(matrix);
        if dtype != Dtype::F32 {
            let what = format!("{name} is stored as {dtype:?}; optimisers update f32");
            return Err(ComputeError::argument(operation, what));
        }
    }
    Ok(())
}
