//! Steps on rows, composed of other operations, for every backend.

use super::{AdamStep, AdamUpdate, OptimOps, SgdUpdate};
use crate::{ComputeError, Dtype};

/// A step of Adam on some rows of a parameter.
pub(crate) fn adam_rows<B: OptimOps>(
    backend: &B,
    step: AdamStep,
    ids: &B::Ids,
    AdamUpdate { param, grad, first, second, weight_decay }: &mut AdamUpdate<'_, B::Matrix>,
) -> Result<(), ComputeError> {
    let (grad, weight_decay) = (*grad, *weight_decay);
    on_rows(backend, (ids, grad), [param, first, second], |[param, first, second]| {
        backend.adam(step, &mut [AdamUpdate { param, grad, first, second, weight_decay }])
    })
}

/// A step of gradient descent on some rows of a parameter.
pub(crate) fn sgd_rows<B: OptimOps>(
    backend: &B,
    (lr, momentum): (f32, f32),
    ids: &B::Ids,
    SgdUpdate { param, grad, velocity, weight_decay }: &mut SgdUpdate<'_, B::Matrix>,
) -> Result<(), ComputeError> {
    let (grad, weight_decay) = (*grad, *weight_decay);
    on_rows(backend, (ids, grad), [param, velocity], |[param, velocity]| {
        backend.sgd(lr, momentum, &mut [SgdUpdate { param, grad, velocity, weight_decay }])
    })
}

/// Lets `step` change some rows of `whole` matrices, as matrices of the gradient's shape.
fn on_rows<B: OptimOps, const N: usize>(
    backend: &B,
    (ids, grad): (&B::Ids, &B::Matrix),
    whole: [&mut B::Matrix; N],
    step: impl FnOnce([&mut B::Matrix; N]) -> Result<(), ComputeError>,
) -> Result<(), ComputeError> {
    let zeros = || backend.zeros(backend.shape(grad), Dtype::F32);
    let mut of_rows = (0..N).map(|_| zeros()).collect::<Result<Vec<_>, _>>()?;
    let mut negated = zeros()?;
    let mut whole = whole;
    // A row is emptied by its negative, so that adding a new one overwrites it, to the bit.
    for (whole, of_rows) in whole.iter_mut().zip(&mut of_rows) {
        backend.gather_rows(whole, ids, of_rows)?;
        backend.scale(-1.0, of_rows, &mut negated)?;
        backend.scatter_add_rows(&negated, ids, whole)?;
    }
    let mut parts = of_rows.iter_mut();
    step(std::array::from_fn(|_| parts.next().expect("a matrix for each")))?;
    whole.into_iter().zip(&of_rows).try_for_each(|(whole, of_rows)| backend.scatter_add_rows(of_rows, ids, whole))
}
