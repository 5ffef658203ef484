//! [`Sharing`]: batches of `girih sample` divided over ranks, each with its part of the graph.

use std::fmt::Display;
use std::ops::Range;
use std::time::{Duration, Instant};

use girih_collective_sampling::{CollectiveError, RankGraph, RankRows, Tally};
use girih_comm::Collective;
use girih_comm::threads::{self, ThreadRank};
use girih_compute::Cpu;
use girih_datasets::Dataset;
use girih_graph_format::NodeId;
use girih_partition::{Ownership, Patches, part};
use girih_reorder::clusters;
use girih_sampling::{
    Bias, DrawKey, FanOut, LoaderOptions, MiniBatch, NeighborSampler, SampleError, Sampler, SeedLoader,
};
use girih_trainer::distributed::GraphPlacement;
use girih_trainer::{BatchConfig, BatchKind, DEFAULT_FANOUT};

use super::source::{BatchStats, check_weighted, neighbor_options};
use crate::args::{CutChoice, SampleArgs};
use crate::context::ranks::DEADLINE;
use crate::error::CliError;
use crate::output::Results;

/// Division of batches over ranks. Each batch has a part per patch: the seeds in that patch. A rank samples the parts
/// of its own patches. Parts and their digest therefore do not depend on the number of ranks.
pub(super) struct Sharing<'a> {
    args: &'a SampleArgs,
    /// Data set, numbered so that each patch is a range of ids.
    dataset: Dataset,
    patches: Patches,
    /// One range of nodes for each rank.
    of_ranks: Patches,
    fan_out: FanOut,
}

/// Batches that all ranks sampled together.
pub(super) struct Shared {
    /// Parts of all batches, ordered by batch, then by patch.
    pub(super) made: Vec<BatchStats>,
    pub(super) n_batches: usize,
    /// Traffic of all ranks.
    tally: Tally,
}

impl<'a> Sharing<'a> {
    /// Prepares the division of a data set's batches over ranks.
    ///
    /// # Errors
    /// When the batches are not neighbor batches, or the graph cannot be partitioned as requested.
    pub(super) fn new(args: &'a SampleArgs, config: &BatchConfig, dataset: Dataset) -> Result<Self, CliError> {
        if config.kind != BatchKind::Neighbor {
            return Err(CliError::Usage(format!(
                "--ranks divides the seeds of neighbor batches, and {} batches have no such seeds: give --batch neighbor, or leave --ranks out",
                config.kind.name()
            )));
        }
        let n_layers = config.n_hops().unwrap_or(DEFAULT_FANOUT.len());
        let ranks = args.ranks.n_ranks();
        let n_patches = args.ranks.patches.unwrap_or(ranks);
        let (dataset, patches) = match args.ranks.cut.unwrap_or_default() {
            CutChoice::Ranges => {
                let patches = Patches::equal(dataset.n_nodes(), usize::from(n_patches)).map_err(usage)?;
                (dataset, patches)
            }
            CutChoice::Metis => {
                let part_of = clusters(&dataset.graph, usize::from(n_patches)).map_err(usage)?;
                let layout = Ownership::new(&part_of, usize::from(n_patches)).map_err(usage)?;
                (dataset.permuted(layout.permutation())?, layout.patches().clone())
            }
        };
        let of_ranks = patches.of_ranks(usize::from(ranks)).map_err(usage)?;
        Ok(Self { args, dataset, patches, of_ranks, fan_out: config.fan_out(n_layers)? })
    }

    pub(super) fn fan_out(&self) -> &FanOut {
        &self.fan_out
    }

    /// Number of seeds, and number of ranks.
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.dataset.seeds().len(), self.of_ranks.len())
    }

    /// Samples all batches, on ranks that are threads.
    ///
    /// # Errors
    /// When the sampler refuses, or a rank fails; the error names the rank.
    pub(super) fn make(&self) -> Result<Shared, CliError> {
        let SampleArgs { epochs, seed, .. } = *self.args;
        let options = LoaderOptions { batch_size: self.args.batch_size(), seed, ..LoaderOptions::default() };
        let loader = SeedLoader::new(&self.dataset.graph, self.sampler()?, self.dataset.seeds(), options)?;
        let mut parts = Vec::new();
        for epoch in 0..epochs {
            let plan = loader.plan(epoch);
            for batch in 0..plan.n_batches() {
                parts.push(PatchBatch { key: plan.key(batch), seeds: self.parted(plan.seeds(batch)) });
            }
        }
        if self.args.weighted {
            check_weighted(&self.dataset)?;
        }
        let ranks = threads::run(self.of_ranks.len(), DEADLINE, |rank| self.on_rank(&rank, &parts));
        let ranks =
            ranks.map_err(|failure| CliError::Other(format!("rank {} failed: {}", failure.rank, failure.message)))?;
        let mut tally = Tally::default();
        ranks.iter().for_each(|(_, of_rank)| tally += *of_rank);
        let mut of_ranks: Vec<_> = ranks.into_iter().map(|(made, _)| made.into_iter()).collect();
        let n_parts = parts.len() * self.patches.len();
        let owner = |part: usize| self.rank_of(part % self.patches.len());
        let made = (0..n_parts).map(|part| of_ranks[owner(part)].next().expect("every part is made")).collect();
        Ok(Shared { made, n_batches: parts.len(), tally })
    }

    fn sampler(&self) -> Result<NeighborSampler, SampleError> {
        NeighborSampler::new(self.fan_out.clone(), neighbor_options(self.args))
    }

    /// Seeds of a batch grouped by patch, in their order.
    fn parted(&self, seeds: &[NodeId]) -> Vec<Vec<NodeId>> {
        let mut parts = vec![Vec::new(); self.patches.len()];
        seeds.iter().for_each(|&seed| parts[self.patches.owner(seed)].push(seed));
        parts
    }

    /// Rank that holds a patch.
    fn rank_of(&self, patch: usize) -> usize {
        (0..self.of_ranks.len())
            .find(|&rank| self.patches_of(rank).contains(&patch))
            .expect("a patch is dealt to a rank")
    }

    /// Patches of a rank, which are consecutive.
    fn patches_of(&self, rank: usize) -> Range<usize> {
        part(&(0..self.patches.len()), rank, self.of_ranks.len())
    }

    /// Work of one rank: samples the parts of its own patches, and answers requests for those of others.
    fn on_rank(&self, rank: &ThreadRank, parts: &[PatchBatch]) -> Result<(Vec<BatchStats>, Tally), CollectiveError> {
        let (world, sampler): (&dyn Collective<Cpu>, _) = (rank, self.sampler()?);
        let (mut batch, mut gathered) = (MiniBatch::default(), Vec::new());
        let (own, layout) = (self.of_ranks.range(world.rank()), self.args.ranks.layout());
        let rows = match layout {
            GraphPlacement::Patches => self.dataset.graph.row_slice(own.start as usize..own.end as usize),
            GraphPlacement::SplitFeatures | GraphPlacement::Replicated => self.dataset.graph.clone(),
        };
        let (weights, is_cut) =
            (self.args.weighted.then(|| Bias::of(&rows)).transpose()?, layout == GraphPlacement::Patches);
        let (of_patch, of_whole) = if is_cut { (weights, None) } else { (None, weights) };
        let sampler = match of_whole {
            Some(weights) => sampler.weighted(weights),
            None => sampler,
        };
        let patch = || RankGraph::new(world, &self.of_ranks, &rows, of_patch.as_ref());
        let mut graph = is_cut.then(patch).transpose()?;
        let mut features = match self.rows_of_features(own) {
            Some((rows, row_bytes)) if layout != GraphPlacement::Replicated && !self.args.global_inputs => {
                Some(RankRows::new(world, &self.of_ranks, rows, row_bytes)?)
            }
            _ => None,
        };
        let made = self.rounds(world, parts, |seeds, key| {
            let start = Instant::now();
            match &mut graph {
                Some(graph) => sampler.sample_from(graph, seeds, key, &mut batch)?,
                None => sampler.sample_into(&rows, seeds, key, &mut batch)?,
            }
            let took = start.elapsed();
            if let Some(features) = &mut features {
                features.gather(batch.inputs(), &mut gathered)?;
            }
            Ok(made(&batch, took))
        })?;
        let mut tally = graph.map_or_else(Tally::default, |graph| graph.tally());
        tally += features.map_or_else(Tally::default, |features| features.tally());
        Ok((made, tally))
    }

    /// Samples the parts of a rank's patches. All ranks run as many rounds as the rank with the most patches.
    fn rounds(
        &self,
        world: &dyn Collective<Cpu>,
        parts: &[PatchBatch],
        mut make: impl FnMut(&[NodeId], DrawKey) -> Result<BatchStats, CollectiveError>,
    ) -> Result<Vec<BatchStats>, CollectiveError> {
        let mine = self.patches_of(world.rank());
        let n_rounds = (0..world.size()).map(|rank| self.patches_of(rank).len()).max().unwrap_or(0);
        let mut made = Vec::with_capacity(parts.len() * mine.len());
        for part in parts {
            for round in 0..n_rounds {
                match mine.clone().nth(round) {
                    Some(patch) => made.push(make(&part.seeds[patch], part.key)?),
                    None => drop(make(&[], part.key)?),
                }
            }
        }
        Ok(made)
    }

    /// Feature rows of a range of nodes as bytes, and bytes per row. `None` if features are sparse or absent.
    fn rows_of_features(&self, nodes: Range<NodeId>) -> Option<(&[u8], usize)> {
        let (all, row_bytes) = self.dataset.features.as_ref()?.stored_rows()?;
        Some((&all[nodes.start as usize * row_bytes..nodes.end as usize * row_bytes], row_bytes))
    }
}

/// Batch with its seeds grouped by patch.
struct PatchBatch {
    key: DrawKey,
    seeds: Vec<Vec<NodeId>>,
}

/// Statistics of a part.
fn made(batch: &MiniBatch, took: Duration) -> BatchStats {
    let (n_edges, n_inputs) = (batch.n_edges(), batch.inputs().len());
    BatchStats { n_edges, n_inputs, n_from_before: None, took, relabelling: None, digest: batch.digest() }
}

fn usage(error: impl Display) -> CliError {
    CliError::Usage(error.to_string())
}

impl Sharing<'_> {
    /// Describes the division over ranks, before sampling.
    pub(super) fn describe(&self, results: &mut Results) {
        let SampleArgs { ranks, .. } = self.args;
        let (n_ranks, n_patches) = (self.of_ranks.len(), self.patches.len());
        let layout = ranks.layout();
        let held = match layout {
            GraphPlacement::Patches => "its patches",
            GraphPlacement::SplitFeatures => "all of the graph, and its patches of features",
            GraphPlacement::Replicated => "all of graph and features",
        };
        let cut = ranks.cut.unwrap_or_default().name();
        let graph = &self.dataset.graph;
        let inner = self.of_ranks.inner_edges(graph) as f64 / graph.nnz().max(1) as f64;
        results
            .add("ranks", n_ranks, "Ranks", n_ranks.to_string())
            .add("layout", layout.name(), "Each holds", held)
            .add("patches", n_patches, "Patches", format!("{n_patches}, cut by {cut}"))
            .add_hidden("cut", cut)
            .add(
                "node_imbalance",
                self.of_ranks.node_imbalance(),
                "Largest by nodes",
                times(self.of_ranks.node_imbalance()),
            )
            .add(
                "edge_imbalance",
                self.of_ranks.edge_imbalance(graph),
                "  by edges",
                times(self.of_ranks.edge_imbalance(graph)),
            )
            .add("inner_edges", inner, "Edges inside", format!("{:.1} %", 100.0 * inner));
    }
}

impl Shared {
    /// Describes the traffic of a batch.
    pub(super) fn describe(&self, results: &mut Results) {
        let share = |part: u64, whole: u64| if whole == 0 { None } else { Some(part as f64 / whole as f64) };
        let percent = |share: Option<f64>| share.map_or_else(String::new, |share| format!("{:.1} %", 100.0 * share));
        let Tally { frontier_nodes, own_frontier_nodes, wanted_rows, own_rows, .. } = self.tally;
        let (nodes, rows) = (share(own_frontier_nodes, frontier_nodes), share(own_rows, wanted_rows));
        results.add("own_frontier", nodes, "Frontier nodes of its own", percent(nodes)).add(
            "own_rows",
            rows,
            "Feature rows of its own",
            percent(rows),
        );
        let n = self.n_batches.max(1) as f64;
        for (keys, sent) in STAGES.into_iter().zip(self.tally.stages()).filter(|(_, sent)| sent.messages > 0) {
            let (bytes, messages) = (sent.bytes as f64 / n, sent.messages as f64 / n);
            let shown = format!("{:.1} kB in {messages:.1} messages", bytes / 1e3);
            results.add(keys.bytes, bytes, keys.label, shown).add_hidden(keys.messages, messages);
        }
    }
}

/// Keys and label of a communication stage in results.
struct Keys {
    bytes: &'static str,
    messages: &'static str,
    label: &'static str,
}

/// Stages of [`Tally::stages`] that sampling has, in that order.
const STAGES: [Keys; 5] = [
    Keys { bytes: "shuffle_bytes", messages: "shuffle_messages", label: "Sent per batch, frontier" },
    Keys { bytes: "weights_bytes", messages: "weights_messages", label: "  weights of rows" },
    Keys { bytes: "reshuffle_bytes", messages: "reshuffle_messages", label: "  drawn neighbors" },
    Keys { bytes: "request_bytes", messages: "request_messages", label: "  ids of rows" },
    Keys { bytes: "row_bytes", messages: "row_messages", label: "  rows of features" },
];

fn times(factor: f64) -> String {
    format!("{factor:.3} times the mean")
}
