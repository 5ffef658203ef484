//! Flags of `girih sample`.

use clap::{Args, ValueEnum};
use girih_features::Hotness;
use girih_sampling::FanOutRules;
use girih_sampling::relabel::Relabel;
use girih_trainer::distributed::GraphPlacement;
use girih_trainer::{BatchConfig, BatchKind, DEFAULT_BATCH_SIZE, TimeConfig};

use super::batches::override_fan_out;
use super::codec::parse_codec;
use super::{
    CodecChoice, DataArgs, DrawsChoice, ExpandChoice, LayoutChoice, OutputArgs, SampledBatch, SubgraphSettings,
    TimeSettings, any_case,
};
use crate::sizes;

/// `girih sample`.
#[derive(Debug, Args)]
pub struct SampleArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Kind of mini-batch
    ///
    /// neighbor: sampled neighbors of the seeds (GraphSAGE). layer: nodes sampled for each layer as a whole. cluster:
    /// some clusters (Cluster-GCN). saint: a sampled subgraph (GraphSAINT).
    #[arg(long, help_heading = "Mini-batches", value_enum, default_value_t = SampledBatch::Neighbor)]
    pub batch: SampledBatch,
    /// Sampled neighbors of a node in each hop, from the seeds outward; -1 for all
    ///
    /// For layer batches: nodes sampled for each layer. For types of edges: numbers by relation, by full name and, as *,
    /// for all others, such as "cites=15,10; author.writes.paper=5,0; *=10,10"; 0 does not follow a type. [default:
    /// 15,10,5; layer 2048,2048,2048]
    #[arg(long, help_heading = "Mini-batches", value_name = "K,…", allow_hyphen_values = true)]
    pub fanout: Option<FanOutRules>,
    /// Seeds of a batch; for saint batches, sampled nodes, edges or walks [default: 1024]
    #[arg(long, help_heading = "Mini-batches", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub batch_size: Option<u32>,
    #[command(flatten)]
    pub subgraphs: SubgraphSettings,
    /// Rule by which neighbors are sampled [default: node]
    #[arg(long, help_heading = "Mini-batches", value_enum)]
    pub draws: Option<DrawsChoice>,
    /// Sampling probability of a node in a layer batch [default: ladies]
    #[arg(long, help_heading = "Mini-batches", value_enum)]
    pub importance: Option<Importance>,
    /// Passes over all seeds
    #[arg(help_heading = "Mini-batches")]
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub epochs: u32,
    /// Algorithm that gives the nodes of a batch local ids: to-block, to-block-fast, fused or rank
    ///
    /// All give the same batches; they differ in speed. [default: rank]
    #[arg(long, help_heading = "Mini-batches", value_name = "NAME", value_parser = any_case::<Relabel>)]
    pub relabel: Option<Relabel>,
    /// Nodes whose neighbors a hop samples [default: per-layer]
    #[arg(long, help_heading = "Mini-batches", value_enum)]
    pub expand: Option<ExpandChoice>,
    /// Sample with replacement (neighbor, layer)
    #[arg(long, help_heading = "Mini-batches")]
    pub replace: bool,
    /// Sample edges in proportion to their weights
    #[arg(long, help_heading = "Mini-batches")]
    pub weighted: bool,
    /// Keep global ids in the columns of the input block, instead of local ones
    #[arg(long, help_heading = "Mini-batches")]
    pub global_inputs: bool,
    /// Random seed
    #[arg(long, help_heading = "Mini-batches", value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// CPU threads, one batch each [default: one per core]
    #[arg(long, help_heading = "Mini-batches", value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    #[command(flatten)]
    pub time: TimeSettings,
    #[command(flatten)]
    pub ranks: SampleRankArgs,
    #[command(flatten)]
    pub tiers: TierArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Ranks of `girih sample`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Ranks")]
pub struct SampleRankArgs {
    /// Ranks (threads of this process) that divide every batch; their traffic is reported
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub ranks: Option<u16>,
    /// Data that each rank holds [default: patches]
    ///
    /// Each rank has patches: parts of the nodes. A rank asks the others for data that it does not hold.
    #[arg(long, value_enum, requires = "ranks")]
    pub layout: Option<LayoutChoice>,
    /// Number of patches that the graph is cut into, for the ranks to share [default: one a rank]
    ///
    /// Batches are the same for any number of ranks.
    #[arg(long, value_name = "P", requires = "ranks", value_parser = clap::value_parser!(u16).range(1..))]
    pub patches: Option<u16>,
    /// Partitioner of the graph into patches [default: metis]
    #[arg(long, value_enum, requires = "ranks")]
    pub cut: Option<CutChoice>,
}

impl SampleRankArgs {
    /// Placement of graph and features on ranks.
    pub fn layout(&self) -> GraphPlacement {
        self.layout.map_or(GraphPlacement::Patches, GraphPlacement::from)
    }

    /// Number of ranks.
    pub fn n_ranks(&self) -> u16 {
        self.ranks.unwrap_or(1)
    }
}

/// Method by which a graph is divided into patches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum CutChoice {
    /// METIS, so that few edges are cut.
    #[default]
    Metis,
    /// Equal ranges of ids.
    Ranges,
}

impl CutChoice {
    /// Spelling on the command line and in results.
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
    /// Plan the placement of topology and features on CUDA devices
    ///
    /// The devices need not be here. Batches are sampled to count reads.
    #[arg(long)]
    pub plan: bool,
    /// CUDA devices of one host
    #[arg(long, value_name = "N", requires = "plan", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub gpus: u16,
    /// Memory of each device, like 80GB [default: that of an H200]
    #[arg(long, value_name = "SIZE", requires = "plan", value_parser = sizes::parse)]
    pub memory: Option<u64>,
    /// GPU memory that is set aside for training itself
    ///
    /// [default: that of GraphSAGE with 256 hidden columns]
    #[arg(long, value_name = "SIZE", requires = "plan", value_parser = sizes::parse)]
    pub training_memory: Option<u64>,
    /// Host memory that may be pinned; other features stay on disk [default: no limit]
    #[arg(long, value_name = "SIZE", requires = "plan", value_parser = sizes::parse)]
    pub host_memory: Option<u64>,
    /// Prediction of which nodes are read most
    ///
    /// degree: nodes that are neighbors of many. pagerank: PageRank along the edges. reverse-pagerank: PageRank from
    /// the seeds, in the direction of sampling. presampled: counts over some sampled batches.
    #[arg(long, value_name = "NAME", requires = "plan", default_value_t, value_parser = any_case::<Hotness>)]
    pub hotness: Hotness,
    /// Codec of the features, like topk:8 [default: as the data have them]
    #[arg(long, value_name = "CODEC", requires = "plan", value_parser = parse_codec)]
    pub codec: Option<CodecChoice>,
    /// Share of the cache memory for features, from 0 to 1 [default: the fastest, predicted]
    #[arg(long, value_name = "SHARE", requires = "plan")]
    pub cache_share: Option<f64>,
}

impl SampleArgs {
    /// Settings with which training makes the same batches.
    pub fn batch_config(&self) -> BatchConfig {
        let mut config = BatchConfig { kind: self.batch.into(), replace: self.replace, ..BatchConfig::default() };
        override_fan_out(&mut config, self.fanout.as_ref());
        self.subgraphs.override_in(&mut config);
        config
    }

    /// Edges that seeds see at their times.
    pub fn time_config(&self) -> TimeConfig {
        let mut config = TimeConfig::default();
        self.time.override_in(&mut config);
        config
    }

    /// Number of seeds of a batch.
    pub fn batch_size(&self) -> usize {
        self.batch_size.map_or(DEFAULT_BATCH_SIZE, |size| size as usize)
    }

    /// First given flag that has no effect on batches of this kind, with the kind that it belongs to.
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

/// Source of the sampling probability of a node in a layer batch.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum Importance {
    /// By its edges to the layer above (Zou et al., NeurIPS 2019).
    #[default]
    Ladies,
    /// By all its edges (Chen et al., ICLR 2018).
    #[value(name = "fastgcn")]
    FastGcn,
}
