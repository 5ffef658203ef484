//! Steps of optimisers on the reference backend.

use super::{RefMatrix, Reference};
use crate::{AdamStep, AdamUpdate, ComputeError, Fits, OptimOps, SgdUpdate};

impl OptimOps for Reference {
    fn run_adam(&self, _: Fits, step: AdamStep, updates: &mut [AdamUpdate<'_, RefMatrix>]) -> Result<(), ComputeError> {
        let [lr, beta1, beta2, eps] = [step.lr, step.beta1, step.beta2, step.eps].map(f64::from);
        let (correction1, correction2) = (1.0 - beta1.powf(step.step as f64), 1.0 - beta2.powf(step.step as f64));
        for AdamUpdate { param, grad, first, second, weight_decay } in updates {
            let decay = f64::from(*weight_decay);
            let (direct, through_gradient) = if step.decoupled { (lr * decay, 0.0) } else { (0.0, decay) };
            let gradient = |r, c, weight: f64| grad.get(r, c) + through_gradient * weight;
            first.update(|r, c, m| beta1 * m + (1.0 - beta1) * gradient(r, c, param.get(r, c)));
            second.update(|r, c, v| beta2 * v + (1.0 - beta2) * gradient(r, c, param.get(r, c)).powi(2));
            param.update(|r, c, weight| {
                let (m, v) = (first.get(r, c) / correction1, second.get(r, c) / correction2);
                weight - direct * weight - lr * m / (v.sqrt() + eps)
            });
        }
        Ok(())
    }

    fn run_sgd(
        &self,
        _: Fits,
        lr: f32,
        momentum: f32,
        updates: &mut [SgdUpdate<'_, RefMatrix>],
    ) -> Result<(), ComputeError> {
        for SgdUpdate { param, grad, velocity, weight_decay } in updates {
            let [lr, momentum, decay] = [lr, momentum, *weight_decay].map(f64::from);
            velocity.update(|r, c, v| momentum * v + grad.get(r, c) + decay * param.get(r, c));
            param.update(|r, c, weight| weight - lr * velocity.get(r, c));
        }
        Ok(())
    }
}
