//! [`Subgraphs`]: subgraphs of the steps of cluster and SAINT batches.

use std::ops::Range;
use std::sync::Arc;

use bitvec::vec::BitVec;
use girih_graph_format::{Csr, NodeId};
use girih_partition::part;
use girih_sampling::{DrawKey, SampleError, Subgraph, SubgraphSampler};

use super::host_batch::HostLoss;

/// Subgraphs of an epoch, several per step, in which each is a graph of its own.
///
/// The loss of a step is the mean over the training nodes of all its subgraphs. If the sampler weights nodes, it is
/// the mean of the subgraphs' losses. Ranks share the subgraphs of a step, so that the sum over ranks is the step of
/// one rank.
pub(super) struct Subgraphs {
    sampler: Arc<dyn SubgraphSampler>,
    /// Number of subgraphs of an epoch.
    n_subgraphs: usize,
    per_step: usize,
    /// For each node, whether its loss counts.
    is_seed: BitVec,
    n_seeds: usize,
}

/// Subgraphs of a step on one rank.
pub(super) struct StepSubgraphs {
    pub(super) joined: Subgraph,
    pub(super) loss: HostLoss,
    /// Number of nodes in the loss of the step, on all ranks.
    pub(super) n_loss: usize,
}

impl Subgraphs {
    /// Steps with `per_step` subgraphs each. `seeds` are the nodes, among `n_nodes`, whose loss counts.
    pub(super) fn new(
        (sampler, n_subgraphs): (Arc<dyn SubgraphSampler>, usize),
        per_step: usize,
        (seeds, n_nodes): (&[NodeId], usize),
    ) -> Self {
        let mut is_seed = BitVec::repeat(false, n_nodes);
        seeds.iter().for_each(|&v| is_seed.set(v as usize, true));
        Self { sampler, n_subgraphs, per_step, is_seed, n_seeds: seeds.len() }
    }

    /// Number of steps of an epoch; the last may have fewer subgraphs.
    pub(super) fn n_steps(&self) -> usize {
        self.n_subgraphs.div_ceil(self.per_step)
    }

    /// Subgraphs of one rank in step `at` of an epoch. Draws depend on the seed and on the number of the epoch.
    ///
    /// # Errors
    /// When the graph is not that of the sampler.
    pub(super) fn of_step(
        &self,
        graph: &Csr,
        (seed, epoch): (u64, u32),
        at: usize,
        (rank, n_ranks): (usize, usize),
    ) -> Result<StepSubgraphs, SampleError> {
        let numbers = self.numbers(at);
        let own = part(&numbers, rank, n_ranks);
        let key = |number: usize| DrawKey::new(seed, epoch, number as u32);
        let sampled = own.clone().map(|number| self.sampler.sample(graph, key(number)));
        let joined = Subgraph::disjoint(sampled.collect::<Result<Vec<_>, _>>()?);
        let is_seed = |node: NodeId| self.is_seed[node as usize];
        let in_loss = |&row: &u32| is_seed(joined.nodes()[row as usize]);
        let rows: Vec<u32> = (0..joined.nodes().len() as u32).filter(in_loss).collect();
        let mut n_loss = rows.len();
        for number in numbers.clone().filter(|number| !own.contains(number)) {
            let nodes = self.sampler.batch_nodes(graph, key(number))?;
            n_loss += nodes.into_iter().filter(|&node| is_seed(node)).count();
        }
        let weights = (!joined.loss_weights.is_empty()).then(|| {
            // Weights give the mean over all nodes, of which only the training nodes count.
            let share = self.is_seed.len() as f32 / self.n_seeds as f32 * n_loss as f32 / numbers.len() as f32;
            rows.iter().map(|&row| joined.loss_weights[row as usize] * share).collect::<Vec<f32>>()
        });
        Ok(StepSubgraphs { joined, loss: HostLoss::Rows { rows, weights }, n_loss })
    }

    /// Numbers of a step's subgraphs in the epoch.
    fn numbers(&self, at: usize) -> Range<usize> {
        let first = at * self.per_step;
        first..(first + self.per_step).min(self.n_subgraphs)
    }
}
