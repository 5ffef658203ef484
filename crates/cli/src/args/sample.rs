//! Flags of `girih sample`.

use clap::{Args, ValueEnum};
use girih_sampling::FanOut;
use girih_sampling::relabel::Relabel;
use girih_tiers::Hotness;
use girih_trainer::distributed::Layout;
use girih_trainer::{BatchConfig, BatchKind, DEFAULT_BATCH_SIZE};

use super::batches::numbers;
use super::codec::parse_codec;
use super::settings::set;
use super::{
    CodecChoice, DataArgs, DrawsChoice, ExpandChoice, LayoutChoice, OutputArgs, SampledBatch, SubgraphSettings,
};
use crate::sizes;

/// `girih sample`.
#[derive(Debug, Args)]
pub struct SampleArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// What a batch is: sampled neighbours of its seeds (neighbor), some nodes for each whole layer (layer), some
    /// clusters (cluster), or a drawn subgraph (saint)
    #[arg(long, value_enum, default_value_t = SampledBatch::Neighbor)]
    pub batch: SampledBatch,
    /// Neighbours of each node, for each hop from the seeds outward, -1 for all; of layer batches, nodes of each whole
    /// layer [default: 15,10,5; layer 2048,2048,2048]
    #[arg(long, value_name = "K,…", allow_hyphen_values = true)]
    pub fanout: Option<FanOut>,
    /// Seeds of a batch; draws of a saint batch: nodes, edges or walks [default: 1024]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub batch_size: Option<u32>,
    #[command(flatten)]
    pub subgraphs: SubgraphSettings,
    /// Who draws neighbours: each node for itself, nodes of a hop together (layer), or with numbers in common (labor)
    /// [default: node]
    #[arg(long, value_enum)]
    pub draws: Option<DrawsChoice>,
    /// What makes a node of a layer batch likely: its edges to the layer above (ladies), or all its edges (fastgcn)
    /// [default: ladies]
    #[arg(long, value_enum)]
    pub importance: Option<Importance>,
    /// Times that all seeds, or as many nodes as there are, are gone through
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub epochs: u32,
    /// How global ids of neighbor batches become local ones: to-block, to-block-fast, fused or rank; batches are the
    /// same [default: rank]
    #[arg(long, value_name = "WAY")]
    pub relabel: Option<Relabel>,
    /// Nodes that each hop draws for: those that the hop before found, or all found so far [default: per-layer]
    #[arg(long, value_enum)]
    pub expand: Option<ExpandChoice>,
    /// Draw neighbours or nodes of a layer with replacement
    #[arg(long)]
    pub replace: bool,
    /// Draw edges as often as their weights say, not all alike
    #[arg(long)]
    pub weighted: bool,
    /// Leave the columns of the block at the inputs in global ids
    #[arg(long)]
    pub global_inputs: bool,
    /// Seed of orders and draws
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Batches that are made side by side [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    #[command(flatten)]
    pub ranks: SampleRankArgs,
    #[command(flatten)]
    pub tiers: TierArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Ranks of `girih sample`.
#[derive(Debug, Args)]
pub struct SampleRankArgs {
    /// Share every batch among so many ranks, threads of this process, and say what they send each other
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub ranks: Option<u16>,
    /// What each rank holds: its patches of the graph and of features, all of the graph and its patches of features
    /// (split-features), or all [default: patches]
    #[arg(long, value_enum, requires = "ranks")]
    pub layout: Option<LayoutChoice>,
    /// Patches that the graph is cut into, which ranks share; batches are the same on any number of ranks
    /// [default: one a rank]
    #[arg(long, value_name = "P", requires = "ranks", value_parser = clap::value_parser!(u16).range(1..))]
    pub patches: Option<u16>,
    /// How the graph is cut: by METIS, along few edges, or into equal ranges of the ids that there are [default: metis]
    #[arg(long, value_enum, requires = "ranks")]
    pub cut: Option<CutChoice>,
}

impl SampleRankArgs {
    /// What each rank holds.
    pub fn layout(&self) -> Layout {
        self.layout.map_or(Layout::Patches, Layout::from)
    }

    /// How many ranks there are.
    pub fn n_ranks(&self) -> u16 {
        self.ranks.unwrap_or(1)
    }
}

/// How a graph is cut into patches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum CutChoice {
    /// Along few edges.
    #[default]
    Metis,
    /// Into equal ranges of the ids that there are.
    Ranges,
}

impl CutChoice {
    /// As the command line and results spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Metis => "metis",
            Self::Ranges => "ranges",
        }
    }
}

/// Where topology and features of sampled training would lie.
#[derive(Debug, Args)]
#[command(next_help_heading = "Placement on CUDA devices")]
pub struct TierArgs {
    /// Say where topology and features would lie on CUDA devices, which need not be here, and how often each place
    /// would be read; batches are made only to count
    #[arg(long)]
    pub plan: bool,
    /// CUDA devices of one host
    #[arg(long, value_name = "N", requires = "plan", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub gpus: u16,
    /// Memory of each device, like 80GB [default: that of an H200]
    #[arg(long, value_name = "SIZE", requires = "plan", value_parser = sizes::parse)]
    pub memory: Option<u64>,
    /// Of these, what training takes [default: what GraphSAGE with 256 hidden columns takes]
    #[arg(long, value_name = "SIZE", requires = "plan", value_parser = sizes::parse)]
    pub training_memory: Option<u64>,
    /// Host memory that may be pinned; what it does not hold of the features stays on disk [default: as much as it
    /// takes]
    #[arg(long, value_name = "SIZE", requires = "plan", value_parser = sizes::parse)]
    pub host_memory: Option<u64>,
    /// What tells which nodes are read most: in how many lists of neighbours they are (degree), walks along edges
    /// (pagerank), walks from the seeds as sampling goes (reverse-pagerank), or batches of the sampler (presampled)
    #[arg(long, value_name = "degree|pagerank|reverse-pagerank|presampled", requires = "plan", default_value_t)]
    pub hotness: Hotness,
    /// Keep features as codes of this codec, like topk:8 [default: as the data have them]
    #[arg(long, value_name = "CODEC", requires = "plan", value_parser = parse_codec)]
    pub codec: Option<CodecChoice>,
    /// Share, from 0 to 1, that features get of the memory that training leaves [default: what is predicted to be
    /// quickest]
    #[arg(long, value_name = "SHARE", requires = "plan")]
    pub cache_share: Option<f64>,
}

impl SampleArgs {
    /// The settings that training has for the same batches.
    pub fn batch_config(&self) -> BatchConfig {
        let mut config = BatchConfig { kind: self.batch.into(), replace: self.replace, ..BatchConfig::default() };
        set(&mut config.fanout, self.fanout.as_ref().map(numbers));
        self.subgraphs.override_in(&mut config);
        config
    }

    /// Seeds of a batch.
    pub fn batch_size(&self) -> usize {
        self.batch_size.map_or(DEFAULT_BATCH_SIZE, |size| size as usize)
    }

    /// The first flag that was given and means nothing for batches of this kind, with the kind that it is for.
    pub fn flag_of_other_batches(&self) -> Option<(&'static str, &'static str)> {
        let of_neighbors = [
            (self.draws.is_some(), "--draws"),
            (self.relabel.is_some(), "--relabel"),
            (self.expand.is_some(), "--expand"),
            (self.weighted, "--weighted"),
            (self.global_inputs, "--global-inputs"),
        ];
        let of_layers = [(self.importance.is_some(), "--importance")];
        let kind = BatchKind::from(self.batch);
        let unused = |flags: &[(bool, &'static str)], wanted: BatchKind| {
            let given = flags.iter().find(|(given, _)| *given && kind != wanted);
            given.map(|&(_, flag)| (flag, wanted.name()))
        };
        let of_seeds = (kind == BatchKind::Cluster && self.batch_size.is_some())
            .then_some(("--batch-size", "neighbor, layer and saint"));
        unused(&of_neighbors, BatchKind::Neighbor).or_else(|| unused(&of_layers, BatchKind::Layer)).or(of_seeds)
    }
}

/// What makes a node of a layer batch likely.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum Importance {
    /// Its edges to the layer above (Zou et al., NeurIPS 2019).
    #[default]
    Ladies,
    /// All its edges (Chen et al., ICLR 2018).
    #[value(name = "fastgcn")]
    FastGcn,
}
