//! `cuda/optim.cu`: optimiser steps.

use cudarc::driver::{LaunchConfig, PushKernelArg};
use girih_compute::{AdamStep, AdamUpdate, ComputeError, Fits, OptimOps, SgdUpdate};

use crate::abi::{BLOCK, StepRates, UPDATES_MAX, Update, Updates};
use crate::compile::Source;
use crate::cuda::Cuda;
use crate::matrix::CudaMatrix;

/// Elements that a block updates.
const PIECE: u64 = 4 * BLOCK as u64;
/// Parameters that one launch updates, and its number of blocks.
struct Table {
    updates: Updates,
    n_blocks: u32,
}

impl Table {
    /// Creates a table of at most [`UPDATES_MAX`] parameters, none of them empty.
    fn new(parameters: &[Update]) -> Self {
        let mut updates = Updates { of: [Update::default(); UPDATES_MAX] };
        let mut n_blocks = 0;
        for (update, parameter) in updates.of.iter_mut().zip(parameters) {
            n_blocks += parameter.n.div_ceil(PIECE) as u32;
            *update = Update { end: n_blocks, ..*parameter };
        }
        Self { updates, n_blocks }
    }

    fn config(&self) -> LaunchConfig {
        LaunchConfig { grid_dim: (self.n_blocks, 1, 1), block_dim: (BLOCK, 1, 1), shared_mem_bytes: 0 }
    }
}

/// Splits parameters into tables, one per launch; drops empty ones.
fn tables(parameters: impl Iterator<Item = Update>) -> Vec<Table> {
    let parameters: Vec<Update> = parameters.filter(|parameter| parameter.n > 0).collect();
    parameters.chunks(UPDATES_MAX).map(Table::new).collect()
}

impl OptimOps for Cuda {
    fn run_adam(
        &self,
        _: Fits,
        step: AdamStep,
        updates: &mut [AdamUpdate<'_, CudaMatrix>],
    ) -> Result<(), ComputeError> {
        let parameter = |update: &AdamUpdate<'_, CudaMatrix>| {
            let decay = update.weight_decay;
            let (coupled, decoupled) = if step.decoupled { (0.0, decay) } else { (decay, 0.0) };
            let second = self.address(update.second).at;
            Update { second, decoupled, ..self.parameter(update.param, update.grad, update.first, coupled) }
        };
        let (rates, stored) = (StepRates::of(&step), self.recorder.rates(|announced| *announced == step)?);
        let kernel = self.kernel("adam", Source::OPTIM, "adam", &[])?;
        for table in tables(updates.iter().map(parameter)) {
            let mut launch = self.device.stream.launch_builder(&kernel);
            launch.arg(&table.updates).arg(&step.beta1).arg(&step.beta2);
            launch.arg(&step.eps).arg(&rates).arg(&stored);
            // SAFETY: all four matrices of an update hold `n` floats, all but the gradient are ours to write, and the
            // blocks are those of the table; stored rates live as long as the graph that this is captured for.
            unsafe { launch.launch(table.config()) }.map_err(Self::failed("adam"))?;
        }
        Ok(())
    }

    fn run_sgd(
        &self,
        _: Fits,
        lr: f32,
        momentum: f32,
        updates: &mut [SgdUpdate<'_, CudaMatrix>],
    ) -> Result<(), ComputeError> {
        let parameter = |update: &SgdUpdate<'_, CudaMatrix>| {
            self.parameter(update.param, update.grad, update.velocity, update.weight_decay)
        };
        let stored = self.recorder.rates(|announced| announced.lr == lr)?;
        let kernel = self.kernel("sgd", Source::OPTIM, "sgd", &[])?;
        for table in tables(updates.iter().map(parameter)) {
            let mut launch = self.device.stream.launch_builder(&kernel);
            launch.arg(&table.updates).arg(&momentum).arg(&lr).arg(&stored);
            // SAFETY: all three matrices of an update hold `n` floats, parameter and velocity are ours to write, and
            // the blocks are those of the table; stored rates live as long as the graph that this is captured for.
            unsafe { launch.launch(table.config()) }.map_err(Self::failed("sgd"))?;
        }
        Ok(())
    }
}

impl Cuda {
    /// Addresses of a parameter, its gradient and its first state.
    fn parameter(&self, param: &CudaMatrix, grad: &CudaMatrix, first: &CudaMatrix, coupled: f32) -> Update {
        let [param_at, grad, first] = [param, grad, first].map(|matrix| self.address(matrix).at);
        Update { param: param_at, grad, first, n: param.len() as u64, coupled, ..Update::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_of_every_parameter_has_one_place() {
        let lengths: Vec<u64> = (0..150).map(|k| [0, 1, PIECE - 1, PIECE, PIECE + 1, 7 * PIECE][k % 6]).collect();
        let parameters = lengths.iter().enumerate().map(|(k, &n)| Update { param: k as u64, n, ..Update::default() });
        let tables = tables(parameters);
        let mut covered = vec![0; lengths.len()];
        for table in &tables {
            for block in 0..table.n_blocks {
                // A block of the kernel finds its parameter in this way.
                let k = table.updates.of.iter().position(|update| block < update.end).unwrap();
                let before = if k > 0 { table.updates.of[k - 1].end } else { 0 };
                let update = table.updates.of[k];
                covered[update.param as usize] += PIECE.min(update.n - u64::from(block - before) * PIECE);
            }
        }
        assert_eq!(covered, lengths);
        assert_eq!(tables.len(), 125usize.div_ceil(UPDATES_MAX), "one launch for as many as it carries");
    }

    #[test]
    fn a_table_fits_into_the_arguments_of_a_launch() {
        let values = 3 * size_of::<f32>() + size_of::<StepRates>() + size_of::<u64>();
        assert!(size_of::<Updates>() + values <= 4096);
    }
}
