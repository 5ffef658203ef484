//! [`Source`]: samplers of the batches of `girih sample`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use girih_datasets::Dataset;
use girih_graph_format::{Csr, NodeId};
use girih_pipeline::{Pipeline, Stage};
use girih_sampling::relabel::Relabel;
use girih_sampling::{
    Bias, Columns, DrawKey, FanOut, LayerSampler, LoaderOptions, NeighborOptions, NeighborSampler, Prefetched,
    SampleError, Sampler, SeedLoader, Subgraph, SubgraphSampler,
};
use girih_trainer::{BatchConfig, BatchKind, DEFAULT_FANOUT};

use super::relabelled::Relabelled;
use crate::args::{Importance, SampleArgs};
use crate::error::CliError;

/// Sampler of batches, with its input.
pub(super) enum Source<'a> {
    /// Blocks for seeds, from a loader. `relabel` is the relabelling method, if there is a choice.
    Seeds { loader: SeedLoader<'a, Box<dyn Sampler>>, n_seeds: usize, fan_out: FanOut, relabel: Option<Relabel> },
    /// Subgraphs of a graph: `n_batches` an epoch, drawn with `seed`.
    Subgraphs { graph: &'a Csr, sampler: Arc<dyn SubgraphSampler>, n_batches: usize, seed: u64 },
}

/// Statistics of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchStats {
    pub(super) n_edges: usize,
    /// Number of input nodes; for a subgraph, of all nodes.
    pub(super) n_inputs: usize,
    /// Number of input nodes that the previous batch of the epoch also has. `None` for the first, and if not counted.
    pub(super) n_from_before: Option<usize>,
    pub(super) took: Duration,
    /// Part of `took` spent on relabelling, if that is a separate step.
    pub(super) relabelling: Option<Duration>,
    pub(super) digest: u64,
}

impl<'a> Source<'a> {
    /// Sampler for a data set, as the arguments request.
    ///
    /// # Errors
    /// When weighted sampling finds no edge weights, or the settings make no batches of the graph.
    pub(super) fn new(args: &SampleArgs, config: &BatchConfig, dataset: &'a Dataset) -> Result<Self, CliError> {
        let (graph, batch_size, seed) = (&dataset.graph, args.batch_size(), args.seed);
        if !config.kind.has_blocks() {
            let (sampler, n_batches) = config.subgraph_sampler(graph, None, (batch_size, seed))?;
            return Ok(Self::Subgraphs { graph, sampler, n_batches, seed });
        }
        let fan_out = config.fan_out(config.n_hops().unwrap_or(DEFAULT_FANOUT.len()))?;
        let (sampler, relabel): (Box<dyn Sampler>, _) = match (config.kind, args.importance.unwrap_or_default()) {
            (BatchKind::Layer, Importance::Ladies) => {
                (Box::new(LayerSampler::ladies(fan_out.clone(), args.replace)), None)
            }
            (BatchKind::Layer, Importance::FastGcn) => {
                (Box::new(LayerSampler::fast_gcn(graph, fan_out.clone(), args.replace)?), None)
            }
            _ => {
                let options = neighbor_options(args);
                let sampler = NeighborSampler::new(fan_out.clone(), options)?;
                let sampler = if args.weighted { sampler.weighted(bias(dataset)?) } else { sampler };
                (Box::new(sampler), Some(options.relabel))
            }
        };
        let (options, seeds) = (LoaderOptions { batch_size, seed, ..LoaderOptions::default() }, dataset.seeds());
        let n_seeds = seeds.len();
        Ok(Self::Seeds { loader: SeedLoader::new(graph, sampler, seeds, options)?, n_seeds, fan_out, relabel })
    }

    /// Samples the batches of `n_epochs` epochs, in order, `n_threads` of them at a time.
    ///
    /// # Errors
    /// When the sampler refuses.
    pub(super) fn make(&self, n_epochs: u32, n_threads: usize) -> Result<Vec<BatchStats>, CliError> {
        match self {
            Self::Seeds { loader, relabel, .. } => {
                let epochs = (0..n_epochs).map(|epoch| blocks(loader, *relabel, epoch, stage_of(n_threads)));
                Ok(epochs.collect::<Result<Vec<_>, _>>()?.concat())
            }
            Self::Subgraphs { graph, sampler, n_batches, seed } => {
                let keys: Vec<DrawKey> = (0..n_epochs)
                    .flat_map(|epoch| (0..*n_batches as u32).map(move |batch| DrawKey::new(*seed, epoch, batch)))
                    .collect();
                subgraphs(graph, sampler.as_ref(), keys, n_threads)
            }
        }
    }
}

/// Stage of a pipeline that makes batches on some threads.
fn stage_of(n_threads: usize) -> Stage {
    Stage::new("sample").workers(n_threads).capacity(2 * n_threads)
}

/// Results of a maker for some items, in their order, `n_threads` of them at a time. Each thread has a maker of its own.
///
/// # Errors
/// When a maker fails, or the system refuses a thread.
pub(super) fn made_by_threads<T: Send, U: Send, W: FnMut(T) -> Result<U, SampleError>>(
    items: impl IntoIterator<Item = T, IntoIter: Send>,
    n_threads: usize,
    maker: impl Fn() -> W + Send + Sync,
) -> Result<Vec<U>, CliError> {
    std::thread::scope(|scope| {
        let made = Pipeline::<T, SampleError>::new(items).stage(stage_of(n_threads), maker).start_in(scope)?;
        Ok(made.collect::<Result<_, _>>()?)
    })
}

/// Samples the batches of an epoch of seeds.
fn blocks(
    loader: &SeedLoader<'_, Box<dyn Sampler>>,
    relabel: Option<Relabel>,
    epoch: u32,
    stage: Stage,
) -> Result<Vec<BatchStats>, CliError> {
    let describe = || {
        let mut relabelled = Relabelled::default();
        move |batch: Prefetched| {
            let n_nodes = loader.graph().n_rows();
            let relabelling = relabel.map(|way| relabelled.time(n_nodes, &batch, way)).transpose()?.flatten();
            let inputs = batch.inputs().to_vec();
            let (n_edges, n_inputs) = (batch.n_edges(), inputs.len());
            let (took, digest) = (batch.took(), batch.digest());
            Ok((BatchStats { n_edges, n_inputs, n_from_before: None, took, relabelling, digest }, inputs))
        }
    };
    let mut met = Met::new(loader.graph().n_rows());
    std::thread::scope(|scope| {
        let made = loader.epoch(epoch).prefetch_with(stage, describe).start_in(scope)?;
        let counted =
            made.map(|made| made.map(|(made, inputs)| BatchStats { n_from_before: met.count(&inputs), ..made }));
        Ok(counted.collect::<Result<_, _>>()?)
    })
}

/// Number of the last batch of an epoch that contained each node.
struct Met {
    /// Batch by node, counted from 1; 0 if no batch contained the node.
    last: Vec<u32>,
    n_batches: u32,
}

impl Met {
    fn new(n_nodes: usize) -> Self {
        Self { last: vec![0; n_nodes], n_batches: 0 }
    }

    /// Number of nodes in `nodes` that the previous batch also has; `None` for the first batch.
    fn count(&mut self, nodes: &[NodeId]) -> Option<usize> {
        let before = self.n_batches;
        self.n_batches += 1;
        let had = nodes.iter().filter(|&&node| {
            let last = std::mem::replace(&mut self.last[node as usize], before + 1);
            last == before
        });
        let n = had.count();
        (before > 0).then_some(n)
    }
}

/// Samples the subgraphs of some keys.
fn subgraphs(
    graph: &Csr,
    sampler: &dyn SubgraphSampler,
    keys: Vec<DrawKey>,
    n_threads: usize,
) -> Result<Vec<BatchStats>, CliError> {
    let make = || {
        let mut subgraph = Subgraph::default();
        move |key: DrawKey| {
            let start = Instant::now();
            sampler.sample_into(graph, key, &mut subgraph)?;
            let took = start.elapsed();
            let (n_edges, n_inputs) = (subgraph.block.n_edges(), subgraph.nodes().len());
            Ok(BatchStats {
                n_edges,
                n_inputs,
                n_from_before: None,
                took,
                relabelling: None,
                digest: subgraph.digest(),
            })
        }
    };
    made_by_threads(keys, n_threads, make)
}

/// First given flag that only graphs without types and times have a use for, with the reason; `weighted` is that of edge
/// weights.
pub(super) fn flag_of_plain_graphs(args: &SampleArgs, without: &str, weighted: &str) -> Option<String> {
    let of_graphs = |what: &str| format!("{what} graphs without {without}");
    let flags = [
        (args.ranks.ranks.is_some(), of_graphs("--ranks divides")),
        (args.tiers.plan, of_graphs("--plan places the rows of")),
        (args.draws.is_some(), of_graphs("--draws chooses among rules for")),
        (args.relabel.is_some(), of_graphs("--relabel is a choice for")),
        (args.weighted, weighted.to_owned()),
        (args.global_inputs, of_graphs("--global-inputs is for")),
    ];
    flags.into_iter().find(|(is_given, _)| *is_given).map(|(_, why)| why)
}

/// Options of the neighbor sampler, from the arguments.
pub(super) fn neighbor_options(args: &SampleArgs) -> NeighborOptions {
    NeighborOptions {
        draws: args.draws.map(Into::into).unwrap_or_default(),
        replace: args.replace,
        expand: args.expand.map(Into::into).unwrap_or_default(),
        inputs: if args.global_inputs { Columns::Global } else { Columns::Local },
        relabel: args.relabel.unwrap_or_default(),
        ..NeighborOptions::default()
    }
}

/// Edge weights for sampling.
pub(super) fn bias(dataset: &Dataset) -> Result<Bias, CliError> {
    check_weighted(dataset)?;
    Ok(Bias::of(&dataset.graph)?)
}

/// Refuses data without edge weights.
///
/// # Errors
/// When the edges have no weights.
pub(super) fn check_weighted(dataset: &Dataset) -> Result<(), CliError> {
    if dataset.graph.values().is_some() {
        return Ok(());
    }
    let name = &dataset.name;
    Err(CliError::Other(format!("{name} has no edge weights to sample by: leave --weighted out")))
}
