//! [`Optimizer`]: updates parameters with their gradients.

use girih_compute::{AdamStep, AdamUpdate, Backend, ComputeError, Dtype, SgdUpdate};
use girih_graph_format::Matrix;

use crate::config::{Decay, OptimizerConfig, OptimizerKind, Schedule};
use crate::tape::{Gradients, ParamId, Params, Pool, RowGradient, RowIds};

/// Optimiser with its state: two matrices per parameter. Adam uses both as moments, SGD the first as velocity.
pub struct Optimizer<B: Backend> {
    config: OptimizerConfig,
    state: Vec<(B::Matrix, B::Matrix)>,
    step: u64,
}

impl OptimizerConfig {
    /// Learning rate of `epoch` (from 0) out of `epochs`.
    #[must_use]
    pub fn lr_at(&self, epoch: u64, epochs: u64) -> f64 {
        let warmup = if epoch < self.warmup { (epoch + 1) as f64 / (self.warmup + 1) as f64 } else { 1.0 };
        let factor = match self.schedule {
            Schedule::Constant {} => 1.0,
            Schedule::Cosine {} => {
                let share = epoch as f64 / epochs.max(1) as f64;
                (1.0 + (std::f64::consts::PI * share).cos()) / 2.0
            }
            Schedule::Step { every, factor } => factor.powf((epoch / every) as f64),
        };
        self.lr * warmup * factor
    }
}

impl OptimizerConfig {
    /// Weight decay of the parameters of a layer.
    fn decay_of(&self, layer: usize) -> f32 {
        if self.decay == Decay::All || layer == 0 { self.weight_decay as f32 } else { 0.0 }
    }
}

impl<B: Backend> Optimizer<B> {
    /// Optimiser with zero state.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn new(backend: &B, config: &OptimizerConfig, params: &Params<B>) -> Result<Self, ComputeError> {
        let zeros = |param: &B::Matrix| backend.zeros(backend.shape(param), Dtype::F32);
        let state: Result<Vec<_>, _> = params.iter().map(|(_, p)| Ok((zeros(&p.value)?, zeros(&p.value)?))).collect();
        Ok(Self { config: config.clone(), state: state?, step: 0 })
    }

    /// Number of steps taken.
    #[must_use]
    pub fn n_steps(&self) -> u64 {
        self.step
    }

    /// Counts a step at learning rate `lr` and returns its settings, for [`apply`](Self::apply).
    pub fn begin(&mut self, lr: f64) -> AdamStep {
        self.step += 1;
        let config = &self.config;
        AdamStep {
            lr: lr as f32,
            beta1: config.beta1 as f32,
            beta2: config.beta2 as f32,
            eps: config.eps as f32,
            decoupled: config.kind == OptimizerKind::Adamw,
            step: self.step,
        }
    }

    /// Takes a step. Parameters without a gradient stay unchanged. Of those with a gradient of some rows, only these rows
    /// and their state change.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn apply(
        &mut self,
        (backend, pool): (&B, &mut Pool<B>),
        step: AdamStep,
        gradients: &mut Gradients<B>,
        params: &mut Params<B>,
    ) -> Result<(), ComputeError> {
        self.apply_whole(backend, step, gradients, params)?;
        for (id, RowGradient { rows, grad }) in gradients.take_rows() {
            self.apply_rows((backend, pool), step, (id, &rows, &grad), params)?;
            pool.give(backend, grad);
        }
        Ok(())
    }

    /// Takes a step on the parameters with a gradient of all rows.
    fn apply_whole(
        &mut self,
        backend: &B,
        step: AdamStep,
        gradients: &Gradients<B>,
        params: &mut Params<B>,
    ) -> Result<(), ComputeError> {
        let config = &self.config;
        let updates = params.iter_mut().zip(&mut self.state).filter_map(|((id, param), (first, second))| {
            let weight_decay = config.decay_of(param.layer);
            Some(AdamUpdate { param: &mut param.value, grad: gradients.get(id)?, first, second, weight_decay })
        });
        match config.kind {
            OptimizerKind::Adam | OptimizerKind::Adamw => backend.adam(step, &mut updates.collect::<Vec<_>>()),
            OptimizerKind::Sgd => {
                let without_second = |AdamUpdate { param, grad, first, weight_decay, .. }| SgdUpdate {
                    param,
                    grad,
                    velocity: first,
                    weight_decay,
                };
                let momentum = config.momentum as f32;
                backend.sgd(step.lr, momentum, &mut updates.map(without_second).collect::<Vec<_>>())
            }
        }
    }

    /// Takes a step on some rows of a parameter, each listed once, in a time in proportion to their number.
    fn apply_rows(
        &mut self,
        (backend, pool): (&B, &mut Pool<B>),
        step: AdamStep,
        (id, rows, grad): (ParamId, &RowIds<B>, &B::Matrix),
        params: &mut Params<B>,
    ) -> Result<(), ComputeError> {
        let (config, (first, second)) = (&self.config, &mut self.state[id.index()]);
        let weight_decay = config.decay_of(params.layer(id));
        let mut rounded = pool.take(backend, backend.shape(grad), Dtype::F32)?;
        let grad = if backend.dtype(grad) == Dtype::F32 {
            grad
        } else {
            backend.convert(grad, &mut rounded)?;
            &rounded
        };
        let param = params.value_mut(id);
        match config.kind {
            OptimizerKind::Adam | OptimizerKind::Adamw => {
                backend.adam_rows(step, &rows.ids, &mut AdamUpdate { param, grad, first, second, weight_decay })?;
            }
            OptimizerKind::Sgd => {
                let rates = (step.lr, config.momentum as f32);
                backend.sgd_rows(rates, &rows.ids, &mut SgdUpdate { param, grad, velocity: first, weight_decay })?;
            }
        }
        pool.give(backend, rounded);
        Ok(())
    }

    /// State on the host, two matrices per parameter.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn download(&self, backend: &B) -> Result<Vec<(Matrix, Matrix)>, ComputeError> {
        self.state.iter().map(|(a, b)| Ok((backend.download(a)?, backend.download(b)?))).collect()
    }

    /// Restores a state of [`download`](Self::download), taken after `step` steps.
    ///
    /// # Errors
    /// When shapes differ or the backend fails.
    pub fn write(&mut self, backend: &B, state: &[(Matrix, Matrix)], step: u64) -> Result<(), ComputeError> {
        self.step = step;
        for ((first, second), (a, b)) in self.state.iter_mut().zip(state) {
            backend.write(a, first)?;
            backend.write(b, second)?;
        }
        Ok(())
    }
}
