//! [`OptimOps`]: steps of optimisers.

mod composed;

use crate::checks::{self, Checked};
use crate::{ComputeError, DenseOps, Dtype, Memory, Shape};

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

/// Steps of optimisers on all parameters of a model, or on some rows of one.
pub trait OptimOps: DenseOps + Sized {
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

        /// One step of Adam on some rows of a parameter. `ids` lists each of them once, and the gradient has these rows
        /// alone, in that order. Other rows of the parameter and its moments stay as they are.
        ///
        /// # Errors
        /// As [`adam`](Self::adam), and when an id is out of range.
        fn adam_rows, run_adam_rows(
            &self,
            step: AdamStep,
            ids: &Self::Ids,
            update: &mut AdamUpdate<'_, Self::Matrix>,
        ) -> Result<(), ComputeError> {
            const OPERATION: &str = "adam_rows";
            if step.step == 0 {
                return Err(ComputeError::argument(OPERATION, "step 0; steps count from 1"));
            }
            let AdamUpdate { param, grad, first, second, .. } = &*update;
            check_update(self, OPERATION, param, &[("first moment", first), ("second moment", second)])?;
            check_rows(self, OPERATION, (param, grad), ids)
        } else {
            composed::adam_rows(self, step, ids, update)
        }

        /// One step of stochastic gradient descent on some rows of a parameter, as [`adam_rows`](Self::adam_rows).
        /// `rates` are the learning rate and the momentum.
        ///
        /// # Errors
        /// As [`sgd`](Self::sgd), and when an id is out of range.
        fn sgd_rows, run_sgd_rows(
            &self,
            rates: (f32, f32),
            ids: &Self::Ids,
            update: &mut SgdUpdate<'_, Self::Matrix>,
        ) -> Result<(), ComputeError> {
            const OPERATION: &str = "sgd_rows";
            let SgdUpdate { param, grad, velocity, .. } = &*update;
            check_update(self, OPERATION, param, &[("velocity", velocity)])?;
            check_rows(self, OPERATION, (param, grad), ids)
        } else {
            composed::sgd_rows(self, rates, ids, update)
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

/// Checks that a gradient has the listed rows of a parameter, as `f32`.
fn check_rows<B: Memory + ?Sized>(
    device: &B,
    operation: &'static str,
    (param, grad): (&B::Matrix, &B::Matrix),
    ids: &B::Ids,
) -> Checked {
    let (range, of_param) = (device.id_range(ids), device.shape(param));
    checks::expect(operation, "grad", device.shape(grad), Shape::new(range.len, of_param.cols))?;
    range.within(operation, of_param.rows)?;
    check_f32(device, operation, ("grad", grad))
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
    others.iter().chain([&("param", param)]).try_for_each(|&named| check_f32(device, operation, named))
}

fn check_f32<B: Memory + ?Sized>(
    device: &B,
    operation: &'static str,
    (name, matrix): (&'static str, &B::Matrix),
) -> Checked {
    let dtype = device.dtype(matrix);
    if dtype == Dtype::F32 {
        return Ok(());
    }
    Err(ComputeError::argument(operation, format!("{name} is stored as {dtype:?}; optimisers update f32")))
}
