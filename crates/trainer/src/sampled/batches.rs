//! [`Batches`]: the batches of an epoch on the host.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use girih_datasets::Labels;
use girih_graph_format::{Csr, FormatError, NodeId};
use girih_partition::part;
use girih_sampling::{
    Block, ClusterSampler, Columns, DrawKey, EpochPlan, ExcludedEdges, LayerSampler, LoaderOptions, MiniBatch,
    NeighborOptions, NeighborSampler, Sampler, SeedLoader,
};

use super::Neighborhoods;
use super::patches::{BatchRows, PatchSource};
use super::subgraphs::{StepSubgraphs, Subgraphs};
use crate::TrainError;
use crate::batching::{BatchKind, DEFAULT_BATCH_SIZE};
use crate::config::TrainConfig;
use crate::inputs::Adjacency;
use crate::links::{EpochLinks, Link, LinkEpochs, PairList};

/// Stride between the seeds of two runs of one session.
const RUN_STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

/// Source of the batches of a run. A batch depends on it, on the number of the epoch and on its own number.
pub(crate) struct Batches<'a> {
    neighborhoods: &'a Neighborhoods,
    adjacency: Adjacency,
    source: Source<'a>,
    seed: u64,
    /// Number of this rank, and number of ranks.
    rank: (usize, usize),
}

/// Origin of batches.
enum Source<'a> {
    /// Training nodes in an order drawn for each epoch, and a block for each layer. If true, a layer is drawn for all
    /// seeds of a batch together.
    Seeds(SeedLoader<'a, Box<dyn Sampler>>, bool),
    /// Subgraphs, some for each step.
    Subgraphs(Subgraphs),
    /// Training nodes in an order drawn for each epoch, of which the rank takes those of its patch.
    Patches(&'a dyn PatchSource, Vec<NodeId>),
    /// Training links in an order drawn for each epoch, the batch size in links, and the sampler of blocks for their
    /// ends.
    Links(LinkEpochs<'a>, usize, NeighborSampler),
}

/// Draws of an epoch that precede its batches.
enum Plan {
    /// Seeds of each batch.
    Seeds(EpochPlan),
    Subgraphs,
    /// Links of each batch.
    Links(EpochLinks),
}

/// Batches of one epoch.
pub(crate) struct EpochBatches<'b> {
    batches: &'b Batches<'b>,
    epoch: u32,
    plan: Plan,
}

/// Mini-batch on the host: matrices, and global node ids.
pub(crate) struct HostBatch {
    /// Adjacency of each layer.
    pub(crate) graphs: HostGraphs,
    /// Nodes whose features the first layer reads; empty if it reads them in place.
    pub(crate) inputs: Vec<NodeId>,
    /// Features of the inputs, where ranks hold patches.
    pub(crate) rows: Option<BatchRows>,
    /// Nodes with logits. Where ranks hold patches, ids count from the rank's first node.
    pub(crate) outputs: Vec<NodeId>,
    pub(crate) loss: HostLoss,
    /// Number of nodes or pairs in the loss of the whole batch, on all ranks.
    pub(crate) n_loss: usize,
}

/// Targets of the loss of a batch.
pub(crate) enum HostLoss {
    /// Some of the outputs.
    Rows {
        /// Positions in `outputs`.
        rows: Vec<u32>,
        /// Loss weight of each row, with a mean of one over many batches; `None` for equal weights.
        weights: Option<Vec<f32>>,
    },
    /// Pairs of positions in `outputs`.
    Pairs(PairList),
}

/// Adjacency of each layer, on the host.
pub(crate) enum HostGraphs {
    /// Rows of `Â`, for each layer.
    Blocks(Vec<HostBlock>),
    /// Rows of `Â` among the nodes of a subgraph.
    Weighted(Csr),
    /// Graph of its own, not yet normalised.
    Plain(Csr),
}

/// Rows of `Â` for one layer.
pub(crate) struct HostBlock {
    pub(crate) rows: Csr,
    /// Nodes of the destinations, if columns are global ids. Otherwise `None`: the destinations are the first
    /// columns.
    pub(crate) in_place: Option<Vec<NodeId>>,
}

impl HostBlock {
    /// Rows of `Â` for a block. `brought` are weights of its edges that came from other ranks.
    pub(crate) fn new(
        neighborhoods: &Neighborhoods,
        block: &Block,
        brought: Option<&[f32]>,
    ) -> Result<Self, FormatError> {
        let in_place = (block.columns == Columns::Global).then(|| block.destinations().to_vec());
        let rows = match brought {
            None => neighborhoods.rows(block)?,
            Some(weights) => neighborhoods.rows_weighted(block, |edge| weights[edge])?,
        };
        Ok(Self { rows, in_place })
    }
}

impl<'a> Batches<'a> {
    /// Batches of run `run`, on nodes of `train` that have labels. Cluster batches need the clusters. With
    /// `in_place`, the first layer reads rows by global ids.
    ///
    /// # Errors
    /// When the settings do not fit this graph.
    pub(crate) fn new(
        neighborhoods: &'a Neighborhoods,
        adjacency: Adjacency,
        (labels, train): (&Labels, &[NodeId]),
        (config, clusters): (&TrainConfig, Option<Arc<ClusterSampler>>),
        (run, in_place): (u64, bool),
        rank: (usize, usize),
    ) -> Result<Self, TrainError> {
        let seeds: Vec<NodeId> = train.iter().copied().filter(|&v| labels.is_labelled(v)).collect();
        let seed = seed_of_run(config, run);
        let batch_size = config.batch_size.unwrap_or(DEFAULT_BATCH_SIZE);
        let source = if config.batch.kind.has_blocks() {
            let options = LoaderOptions { batch_size, seed, ..LoaderOptions::default() };
            let sampler = block_sampler(config, neighborhoods, in_place)?;
            let loader = SeedLoader::new(neighborhoods.graph(), sampler, seeds, options)?;
            Source::Seeds(loader, config.batch.kind == BatchKind::Layer)
        } else {
            let sampler = config.batch.subgraph_sampler(neighborhoods.graph(), clusters, (batch_size, seed))?;
            Source::Subgraphs(Subgraphs::new(sampler, config.batch.subgraphs_per_step, (&seeds, labels.n_nodes())))
        };
        Ok(Self { neighborhoods, adjacency, source, seed, rank })
    }

    /// Batches of run `run` of link prediction. With `in_place`, the first layer reads rows by global ids.
    ///
    /// # Errors
    /// When the settings do not fit this graph.
    pub(crate) fn of_links(
        neighborhoods: &'a Neighborhoods,
        adjacency: Adjacency,
        links: LinkEpochs<'a>,
        config: &TrainConfig,
        (run, in_place): (u64, bool),
    ) -> Result<Self, TrainError> {
        let sampler = neighbor_sampler(config, neighborhoods, in_place)?;
        let source = Source::Links(links, config.batch_size.unwrap_or(DEFAULT_BATCH_SIZE), sampler);
        Ok(Self { neighborhoods, adjacency, source, seed: seed_of_run(config, run), rank: (0, 1) })
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
        Self { neighborhoods, adjacency, source: Source::Patches(source, seeds), seed, rank: (0, 1) }
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

    /// Normalisation of the graph.
    pub(crate) fn adjacency(&self) -> Adjacency {
        self.adjacency
    }

    /// Batches of an epoch.
    pub(crate) fn epoch(&self, epoch: u64) -> EpochBatches<'_> {
        let plan = match &self.source {
            Source::Seeds(loader, _) => Plan::Seeds(loader.plan(epoch as u32)),
            Source::Patches(source, seeds) => {
                let options = LoaderOptions { seed: self.seed, ..source.options() };
                Plan::Seeds(EpochPlan::new(seeds.clone(), options, epoch as u32))
            }
            Source::Subgraphs(..) => Plan::Subgraphs,
            Source::Links(links, batch_size, _) => Plan::Links(links.epoch(epoch, *batch_size)),
        };
        EpochBatches { batches: self, epoch: epoch as u32, plan }
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
            HostBlock::new(self.neighborhoods, block, brought.map(|weights| &weights[edges]))
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
        let graph = self.neighborhoods.graph();
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
        let graphs = if joined.loss_weights.is_empty() {
            HostGraphs::Plain(self.weighted_edges(&block)?)
        } else {
            HostGraphs::Weighted(self.neighborhoods.rows(&block)?)
        };
        Ok(HostBatch { graphs, inputs: block.nodes.clone(), rows: None, outputs: block.nodes, loss, n_loss })
    }

    /// Edges of a subgraph with their weights in the graph.
    fn weighted_edges(&self, block: &Block) -> Result<Csr, FormatError> {
        let pattern = block.to_csr()?;
        match self.neighborhoods.graph().values() {
            None => Ok(pattern),
            // Nodes ascend, so that entries of a row are in the order of the graph.
            Some(values) => {
                let weights: Vec<f32> = block.edge_ids.iter().map(|&edge| values[edge as usize]).collect();
                pattern.with_values(Some(weights.into()))
            }
        }
    }
}

/// Seeds, batch by batch.
pub(crate) trait SeedLists {
    /// Number of batches.
    fn n_batches(&self) -> usize;

    /// Seeds of batch number `at`.
    fn seeds(&self, at: usize) -> Drawn<'_>;
}

/// Seeds of a batch on this rank, with the key of their draws.
pub(crate) struct Drawn<'e> {
    /// Seeds of this rank.
    pub(crate) mine: Cow<'e, [NodeId]>,
    /// Node id that labels begin with: where ranks hold patches, the first of the rank's own nodes, else zero.
    pub(crate) first: NodeId,
    /// Number of seeds on all ranks.
    pub(crate) n_all: usize,
    pub(crate) key: DrawKey,
}

impl SeedLists for EpochBatches<'_> {
    /// # Panics
    /// When batches are not made of seeds that every rank knows.
    fn seeds(&self, at: usize) -> Drawn<'_> {
        let Plan::Seeds(plan) = &self.plan else { panic!("batches of seeds") };
        let seeds = plan.seeds(at);
        let (mine, first) = match &self.batches.source {
            Source::Patches(source, _) => {
                let own = source.own();
                (seeds.iter().copied().filter(|seed| own.contains(seed)).collect(), own.start)
            }
            _ => (Cow::Borrowed(&seeds[self.batches.share(seeds.len())]), 0),
        };
        Drawn { mine, first, n_all: seeds.len(), key: plan.key(at) }
    }

    fn n_batches(&self) -> usize {
        match (&self.plan, &self.batches.source) {
            (Plan::Seeds(plan), _) => plan.n_batches(),
            (Plan::Links(plan), _) => plan.n_batches(),
            (Plan::Subgraphs, Source::Subgraphs(subgraphs)) => subgraphs.n_steps(),
            (Plan::Subgraphs, _) => unreachable!("subgraphs come from a sampler of subgraphs"),
        }
    }
}

/// Sampled share of this rank in a batch that ranks make together.
pub(super) struct DrawnPatch {
    batch: MiniBatch,
    /// Weights of the edges of its blocks, if the graph has weights and the rows of other ranks were read.
    weights: Option<Vec<f32>>,
    /// Seeds in the rank's patch.
    seeds: Vec<NodeId>,
    /// Number of seeds of all ranks.
    n_all: usize,
}

impl EpochBatches<'_> {
    /// Whether ranks make each batch together.
    pub(super) fn are_made_together(&self) -> bool {
        self.batches.are_made_together()
    }

    /// Samples this rank's share of batch number `at`; all ranks call it together.
    ///
    /// # Errors
    /// When a rank fails.
    ///
    /// # Panics
    /// When ranks hold the whole graph.
    pub(super) fn draw(&self, at: usize) -> Result<DrawnPatch, TrainError> {
        let Source::Patches(source, _) = &self.batches.source else { panic!("batches of patches") };
        let Drawn { mine, n_all, key, .. } = self.seeds(at);
        let (batch, weights) = source.sample(&mine, key)?;
        Ok(DrawnPatch { batch, weights, seeds: mine.into_owned(), n_all })
    }

    /// Loads the features of a sampled share; all ranks call it together.
    ///
    /// # Errors
    /// When a rank fails.
    ///
    /// # Panics
    /// When ranks hold the whole graph.
    pub(super) fn load(
        &self,
        DrawnPatch { batch, weights, seeds, n_all }: DrawnPatch,
    ) -> Result<HostBatch, TrainError> {
        let Source::Patches(source, _) = &self.batches.source else { panic!("batches of patches") };
        let rows = source.load(&batch)?;
        let loss = HostLoss::Rows { rows: (0..seeds.len() as u32).collect(), weights: None };
        let host = self.batches.of_blocks_weighted((&batch, weights.as_deref()), (loss, n_all))?;
        let outputs = seeds.into_iter().map(|seed| seed - source.own().start).collect();
        Ok(HostBatch { rows: Some(rows), outputs, ..host })
    }

    /// Makes batch number `at`, or this rank's share of it.
    ///
    /// # Errors
    /// When the sampler fails.
    pub(crate) fn make(&self, at: usize) -> Result<HostBatch, TrainError> {
        let (batches, graph) = (self.batches, self.batches.neighborhoods.graph());
        let key = DrawKey::new(batches.seed, self.epoch, at as u32);
        match (&batches.source, &self.plan) {
            (Source::Seeds(loader, draws_together), Plan::Seeds(plan)) => {
                let Drawn { mine, n_all, key, .. } = self.seeds(at);
                let loss = HostLoss::Rows { rows: (0..mine.len() as u32).collect(), weights: None };
                let batch = if *draws_together && mine.len() < n_all {
                    // Each rank samples the whole batch, and takes its part.
                    loader.sampler().sample(graph, plan.seeds(at), key)?.of_seeds(batches.share(n_all))
                } else {
                    loader.sampler().sample(graph, &mine, key)?
                };
                Ok(batches.of_blocks(&batch, (loss, n_all))?)
            }
            (Source::Patches(..), _) => self.load(self.draw(at)?),
            (Source::Subgraphs(subgraphs), _) => {
                let of_epoch = (batches.seed, self.epoch);
                Ok(batches.of_subgraphs(subgraphs.of_step(graph, of_epoch, at, batches.rank)?)?)
            }
            (Source::Links(links, _, sampler), Plan::Links(plan)) => {
                batches.of_pairs(&links.batch(plan, at), sampler, key)
            }
            _ => unreachable!("a plan is made by the source of its batches"),
        }
    }
}

/// Seed of the draws of a run.
fn seed_of_run(config: &TrainConfig, run: u64) -> u64 {
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

pub(super) fn neighbor_sampler(
    config: &TrainConfig,
    neighborhoods: &Neighborhoods,
    in_place: bool,
) -> Result<NeighborSampler, TrainError> {
    let options = NeighborOptions {
        replace: config.batch.replace,
        edge_ids: neighborhoods.needs_edge_ids(),
        inputs: if in_place { Columns::Global } else { Columns::Local },
        ..NeighborOptions::default()
    };
    Ok(NeighborSampler::new(config.batch.fan_out(config.model.layers)?, options)?)
}

/// Rows of a matrix, in the order of `rows`.
pub(crate) fn rows_of(csr: &Csr, rows: &[NodeId]) -> Result<Csr, FormatError> {
    let mut indptr = Vec::with_capacity(rows.len() + 1);
    indptr.push(0u64);
    let mut indices = Vec::new();
    let mut values = csr.values().map(|_| Vec::new());
    for &row in rows {
        let range = csr.row_range(row as usize);
        indices.extend_from_slice(&csr.indices()[range.clone()]);
        if let (Some(picked), Some(all)) = (&mut values, csr.values()) {
            picked.extend_from_slice(&all[range]);
        }
        indptr.push(indices.len() as u64);
    }
    Csr::new(rows.len(), csr.n_cols(), indptr, indices, values.map(Into::into))
}

#[cfg(test)]
mod tests {
    use girih_datasets::{LoadOptions, load};
    use girih_graph_format::Norm;

    use super::*;
    use crate::batching::BatchConfig;
    use crate::links::{LinkConfig, LinkSplit, NonLinks};

    fn row_normalised(graph: &Csr) -> Vec<Vec<f32>> {
        let row = |v: usize| {
            let mut row = vec![0.0; graph.n_cols()];
            graph.row(v).iter().for_each(|&u| row[u as usize] = 1.0 / graph.degree(v) as f32);
            row
        };
        (0..graph.n_rows()).map(row).collect()
    }

    /// Graph without some links.
    fn without(graph: &Csr, links: &[Link]) -> Csr {
        graph.filtered(|v, u| !links.contains(&[u.min(v as NodeId), u.max(v as NodeId)]))
    }

    #[test]
    fn all_neighbours_of_a_batch_of_links_are_the_training_graph_without_these_links() {
        let graph =
            load("synth:planted,nodes=60,degree=6,features=4,classes=2", &LoadOptions::default()).unwrap().graph;
        let mut config = TrainConfig { batch_size: Some(9), ..TrainConfig::default() };
        config.batch = BatchConfig { kind: BatchKind::Neighbor, fanout: vec![-1, -1], ..BatchConfig::default() };
        let split = LinkSplit::new(&LinkConfig { val: 0.1, test: 0.2, ..LinkConfig::default() }, 7);
        let (links, messages) = (split.deal(&graph), split.messages(&graph));
        let non_links = NonLinks::new(graph, links.n_all()).unwrap();
        let adjacency = Adjacency::new(false, Norm::Row);
        let neighborhoods = Neighborhoods::new(&messages, adjacency).unwrap();
        let epochs = LinkEpochs::new(&links.train, &non_links, &config, 0);
        let batches = Batches::of_links(&neighborhoods, adjacency, epochs, &config, (0, false)).unwrap();
        let (epoch, plan) = (batches.epoch(3), epochs.epoch(3, 9));
        assert!(epoch.n_batches() > 5);
        for at in 0..epoch.n_batches() {
            let (host, pairs) = (epoch.make(at).unwrap(), epochs.batch(&plan, at));
            let HostLoss::Pairs(found) = &host.loss else { panic!("a batch of pairs") };
            let named: Vec<Link> = found.ends.iter().map(|pair| pair.map(|row| host.outputs[row as usize])).collect();
            assert_eq!((named, found.n_links, host.n_loss), (pairs.ends.clone(), pairs.n_links, pairs.ends.len()));

            let expected = row_normalised(&without(&messages, pairs.links()));
            let HostGraphs::Blocks(blocks) = &host.graphs else { panic!("blocks") };
            assert!(blocks[0].in_place.is_none());
            for row in 0..blocks[0].rows.n_rows() {
                let mut dense = vec![0.0; expected.len()];
                for (column, value) in blocks[0].rows.row_entries(row) {
                    dense[host.inputs[column as usize] as usize] = value;
                }
                let expected = &expected[host.inputs[row] as usize];
                assert!(dense.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "batch {at}, row {row}");
            }
        }
    }
}
