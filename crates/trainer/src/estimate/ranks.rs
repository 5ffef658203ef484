//! [`RankPlanner`]: estimates of training on ranks, for one partition or another.

use std::sync::Arc;

use rayon::prelude::*;

use super::minibatch::PlannedRows;
use super::network::Network;
use super::plan::{Plan, PlanDevice, Share};
use super::sizes::DataSizes;
use super::symbolic::{SymbolicBlocks, SymbolicGraph, SymbolicRank};
use crate::TrainError;
use crate::config::{Combination, ExecutionPlan, RankOptions, TrainConfig, supported};
use crate::minibatch;
use crate::tape::Graph;
use crate::tape::ranks::PartitionedGraph;

/// Session on ranks, to be planned for partitions.
pub struct RankPlanner<'a> {
    /// Configuration of the training.
    pub config: &'a TrainConfig,
    /// Sizes of the data set.
    pub data: &'a DataSizes,
    /// Graph as the network of the configuration reads it.
    pub graph: &'a SymbolicGraph,
    /// Devices of the ranks: one for all of them, or one for each.
    pub devices: &'a [PlanDevice],
    /// Rates of exchanges between ranks.
    pub network: Network,
}

/// Estimates for all ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct RankPlans {
    /// Plan of each rank. If edges are spread evenly, all ranks do alike, and there are only those of the first and
    /// the last.
    pub ranks: Vec<Plan>,
}

impl RankPlans {
    /// Maximum of `bytes` over ranks.
    pub fn most(&self, bytes: impl Fn(&Plan) -> u64) -> u64 {
        self.ranks.iter().map(bytes).max().unwrap_or(0)
    }

    /// Maximum of `seconds` over ranks. Two such maxima need not be of the same rank.
    pub fn longest(&self, seconds: impl Fn(&Plan) -> f64) -> f64 {
        self.ranks.iter().map(seconds).fold(0.0, f64::max)
    }
}

impl RankPlanner<'_> {
    /// Plans of ranks that share the work by these options.
    ///
    /// # Errors
    /// When the configuration is refused, such work does not run on ranks or has no times, or there are more ranks
    /// than nodes.
    pub fn plan(&self, ranks: &RankOptions) -> Result<RankPlans, TrainError> {
        match self.execution(ranks)? {
            ExecutionPlan::Partitioned => self.of_ranks(ranks),
            _ => Err(TrainError::invalid(
                "mini-batches on ranks have no predicted times: plan the bytes of patches, or full batches",
            )),
        }
    }

    /// Plans of ranks that train on mini-batches and each hold a patch, of graph and features or of features alone.
    /// They count bytes only, since exchanges of draws and rows have no times. Each rank is planned as if it owned
    /// all seeds of a batch.
    ///
    /// # Errors
    /// When the configuration is refused, ranks hold no patches or cannot hold patches of such data, or there are more
    /// ranks than nodes.
    pub fn plan_patches(&self, ranks: &RankOptions) -> Result<RankPlans, TrainError> {
        match self.execution(ranks)? {
            ExecutionPlan::Patches => {
                minibatch::check_patches_of(self.data.feature_nnz.is_some())?;
                self.of_ranks(ranks)
            }
            _ => Err(TrainError::invalid(
                "full batches on ranks hold no patches: give --batch neighbor, or plan their partitions",
            )),
        }
    }

    /// Engine that a dry run on these ranks predicts.
    fn execution(&self, ranks: &RankOptions) -> Result<ExecutionPlan, TrainError> {
        let asked = Combination { is_dry_run: true, ..Combination::of(self.config) };
        Ok(supported(&asked.on_ranks(ranks))?)
    }

    fn of_ranks(&self, ranks: &RankOptions) -> Result<RankPlans, TrainError> {
        let Self { config, data, graph, devices, network } = *self;
        let reads_graph = data.input_spec(config)?.graph.is_some();
        let blocks = Arc::new(graph.cut(data.n_nodes, ranks)?);
        let layout = ranks.layout;
        let n_ranks = ranks.grid.ranks();
        let of_rank = |rank: usize| {
            let device = devices[rank * devices.len() / n_ranks];
            let symbolic = device.symbolic(config);
            let ranks = SymbolicRank::ranks(&blocks.plan, rank, network, &symbolic);
            let graph = reads_graph.then(|| {
                Graph::Partitioned(Box::new(PartitionedGraph::new(
                    Arc::clone(&ranks),
                    Arc::<SymbolicBlocks>::clone(&blocks),
                )))
            });
            Plan::on((&symbolic, device), config, (data, PlannedRows::UpperBound), Some(Share { ranks, graph, layout }))
        };
        let ranks: Vec<usize> =
            if graph.is_even() && n_ranks > 1 { vec![0, n_ranks - 1] } else { (0..n_ranks).collect() };
        Ok(RankPlans { ranks: ranks.into_par_iter().map(of_rank).collect::<Result<_, _>>()? })
    }
}
