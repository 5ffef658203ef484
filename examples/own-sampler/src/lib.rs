//! [`Temporal`]: a network whose mini-batches see only edges from before their seeds, outside of girih.
//!
//! Node and edge times are the caller's, as are those of a citation graph: nothing is learned from a paper that nobody
//! has written yet. A rule that only leaves edges out needs no draws of its own: the sampler calls that of girih.

use girih_compute::{Backend, ComputeError};
use girih_graph_format::{Csr, NodeId};
use girih_sampling::{DrawKey, ExcludedEdges, MiniBatch, NeighborSampler, SampleError, Sampler};
use girih_trainer::{BlockDraws, BuildModel, BuildSampler, Dims, Model, ModelConfig, ParamInit};
use serde_json::json;

/// Network of girih on batches whose edges are all older than their oldest seed.
#[derive(Clone, Debug)]
pub struct Temporal {
    /// Network, such as GraphSAGE, which takes the mean over the neighbors that are left.
    pub network: ModelConfig,
    /// Time of each node.
    pub node_times: Vec<f32>,
    /// Time of each edge: the training graph with times as values.
    pub edge_times: Csr,
    /// Time that passes until an edge can be seen.
    pub delay: f32,
}

impl<B: Backend> BuildModel<B> for Temporal {
    /// The sampler's settings are among those of the model: a checkpoint is not resumed with another delay.
    fn config(&self) -> ModelConfig {
        let &ModelConfig { layers, dropout, input_dropout, .. } = &self.network;
        let named = ModelConfig::from_outside("temporal", json!({ "delay": self.delay, "network": self.network }));
        ModelConfig { layers, dropout, input_dropout, ..named }
    }

    fn build(&self, dims: Dims, init: &mut ParamInit<'_, B>) -> Result<Box<dyn Model<B>>, ComputeError> {
        self.network.build(dims, init)
    }

    fn sampler(&self) -> Option<&dyn BuildSampler> {
        Some(self)
    }
}

impl BuildSampler for Temporal {
    fn build_sampler(&self, draws: &BlockDraws<'_>) -> Result<Box<dyn Sampler>, SampleError> {
        let (graph, n_times) = (draws.graph, self.node_times.len());
        if n_times != graph.n_rows() || self.edge_times.n_rows() != graph.n_rows() {
            let message = format!("{n_times} times of nodes for a graph of {}; give each node one", graph.n_rows());
            return Err(SampleError::invalid(message));
        }
        let mut newest_first = Vec::with_capacity(graph.nnz());
        for row in 0..graph.n_rows() {
            for (edge, &column) in graph.row_range(row).zip(graph.row(row)) {
                newest_first.push((self.time_of(row, column)?, edge as u64));
            }
        }
        newest_first.sort_unstable_by(|(a, _), (b, _)| b.total_cmp(a));
        let neighbors = NeighborSampler::new(draws.fan_out.clone(), draws.options)?;
        Ok(Box::new(TemporalSampler {
            neighbors,
            seen_after: self.delay,
            newest_first,
            node_times: self.node_times.clone(),
        }))
    }
}

impl Temporal {
    /// Time of the edge from `column` to `row`. The graph that is sampled may lack some edges of the data.
    fn time_of(&self, row: usize, column: NodeId) -> Result<f32, SampleError> {
        let times = &self.edge_times;
        let at = times.row(row).binary_search(&column).ok().map(|at| times.row_range(row).start + at);
        let time = at.and_then(|at| times.values().map(|values| values[at]));
        time.ok_or_else(|| SampleError::invalid(format!("the edge from node {column} to node {row} has no time")))
    }
}

/// Sampler of neighbors over the edges from before a batch.
struct TemporalSampler {
    neighbors: NeighborSampler,
    seen_after: f32,
    node_times: Vec<f32>,
    /// Time and position of each edge, the latest time first.
    newest_first: Vec<(f32, u64)>,
}

impl Sampler for TemporalSampler {
    /// The cutoff depends on the seeds alone, so that a batch is equal on any thread. A batch costs O(edges after it).
    fn sample_into(
        &self,
        graph: &Csr,
        seeds: &[NodeId],
        key: DrawKey,
        batch: &mut MiniBatch,
    ) -> Result<(), SampleError> {
        let times = seeds.iter().filter_map(|&seed| self.node_times.get(seed as usize));
        let cutoff = times.copied().fold(f32::INFINITY, f32::min) - self.seen_after;
        let n_later = self.newest_first.partition_point(|&(time, _)| time >= cutoff);
        let later = ExcludedEdges::new(self.newest_first[..n_later].iter().map(|&(_, edge)| edge).collect());
        self.neighbors.sample_excluding(graph, seeds, key, &later, batch)
    }
}
