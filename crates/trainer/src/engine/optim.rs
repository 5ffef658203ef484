//! [`Optimizer`]: updates parameters with their gradients.

use girih_compute::{AdamStep, AdamUpdate, Backend, ComputeError, Dtype, SgdUpdate};
use girih_graph_format::Matrix;

use crate::config::{Decay, OptimizerConfig, OptimizerKind, Schedule};
use crate::tape::{Gradients, Params};

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

    /// Takes a step. Parameters without a gradient stay unchanged.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn apply(
        &mut self,
        backend: &B,
        step: AdamStep,
        gradients: &Gradients<B>,
        params: &mut Params<B>,
    ) -> Result<(), ComputeError> {
        let config = &self.config;
        let updates = params.iter_mut().zip(&mut self.state).filter_map(|((id, param), (first, second))| {
            let decays = config.decay == Decay::All || param.layer == 0;
            let weight_decay = if decays { config.weight_decay as f32 } else { 0.0 };
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
