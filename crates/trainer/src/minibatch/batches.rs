//! [`Batches`]: the batches of an epoch on the host.

mod checked;
pub(crate) mod epoch;

use std::ops::Range;
use std::sync::Arc;

use girih_datasets::Labels;
use girih_graph_format::{Csr, FormatError, NodeId};
use girih_partition::part;
use girih_sampling::{
    Block, ClusterSampler, Columns, DrawKey, ExcludedEdges, LayerSampler, LoaderOptions, MiniBatch, NeighborOptions,
    NeighborSampler, Sampler, SeedLoader,
};

use super::Neighborhoods;
use super::host_batch::{HostBatch, HostBlock, HostGraphs, HostLoss, PatchSource};
use super::subgraphs::{StepSubgraphs, Subgraphs};
use super::timed::TimedLinks;
use super::typed::TypedSeeds;
use crate::TrainError;
use crate::config::{BatchKind, DEFAULT_BATCH_SIZE, TrainConfig};
use crate::models::{Adjacency, BlockDraws};
use crate::tasks::links::{Link, LinkEpochs, PairList};

use self::checked::Checked;
pub(crate) use self::epoch::{Drawn, EpochBatches, SeedLists};

/// Stride between the seeds of two runs of one session.
const RUN_STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

/// Source of the batches of a run. A batch depends on it, on the number of the epoch and on its own number.
pub struct Batches<'a> {
    /// Graph whose rows batches have, with its normalisation; `None` where the source has it: a typed graph, or edges in
    /// time.
    rows: Option<(&'a Neighborhoods, Adjacency)>,
    source: Source<'a>,
    seed: u64,
    /// Number of this rank, and number of ranks.
    rank: (usize, usize),
}

/// Settings of the batches of a run of node classification.
pub(crate) struct BatchOptions<'c> {
    pub(crate) config: &'c TrainConfig,
    /// Clusters of cluster batches, if they are known already.
    pub(crate) clusters: Option<Arc<ClusterSampler>>,
    /// Number of the run in its session.
    pub(crate) run: u64,
    /// Whether the first layer reads rows by global ids.
    pub(crate) in_place: bool,
    /// Sampler of the model's own, if it has one.
    pub(crate) sampler: Option<Box<dyn Sampler>>,
    /// Number of this rank, and number of ranks.
    pub(crate) rank: (usize, usize),
}

/// Origin of batches.
enum Source<'a> {
    /// Training nodes in an order drawn for each epoch, and a block for each layer. If true, blocks are drawn for all
    /// seeds of a batch together.
    Seeds(SeedLoader<'a, Box<dyn Sampler>>, bool),
    /// Subgraphs, some for each step.
    Subgraphs(Subgraphs),
    /// Training nodes in an order drawn for each epoch, of which the rank takes those of its patch.
    Patches(&'a dyn PatchSource, Vec<NodeId>),
    /// Training nodes of a typed graph in an order drawn for each epoch, and blocks by edge type for each layer.
    Typed(TypedSeeds<'a>),
    /// Training links in an order drawn for each epoch, the batch size in links, and the sampler of blocks for their
    /// ends.
    Links(LinkEpochs<'a>, usize, NeighborSampler),
    /// Training edges with their times, of one run.
    Timed(&'a TimedLinks, u64),
}

impl<'a> Batches<'a> {
    /// Batches of a run, on nodes of `train` that have labels.
    ///
    /// # Errors
    /// When the settings do not fit this graph.
    pub(crate) fn new(
        neighborhoods: &'a Neighborhoods,
        adjacency: Adjacency,
        (labels, train): (&Labels, &[NodeId]),
        BatchOptions { config, clusters, run, in_place, sampler, rank }: BatchOptions<'_>,
    ) -> Result<Self, TrainError> {
        let seeds: Vec<NodeId> = train.iter().copied().filter(|&v| labels.is_labelled(v)).collect();
        let seed = seed_of_run(config, run);
        let batch_size = config.batch_size.unwrap_or(DEFAULT_BATCH_SIZE);
        let source = if config.batch.kind.has_blocks() {
            let options = LoaderOptions { batch_size, seed, ..LoaderOptions::default() };
            // A sampler from outside may draw in any way for the seeds that it gets.
            let is_joint = sampler.is_some() || config.batch.kind == BatchKind::Layer;
            let sampler = match sampler {
                Some(sampler) => Box::new(Checked::new(sampler, config.model.layers, neighborhoods.needs_edge_ids())),
                None => block_sampler(config, neighborhoods, in_place)?,
            };
            Source::Seeds(SeedLoader::new(neighborhoods.graph(), sampler, seeds, options)?, is_joint)
        } else {
            let sampler = config.batch.subgraph_sampler(neighborhoods.graph(), clusters, (batch_size, seed))?;
            Source::Subgraphs(Subgraphs::new(sampler, config.batch.subgraphs_per_step, (&seeds, labels.n_nodes())))
        };
        Ok(Self { rows: Some((neighborhoods, adjacency)), source, seed, rank })
    }

    /// Batches of run `run` of link prediction. With `in_place`, the first layer reads rows by global ids.
    ///
    /// # Errors
    /// When the settings do not fit this graph.
    pub fn of_links(
        neighborhoods: &'a Neighborhoods,
        adjacency: Adjacency,
        links: LinkEpochs<'a>,
        config: &TrainConfig,
        (run, in_place): (u64, bool),
    ) -> Result<Self, TrainError> {
        let sampler = neighbor_sampler(config, neighborhoods, in_place)?;
        let source = Source::Links(links, config.batch_size.unwrap_or(DEFAULT_BATCH_SIZE), sampler);
        let rows = Some((neighborhoods, adjacency));
        Ok(Self { rows, source, seed: seed_of_run(config, run), rank: (0, 1) })
    }

    /// Batches of run `run` of links in time.
    pub(crate) fn of_timed(links: &'a TimedLinks, config: &TrainConfig, run: u64) -> Self {
        Self { rows: None, source: Source::Timed(links, run), seed: seed_of_run(config, run), rank: (0, 1) }
    }

    /// Batches of a typed graph, on one of several ranks.
    pub(crate) fn of_typed(seeds: TypedSeeds<'a>, rank: (usize, usize)) -> Self {
        Self { rows: None, seed: seeds.seed(), source: Source::Typed(seeds), rank }
    }

    /// Batches of run `run` on ranks that each hold a patch; `seeds` are the labelled training nodes of all ranks.
    pub(crate) fn of_patches(
        neighborhoods: &'a Neighborhoods,
        adjacency: Adjacency,
        source: &'a dyn PatchSource,
        seeds: Vec<NodeId>,
        (config, run): (&TrainConfig, u64),
    ) -> Self {
        let seed = seed_of_run(config, run);
        let rows = Some((neighborhoods, adjacency));
        Self { rows, source: Source::Patches(source, seeds), seed, rank: (0, 1) }
    }

    /// Whether ranks make each batch together.
    pub(crate) fn are_made_together(&self) -> bool {
        matches!(self.source, Source::Patches(..))
    }

    /// This rank's range of the seeds of a batch, where ranks hold the whole graph.
    fn share(&self, n_seeds: usize) -> Range<usize> {
        let (rank, n_ranks) = self.rank;
        part(&(0..n_seeds), rank, n_ranks)
    }

    /// Graph whose rows batches have, and its normalisation.
    fn rows(&self) -> (&'a Neighborhoods, Adjacency) {
        self.rows.expect("batches of a graph without types")
    }

    /// Batch with the rows of its blocks.
    fn of_blocks(&self, batch: &MiniBatch, of_loss: (HostLoss, usize)) -> Result<HostBatch, FormatError> {
        self.of_blocks_weighted((batch, None), of_loss)
    }

    /// As [`of_blocks`](Self::of_blocks), but `brought` can hold the weights of all edges, block after block.
    fn of_blocks_weighted(
        &self,
        (batch, brought): (&MiniBatch, Option<&[f32]>),
        (loss, n_loss): (HostLoss, usize),
    ) -> Result<HostBatch, FormatError> {
        let mut first = 0;
        let layer = |block: &Block| {
            let edges = first..first + block.n_edges();
            first = edges.end;
            HostBlock::new(self.rows().0, block, brought.map(|weights| &weights[edges]))
        };
        let blocks = batch.blocks.iter().map(layer).collect::<Result<Vec<_>, FormatError>>()?;
        let reads_in_place = blocks.first().is_some_and(|block| block.in_place.is_some());
        Ok(HostBatch {
            graphs: HostGraphs::Blocks(blocks),
            inputs: if reads_in_place { Vec::new() } else { batch.inputs().to_vec() },
            rows: None,
            outputs: batch.seeds().to_vec(),
            loss,
            n_loss,
        })
    }

    /// Batch of pairs, with blocks for their ends. Its links carry no messages in either direction, since that would
    /// leak the answer.
    fn of_pairs(&self, pairs: &PairList, sampler: &NeighborSampler, key: DrawKey) -> Result<HostBatch, TrainError> {
        let graph = self.rows().0.graph();
        let mut seeds: Vec<NodeId> = pairs.ends.iter().flatten().copied().collect();
        seeds.sort_unstable();
        seeds.dedup();
        let mut batch = MiniBatch::default();
        sampler.sample_excluding(graph, &seeds, key, &edges_of(graph, pairs.links()), &mut batch)?;
        let place = |node: NodeId| seeds.binary_search(&node).expect("ends are seeds") as NodeId;
        let ends: Vec<Link> = pairs.ends.iter().map(|pair| pair.map(place)).collect();
        let n_loss = ends.len();
        Ok(self.of_blocks(&batch, (HostLoss::Pairs(PairList { ends, n_links: pairs.n_links }), n_loss))?)
    }

    /// Batch of a step's subgraphs.
    fn of_subgraphs(&self, StepSubgraphs { joined, loss, n_loss }: StepSubgraphs) -> Result<HostBatch, FormatError> {
        let block = joined.block;
        // A sampler with loss weights also has edge weights, for rows of the `Â` of the whole graph. Other subgraphs
        // are graphs of their own.
        let (neighborhoods, adjacency) = self.rows();
        let graphs = if joined.loss_weights.is_empty() {
            HostGraphs::Plain(weighted_edges(neighborhoods, &block)?, adjacency)
        } else {
            HostGraphs::Weighted(neighborhoods.rows(&block)?)
        };
        Ok(HostBatch { graphs, inputs: block.nodes.clone(), rows: None, outputs: block.nodes, loss, n_loss })
    }
}

/// Edges of a subgraph with their weights in the graph.
fn weighted_edges(neighborhoods: &Neighborhoods, block: &Block) -> Result<Csr, FormatError> {
    let pattern = block.to_csr()?;
    match neighborhoods.graph().values() {
        None => Ok(pattern),
        // Nodes ascend, so that entries of a row are in the order of the graph.
        Some(values) => {
            let weights: Vec<f32> = block.edge_ids.iter().map(|&edge| values[edge as usize]).collect();
            pattern.with_values(Some(weights.into()))
        }
    }
}

/// Seed of the draws of a run.
pub(super) fn seed_of_run(config: &TrainConfig, run: u64) -> u64 {
    config.seed.wrapping_add(run.wrapping_mul(RUN_STRIDE))
}

/// Edges of links, in each direction that the graph has.
fn edges_of(graph: &Csr, links: &[Link]) -> ExcludedEdges {
    let edge = |row: NodeId, column: NodeId| {
        let at = graph.row(row as usize).binary_search(&column).ok()?;
        Some((graph.row_range(row as usize).start + at) as u64)
    };
    ExcludedEdges::new(links.iter().flat_map(|&[u, v]| [edge(u, v), edge(v, u)]).flatten().collect())
}

/// Sampler of the blocks of a batch: layer by layer, or neighbors of each node.
fn block_sampler(
    config: &TrainConfig,
    neighborhoods: &Neighborhoods,
    in_place: bool,
) -> Result<Box<dyn Sampler>, TrainError> {
    if config.batch.kind == BatchKind::Layer {
        let fan_out = config.batch.fan_out(config.model.layers)?;
        return Ok(Box::new(LayerSampler::ladies(fan_out, config.batch.replace)));
    }
    Ok(Box::new(neighbor_sampler(config, neighborhoods, in_place)?))
}

/// Sampler of neighbors of each node. With `in_place`, the columns of the first layer's block are global ids.
pub(super) fn neighbor_sampler(
    config: &TrainConfig,
    neighborhoods: &Neighborhoods,
    in_place: bool,
) -> Result<NeighborSampler, TrainError> {
    let BlockDraws { fan_out, options, .. } = block_draws(config, neighborhoods, in_place)?;
    Ok(NeighborSampler::new(fan_out, options)?)
}

/// Draws that the sampler of blocks of a batch makes.
pub(super) fn block_draws<'g>(
    config: &TrainConfig,
    neighborhoods: &'g Neighborhoods,
    in_place: bool,
) -> Result<BlockDraws<'g>, TrainError> {
    let options = NeighborOptions {
        replace: config.batch.replace,
        edge_ids: neighborhoods.needs_edge_ids(),
        inputs: if in_place { Columns::Global } else { Columns::Local },
        ..NeighborOptions::default()
    };
    Ok(BlockDraws { graph: neighborhoods.graph(), fan_out: config.batch.fan_out(config.model.layers)?, options })
}
