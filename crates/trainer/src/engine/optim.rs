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

/// Takes a step on parameters. SGD has the first moment as its velocity.
fn take_step<'u, B: Backend>(
    backend: &B,
    config: &OptimizerConfig,
    step: AdamStep,
    updates: impl Iterator<Item = AdamUpdate<'u, B::Matrix>>,
) -> Result<(), ComputeError>
where
    B::Matrix: 'u,
{
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
        take_step(backend, config, step, updates)
    }

    /// Takes a step on some rows of a parameter, each listed once, in a time in proportion to their number.
    fn apply_rows(
        &mut self,
        (backend, pool): (&B, &mut Pool<B>),
        step: AdamStep,
        (id, rows, grad): (ParamId, &RowIds<B>, &B::Matrix),
        params: &mut Params<B>,
    ) -> Result<(), ComputeError> {
        let weight_decay = self.config.decay_of(params.layer(id));
        let (first, second) = &mut self.state[id.index()];
        let whole = [params.value_mut(id), first, second];
        let shape = backend.shape(grad);
        let mut room = || pool.take(backend, shape, Dtype::F32);
        let (mut of_rows, mut negated, mut of_grad) = ([room()?, room()?, room()?], room()?, room()?);
        backend.convert(grad, &mut of_grad)?;
        // A row is emptied by its negative, so that adding a new one overwrites it, to the bit.
        for (whole, of_rows) in whole.into_iter().zip(&mut of_rows) {
            backend.gather_rows(whole, &rows.ids, of_rows)?;
            backend.scale(-1.0, of_rows, &mut negated)?;
            backend.scatter_add_rows(&negated, &rows.ids, whole)?;
        }
        let [param, first, second] = &mut of_rows;
        let update = AdamUpdate { param, grad: &of_grad, first, second, weight_decay };
        take_step(backend, &self.config, step, std::iter::once(update))?;
        let (first, second) = &mut self.state[id.index()];
        for (whole, of_rows) in [params.value_mut(id), first, second].into_iter().zip(&of_rows) {
            backend.scatter_add_rows(of_rows, &rows.ids, whole)?;
        }
        of_rows.into_iter().chain([negated, of_grad]).for_each(|matrix| pool.give(backend, matrix));
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
