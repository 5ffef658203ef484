//! What a user can write: commands and flags.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PathBufValueParser, TypedValueParser as _};
use clap::{Args, Parser, Subcommand, ValueEnum};
use girih_comm::CardTransport;
use girih_compress::CodecSpec;
use girih_compute::Dtype;
use girih_datasets::{FeatureNorm, LoadOptions};
use girih_kernels::Tiling;
use girih_partition::{Cuts, Exchange, Scheme, Stages};
use girih_reorder::OrderKind;
use girih_sampling::relabel::Relabel;
use girih_sampling::{Draws, Expand, FanOut, Neighbors};
use girih_tiers::{CacheShares, Hotness};
use girih_trainer::distributed::Layout;
use girih_trainer::{
    Aggregator, BatchConfig, BatchKind, Decay, Jump, Metric, ModelKind, NormKind, OptimizerKind, SaintKind, Schedule,
    ScoreBy, TaskKind, TierConfig, TrainConfig,
};

use crate::{paths, sizes};

/// Trains graph neural networks, from two laptop cores up.
#[derive(Debug, Parser)]
#[command(name = "girih", version, propagate_version = true, max_term_width = 120)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a model; without flags, a GCN on a small generated graph
    Train(Box<TrainArgs>),
    /// Start processes that train together, each a rank: `girih launch --nproc 4 -- train …`
    Launch(LaunchArgs),
    /// Score a trained model on a data set
    Evaluate(EvaluateArgs),
    /// Write a trained model's predictions for every node
    Predict(PredictArgs),
    /// Describe a data set: degrees, components, order quality, tile densities
    Stats(StatsArgs),
    /// Number the nodes anew, so that neighbours come near, and say what it brings
    Reorder(ReorderArgs),
    /// Say how ranks would share a product: blocks, bytes, time
    Partition(PartitionArgs),
    /// Make mini-batches of sampled neighbours, and say how many and how fast
    Sample(SampleArgs),
    /// Encode features into a compressed store
    Compress(CompressArgs),
    /// Write the features of a compressed store as an array
    Decompress(DecompressArgs),
    /// Generate a data set and write it as a girih folder
    Generate(GenerateArgs),
    /// Read a data set in any format and write it in another
    Convert(ConvertArgs),
    /// Say what this machine offers and what is missing
    Doctor(DoctorArgs),
}

const DATA_HELP: &str = "\
A path (girih folder, Planetoid `ind.*` folder, LightGCN folder, OGB raw folder, `edge_index` or `indptr`/`indices` as `.npy`, `.npz` or \
`.safetensors`, gnn-benchmark or scipy `.npz`, also in a `.zip`, Matrix Market `.mtx`, METIS `.graph`, edge list \
`.csv`/`.tsv`/`.txt`, text also as `.gz`), or a generator: synth:planted, synth:rmat, synth:reddit, proteins, archaea, products, papers100m, mag240m, yelp, \
friendster, with @SCALE and ,key=value…, for instance synth:reddit@0.1 or synth:planted,nodes=10000,degree=20";

/// Which data, and how files become a data set.
#[derive(Debug, Args)]
pub struct DataArgs {
    #[arg(long, value_name = "SPEC", help = DATA_HELP)]
    pub data: Option<String>,
    /// Features for an edge list: a `.npy` with one row of floats per node, or what `girih compress` made of one, a `.codes`
    #[arg(long, value_name = "FILE")]
    pub features: Option<PathBuf>,
    /// Labels for an edge list: a `.npy` with one integer per node, negative where unknown
    #[arg(long, value_name = "FILE")]
    pub labels: Option<PathBuf>,
    /// Store every edge in both directions [default: as the format's published loader does]
    #[arg(long, value_name = "BOOL")]
    pub symmetrize: Option<bool>,
    /// What to divide each row of features by [default: sum for Planetoid, root-length for gnn-benchmark, else none]
    #[arg(long, value_enum)]
    pub normalize_features: Option<RowDivisor>,
    /// Which of the data's split sets to use, counted from 0, or all: run r takes set r [default: all]
    #[arg(long, value_name = "I|all", value_parser = parse_split)]
    pub split: Option<SplitChoice>,
}

/// The split sets to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitChoice {
    /// All of them, one a run.
    All,
    /// One of them, in every run.
    One(usize),
}

fn parse_split(text: &str) -> Result<SplitChoice, String> {
    match text {
        "all" => Ok(SplitChoice::All),
        _ => text.parse().map(SplitChoice::One).map_err(|_| "expected a number from 0, or all".to_owned()),
    }
}

/// How features are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodecChoice {
    /// Not at all.
    None,
    /// By this codec.
    Codec(CodecSpec),
}

impl CodecChoice {
    /// The codec, if there is one.
    pub fn codec(self) -> Option<CodecSpec> {
        match self {
            Self::None => None,
            Self::Codec(codec) => Some(codec),
        }
    }
}

fn parse_codec(text: &str) -> Result<CodecChoice, String> {
    Ok(girih_trainer::parse_codec(text)?.map_or(CodecChoice::None, CodecChoice::Codec))
}

impl DataArgs {
    /// The options for the loaders; `seed` and `n_splits` decide the splits of data that ships none.
    pub fn options(&self, seed: u64, n_splits: usize) -> LoadOptions {
        LoadOptions {
            feature_norm: self.normalize_features.map(FeatureNorm::from),
            symmetrize: self.symmetrize,
            seed,
            n_splits,
            split: match self.split {
                None | Some(SplitChoice::All) => None,
                Some(SplitChoice::One(split)) => Some(split),
            },
            features: self.features.clone(),
            codec: None,
            labels: self.labels.clone(),
        }
    }
}

/// Where results go.
#[derive(Clone, Copy, Debug, Args)]
pub struct OutputArgs {
    /// Print one JSON object a line on standard output, and nothing else there
    #[arg(long)]
    pub json: bool,
}

/// Where computation happens.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Device")]
pub struct DeviceArgs {
    /// Device to compute on: auto (the fastest that is there), cpu, cuda, or cuda:N for the N-th CUDA device
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = parse_device)]
    pub device: Device,
    /// Which 256 × 64 blocks of the adjacency a CUDA device multiplies with tensor cores: those in which at least this share
    /// of places is taken, like 0.05; none with never
    #[arg(long, value_name = "SHARE", default_value = "auto")]
    pub density_threshold: Tiling,
    /// Threads to compute with [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
}

/// A device to compute on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The fastest that is there.
    Auto,
    /// The processor's cores.
    Cpu,
    /// A CUDA device, by its number.
    Cuda(usize),
}

fn parse_device(text: &str) -> Result<Device, String> {
    let ordinal = text.strip_prefix("cuda:").map(str::parse);
    match (text, ordinal) {
        ("auto", _) => Ok(Device::Auto),
        ("cpu", _) => Ok(Device::Cpu),
        ("cuda", _) => Ok(Device::Cuda(0)),
        (_, Some(Ok(ordinal))) => Ok(Device::Cuda(ordinal)),
        _ => Err("expected auto, cpu, cuda or cuda:N".to_owned()),
    }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if rate > 0.0 && f64::is_finite(rate) => Ok(rate),
        _ => Err("expected a positive number of GB/s".to_owned()),
    }
}

fn parse_latency(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(latency) if latency >= 0.0 && f64::is_finite(latency) => Ok(latency),
        _ => Err("expected a number of microseconds, 0 or more".to_owned()),
    }
}

/// How ranks share the work.
#[derive(Debug, Args)]
#[command(next_help_heading = "Ranks")]
pub struct RankArgs {
    /// Work on this many ranks, threads of this process, each of which holds a part of the graph and of the features
    /// [default: one, or as many as `girih launch` or another launcher started processes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub ranks: Option<u16>,
    /// Work on this many CUDA devices of this machine, a rank each
    #[arg(long, value_name = "N", conflicts_with = "ranks", value_parser = clap::value_parser!(u16).range(1..))]
    pub gpus: Option<u16>,
    #[command(flatten)]
    pub partition: PartitionKind,
    /// In how many chunks of rows products are taken that sums of ranks or slices of columns follow (1.5d, 2d, 3d): on CUDA devices these
    /// are exchanged while the next chunk is multiplied
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub chunks: u16,
    /// What carries rows between the CUDA devices of --gpus: NCCL, whose kernels run beside those of products, or copies by the copy
    /// engines of each from the memory of the others (peer), which have to be able to read it
    #[arg(long, value_name = "nccl|peer", default_value_t)]
    pub transport: CardTransport,
    /// Of neighbor batches, what each rank holds: all of graph and features, or its own rows of both, asking the others for what
    /// it needs of theirs [default: replicated]
    #[arg(long, value_enum)]
    pub layout: Option<LayoutChoice>,
    /// Seconds that a rank waits for another before it gives up [default: 300]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub rank_deadline: Option<u64>,
    /// Where processes that a launcher started meet: rank 0's host and a free port there [default: what the launcher says]
    #[arg(long, value_name = "HOST:PORT")]
    pub rendezvous: Option<String>,
}

/// Which rank holds and multiplies which block, and what travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args)]
pub struct PartitionKind {
    /// How the adjacency is cut: by rows (1d), by rows that several ranks hold (1.5d), in a square of ranks (2d), in a
    /// cube (3d); in training also as a plan predicts to be quickest, exchange, stages and chunks included (auto)
    #[arg(long, value_name = "1d|1.5d|2d|3d|auto", default_value_t)]
    pub partition: PartitionChoice,
    /// Ranks that hold the same rows, of 1.5d
    #[arg(long, value_name = "R", default_value_t = 1)]
    pub replication: usize,
    /// What is sent for a step: whole blocks of rows (dense), only those that the receiver touches (rows), or whichever is
    /// less (auto)
    #[arg(long, value_name = "dense|rows|auto", default_value_t)]
    pub exchange: Exchange,
    /// Where nodes are cut: into equal numbers (equal), or into equal shares of nodes and edges (weighted), for graphs in an order of
    /// the whole
    #[arg(long, value_name = "equal|weighted", default_value_t)]
    pub cuts: Cuts,
    /// In how many stages the rows of other ranks come, each while those of the one before are multiplied: so many parts of all
    /// blocks of rows, or one block after the other (steps), which takes least memory [default: on CUDA devices 1, on processors steps]
    #[arg(long, value_name = "N|steps")]
    pub stages: Option<Stages>,
    /// How f32 rows travel and are multiplied: as they are, or rounded, in half the bytes, with the error in the result. With --precision bf16 all do
    #[arg(long, value_name = "f32|bf16", value_enum, default_value = "f32")]
    pub wire: Precision,
}

impl PartitionKind {
    /// What is cut and sent unless it is told.
    pub const USUAL: Self = Self {
        partition: PartitionChoice::Of(Scheme::OneD),
        replication: 1,
        exchange: Exchange::Auto,
        cuts: Cuts::Equal,
        stages: None,
        wire: Precision::F32,
    };

    /// The same, with rows in the place of what is still to be chosen.
    pub fn or_rows(self) -> Self {
        match self.partition {
            PartitionChoice::Of(_) => self,
            PartitionChoice::Auto => Self { partition: Self::USUAL.partition, ..self },
        }
    }
}

/// A partition, or the one that a plan predicts to be quickest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionChoice {
    Of(Scheme),
    Auto,
}

impl Default for PartitionChoice {
    fn default() -> Self {
        Self::Of(Scheme::default())
    }
}

impl fmt::Display for PartitionChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Of(scheme) => scheme.fmt(f),
            Self::Auto => f.write_str("auto"),
        }
    }
}

impl FromStr for PartitionChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => text.parse().map(Self::Of).map_err(|error| format!("{error}, or auto")),
        }
    }
}

/// `girih reorder`.
#[derive(Debug, Args)]
pub struct ReorderArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// The order: degree, slashburn, rcm (reverse Cuthill-McKee), metis (clusters of 200 nodes), parts (--blocks of
    /// METIS's parts, which few edges leave), community (nested communities, nodes by falling degree inside), auto (what is predicted to be quickest), random, none; several,
    /// separated by commas, are compared
    #[arg(long, value_name = "ORDER,…", value_delimiter = ',', required_unless_present = "permutation")]
    pub order: Vec<OrderKind>,
    /// Order inside so many equal ranges of ids, so that blocks of a partition keep their non-zeros; of parts, how many there are
    #[arg(long, value_name = "B", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub blocks: u32,
    /// Take the order from a file instead: the new id of every node, as `.npy`
    #[arg(long, value_name = "FILE.npy", conflicts_with_all = ["order", "blocks"])]
    #[arg(value_parser = PathBufValueParser::new().try_map(paths::npy))]
    pub permutation: Option<PathBuf>,
    /// GB/s that the device which auto chooses for gathers from its cache, of --cache KiB [default: the processor here]
    #[arg(long, value_name = "GB/S", requires = "memory_gb_s", value_parser = parse_rate, allow_negative_numbers = true)]
    pub cache_gb_s: Option<f64>,
    /// GB/s that it gathers from its memory
    #[arg(long, value_name = "GB/S", requires = "cache_gb_s", value_parser = parse_rate, allow_negative_numbers = true)]
    pub memory_gb_s: Option<f64>,
    /// Write the reordered data to this folder, with the order as new_of_old.npy; of several orders, that with the largest
    /// coverage
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Draw the non-zeros to this file: left as they are before, right after
    #[arg(long, value_name = "FILE.png", value_parser = PathBufValueParser::new().try_map(paths::png))]
    pub plot: Option<PathBuf>,
    /// Write figures, pictures and the balance of blocks to this page
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Shuffle the ids first: what an order gains is then not what the files brought along
    #[arg(long)]
    pub shuffle: bool,
    /// Seed of shuffled and random orders
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    #[command(flatten)]
    pub cache: CacheArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// The cache whose hits are simulated.
#[derive(Clone, Copy, Debug, Args)]
pub struct CacheArgs {
    /// Size of the simulated cache in KiB [default: the last-level cache of this machine]
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u64).range(1..))]
    pub cache: Option<u64>,
    /// Columns of the operand whose rows it holds, as f32
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    pub width: u32,
}

/// `girih partition`.
#[derive(Debug, Args)]
pub struct PartitionArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Number of ranks
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u16).range(1..))]
    pub ranks: u16,
    #[command(flatten)]
    pub partition: PartitionKind,
    /// Columns of the operand of the product that is counted
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    pub width: u32,
    /// Bytes a second that a rank exchanges, in GB/s
    #[arg(long, value_name = "GB/S", default_value_t = 10.0, value_parser = parse_rate, allow_negative_numbers = true)]
    pub link: f64,
    /// Microseconds before the first byte of an exchange
    #[arg(long, value_name = "US", default_value_t = 10.0, value_parser = parse_latency, allow_negative_numbers = true)]
    pub latency: f64,
    /// GB/s at which a rank gathers rows of the operand [default: measured here, as if each rank had such a machine]
    #[arg(long, value_name = "GB/S", value_parser = parse_rate, allow_negative_numbers = true)]
    pub gather: Option<f64>,
    /// Exchange the operand of a step while the step before multiplies
    #[arg(long)]
    pub overlap: bool,
    /// Draw the non-zeros of every block to this file
    #[arg(long, value_name = "FILE.svg", value_parser = PathBufValueParser::new().try_map(paths::svg))]
    pub plot: Option<PathBuf>,
    /// Say (and draw) it also after ordering the whole graph, and after ordering inside each block's ids
    #[arg(long, value_name = "ORDER")]
    pub compare: Option<OrderKind>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `girih sample`.
#[derive(Debug, Args)]
pub struct SampleArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// What a batch is: sampled neighbours of its seeds (neighbor), some nodes for each whole layer (layer), some clusters
    /// (cluster), or a drawn subgraph (saint)
    #[arg(long, value_enum, default_value_t = SampledBatch::Neighbor)]
    pub batch: SampledBatch,
    /// Neighbours of each node, for each hop from the seeds outward, -1 for all; of layer batches, nodes of each whole layer
    /// [default: 15,10,5; layer 2048,2048,2048]
    #[arg(long, value_name = "K,…", allow_hyphen_values = true)]
    pub fanout: Option<FanOut>,
    /// Seeds of a batch; draws of a saint batch: nodes, edges or walks
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    pub batch_size: u32,
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
    /// How global ids of neighbor batches become local ones: to-block, to-block-fast, fused or rank; batches are the same
    /// [default: rank]
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
    /// What each rank holds: its patches of the graph and of features, or all [default: patches]
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
    /// How many ranks there are.
    pub fn n_ranks(&self) -> u16 {
        self.ranks.unwrap_or(1)
    }
}

/// What each rank holds of graph and features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LayoutChoice {
    /// Its patches.
    #[default]
    Patches,
    /// All.
    Replicated,
}

impl LayoutChoice {
    /// As the command line and results spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Patches => "patches",
            Self::Replicated => "replicated",
        }
    }
}

impl From<LayoutChoice> for Layout {
    fn from(choice: LayoutChoice) -> Self {
        match choice {
            LayoutChoice::Patches => Self::Patches,
            LayoutChoice::Replicated => Self::Replicated,
        }
    }
}

impl From<Layout> for LayoutChoice {
    fn from(layout: Layout) -> Self {
        match layout {
            Layout::Patches => Self::Patches,
            Layout::Replicated => Self::Replicated,
        }
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
    /// Say where topology and features would lie on CUDA devices, which need not be here, and how often each place would be
    /// read; batches are made only to count
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
    /// Host memory that may be pinned; what it does not hold of the features stays on disk [default: as much as it takes]
    #[arg(long, value_name = "SIZE", requires = "plan", value_parser = sizes::parse)]
    pub host_memory: Option<u64>,
    /// What tells which nodes are read most: in how many lists of neighbours they are (degree), walks along edges (pagerank),
    /// walks from the seeds as sampling goes (reverse-pagerank), or batches of the sampler (presampled)
    #[arg(long, value_name = "degree|pagerank|reverse-pagerank|presampled", requires = "plan", default_value_t)]
    pub hotness: Hotness,
    /// Keep features as codes of this codec, like topk:8 [default: as the data have them]
    #[arg(long, value_name = "CODEC", requires = "plan", value_parser = parse_codec)]
    pub codec: Option<CodecChoice>,
    /// Share, from 0 to 1, that features get of the memory that training leaves [default: what is predicted to be quickest]
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
        unused(&of_neighbors, BatchKind::Neighbor).or_else(|| unused(&of_layers, BatchKind::Layer))
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

/// `girih train`.
#[derive(Debug, Args)]
pub struct TrainArgs {
    #[command(flatten)]
    pub data: DataArgs,
    #[command(flatten)]
    pub settings: Settings,
    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub ranks: RankArgs,
    /// Number the nodes in this order first; results keep their own numbers: none, degree, slashburn, rcm, metis, parts,
    /// community, auto (what is predicted to be quickest here), random
    #[arg(long, value_name = "ORDER", default_value_t)]
    pub reorder: OrderKind,
    /// With --reorder, order inside so many equal ranges of ids; of parts, how many there are [default: one for each row block of the
    /// partition]
    #[arg(long, value_name = "B", value_parser = clap::value_parser!(u32).range(1..))]
    pub reorder_blocks: Option<u32>,
    /// Read settings from a TOML file; flags override it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Write configuration, metrics, checkpoints and report.html to this folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write a checkpoint every N epochs, besides the one at the end
    #[arg(long, value_name = "N", requires = "out", value_parser = clap::value_parser!(u64).range(1..))]
    pub checkpoint_every: Option<u64>,
    /// Continue from the checkpoints in --out, bit for bit
    #[arg(long, requires = "out")]
    pub resume: bool,
    /// Record what CUDA devices do, the last 200 000 kernels and copies, to a file for ui.perfetto.dev
    #[arg(long, value_name = "FILE.json", value_parser = PathBufValueParser::new().try_map(paths::json))]
    pub timeline: Option<PathBuf>,
    /// Predict memory and time, and train nothing; with --gpus or --ranks for every partition, exchange, and number of stages and chunks,
    /// which are then not told, with the ones to choose
    #[arg(long)]
    pub plan: bool,
    /// With --plan, for a CUDA device with so much memory, which need not be here, like 80GB; with --device cpu, for a machine
    #[arg(long, value_name = "SIZE", requires = "plan", value_parser = sizes::parse)]
    pub memory: Option<u64>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `girih launch`.
#[derive(Debug, Args)]
pub struct LaunchArgs {
    /// Processes to start on this host, each a rank
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub nproc: u16,
    /// Where they meet: a name or address of the first host, and a free port there [default, on one host: found]
    #[arg(long, value_name = "HOST:PORT")]
    pub rendezvous: Option<String>,
    /// Hosts on which this command is called, with the same flags but --node
    #[arg(long, value_name = "M", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub nodes: u16,
    /// Which of the hosts this is, from 0
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub node: u16,
    /// What each process does: `train`, `evaluate` or `predict` and its flags
    #[arg(last = true, required = true, value_name = "train …")]
    pub command: Vec<OsString>,
}

/// Settings that end up in a [`TrainConfig`]; what is not given comes from the file or the defaults.
#[derive(Debug, Args)]
#[command(next_help_heading = "Settings")]
pub struct Settings {
    /// What is learnt: classes of nodes, or which pairs of nodes an edge joins [default: nodes]
    #[arg(long, value_enum)]
    pub task: Option<TaskArg>,
    /// Network: gcn, sgc, sage, attention (gat, gatv2), gin, powers of the adjacency (ngcn), appnp; lightgcn recommends
    /// items to users; mlp is the control. Defaults below that differ for a network name it
    #[arg(long, value_enum)]
    pub model: Option<Model>,
    /// Layers; for sgc and lightgcn, hops [default: 2; lightgcn 3]
    #[arg(long, value_name = "N")]
    pub layers: Option<usize>,
    /// Width of hidden layers; for lightgcn, of embeddings [default: 16; links 32, lightgcn 64]
    #[arg(long, value_name = "N", visible_alias = "dim")]
    pub hidden: Option<usize>,
    /// Share of hidden activations dropped out in training [default: 0.5; links and lightgcn 0]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub dropout: Option<f64>,
    /// Share of input features dropped out; at 0 the first aggregation is computed once [default: as --dropout]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub input_dropout: Option<f64>,
    /// Whether a first aggregation that is a constant is computed once, before training, or in every epoch [default: true]
    #[arg(long, value_name = "BOOL")]
    pub aggregate_once: Option<bool>,
    /// Heads of attention networks' hidden layers, each --hidden wide [default: 8]
    #[arg(long, value_name = "N")]
    pub heads: Option<usize>,
    /// Heads of their last layer, averaged [default: 1]
    #[arg(long, value_name = "N")]
    pub out_heads: Option<usize>,
    /// Share of attention dropped out after the softmax [default: as --dropout]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub attention_dropout: Option<f64>,
    /// Hops of appnp's propagation; highest power of ngcn
    #[arg(long, value_name = "N")]
    pub hops: Option<usize>,
    /// Teleport probability of appnp [default: 0.1]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub teleport: Option<f64>,
    /// Whether ngcn's powers go through a last linear layer or are averaged [default: true]
    #[arg(long, value_name = "BOOL")]
    pub mixing: Option<bool>,
    /// Hidden layers of gcn, gat, gatv2 and gin add to what they read
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub residual: Option<bool>,
    /// What normalises hidden layers of gcn, gat, gatv2 and gin [default: none]
    #[arg(long, value_enum)]
    pub norm: Option<NormArg>,
    /// Whether logits of gcn, gat, gatv2 and gin read all hidden layers [default: none]
    #[arg(long, value_enum)]
    pub jump: Option<JumpArg>,
    /// How GraphSAGE aggregates over neighbours: their mean, maximum, or an LSTM's last state [default: mean]
    #[arg(long, value_enum)]
    pub aggregator: Option<AggregatorArg>,
    /// Rule that changes the weights [default: adam]
    #[arg(long, value_enum)]
    pub optimizer: Option<Optimizer>,
    /// Learning rate [default: 0.01; lightgcn 0.001]
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    pub lr: Option<f64>,
    /// How the learning rate falls: constant, cosine, or step:EVERY:FACTOR [default: constant]
    #[arg(long, value_parser = parse_schedule)]
    pub schedule: Option<Schedule>,
    /// Epochs over which the learning rate first rises [default: 0]
    #[arg(long, value_name = "N")]
    pub warmup: Option<u64>,
    /// Weight decay; for lightgcn, of the embeddings of a batch [default: 0.0005; links 0, lightgcn 0.0001]
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    pub weight_decay: Option<f64>,
    /// Parameters that decay: those of the first layer, or all [default: first]
    #[arg(long, value_enum)]
    pub decay: Option<DecayArg>,
    /// Epochs of a run, at most [default: 200; lightgcn 1000]
    #[arg(long, value_name = "N")]
    pub epochs: Option<u64>,
    /// End a run after N epochs without a better validation score [default: never]
    #[arg(long, value_name = "N")]
    pub patience: Option<u64>,
    /// Score on the validation nodes that chooses the epoch; links go by roc-auc [default: accuracy]
    #[arg(long, value_enum)]
    pub metric: Option<MetricArg>,
    /// Take scores every N epochs, and at the last [default: 1; lightgcn 10]
    #[arg(long, value_name = "N")]
    pub eval_every: Option<u64>,
    /// Independent runs, reported as mean and deviation [default: 1]
    #[arg(long, value_name = "N")]
    pub runs: Option<u64>,
    /// Names every random draw: one seed, one result [default: 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Storage of features and gathered rows; sums are f32 in any case [default: f32]
    #[arg(long, value_enum)]
    pub precision: Option<Precision>,
    /// Compress features once, before training, and decode rows where they are used: CODEC of `girih compress`, or none
    /// [default: none]
    #[arg(long, value_name = "CODEC", value_parser = parse_codec)]
    pub codec: Option<CodecChoice>,
    #[command(flatten)]
    pub tiers: TierSettings,
    #[command(flatten)]
    pub batches: BatchSettings,
    #[command(flatten)]
    pub links: LinkSettings,
}

/// Settings of where CUDA devices have what mini-batches are sampled from and read, and the memory that decides it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Tiers of memory")]
pub struct TierSettings {
    /// Keep features in the host's memory, where CUDA devices read the rows of mini-batches, and on every device this share of them, from
    /// 0 to 1, those of the hottest nodes; behind a comma a share that is on one device each, from which the others read [default: every
    /// device has all]
    #[arg(long, value_name = "EVERY[,ONE]")]
    pub feature_cache: Option<CacheShares>,
    /// The same for the neighbours that devices draw from [default: every device has all]
    #[arg(long, value_name = "EVERY[,ONE]")]
    pub topology_cache: Option<CacheShares>,
    /// What tells which nodes are hot: in how many lists of neighbours they are (degree), walks along edges (pagerank), walks from the
    /// seeds as sampling goes (reverse-pagerank), or batches of the sampler (presampled) [default: presampled]
    #[arg(long, value_name = "degree|pagerank|reverse-pagerank|presampled")]
    pub hotness: Option<Hotness>,
    /// Choose both shares so that training takes so much memory of each device, like 80GB, at most, and batches are read in the least
    /// time; auto for what is free on the device, of several the least. The configuration that is written has the shares
    #[arg(long, value_name = "SIZE|auto", value_parser = parse_tier_memory, conflicts_with_all = ["feature_cache", "topology_cache"])]
    pub tier_memory: Option<TierMemory>,
}

/// Memory of each device that is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TierMemory {
    /// What is free.
    Auto,
    /// So many bytes.
    Size(u64),
}

fn parse_tier_memory(text: &str) -> Result<TierMemory, String> {
    match text {
        "auto" => Ok(TierMemory::Auto),
        _ => sizes::parse(text).map(TierMemory::Size).map_err(|error| format!("{error}, or auto")),
    }
}

impl TierSettings {
    fn override_in(&self, tiers: &mut TierConfig) {
        set(&mut tiers.features, self.feature_cache.map(Some));
        set(&mut tiers.topology, self.topology_cache.map(Some));
        set(&mut tiers.hotness, self.hotness);
    }
}

/// Settings of mini-batches.
#[derive(Debug, Args)]
#[command(next_help_heading = "Mini-batches")]
pub struct BatchSettings {
    /// What a training step sees: the full graph; sampled neighbours of some training nodes (neighbor), some nodes for each
    /// whole layer (layer), some clusters (cluster), or a drawn subgraph (saint). Scores are those of the full graph in any
    /// case [default: full]
    #[arg(long, value_enum)]
    pub batch: Option<Batch>,
    /// Neighbours of each node, for each layer from the seeds outward, -1 for all; of layer batches, nodes of each whole
    /// layer [default: 15,10,5; layer 2048]
    #[arg(long, value_name = "K,…", allow_hyphen_values = true)]
    pub fanout: Option<FanOut>,
    /// Training nodes or links in a neighbor batch, nodes in a layer batch; draws of a saint batch: nodes, edges or walks; interactions in a step of
    /// lightgcn [default: 1024; lightgcn 2048]
    #[arg(long, value_name = "N")]
    pub batch_size: Option<usize>,
    /// Draw neighbours or nodes of a layer with replacement
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub replace: Option<bool>,
    #[command(flatten)]
    pub subgraphs: SubgraphSettings,
    /// Cluster or saint batches in a step, each a graph of its own; ranks share them [default: 1]
    #[arg(long = "subgraphs", value_name = "N")]
    pub subgraphs_in_step: Option<usize>,
    /// Batches that the host makes ahead while a step computes; results do not depend on it [default: 2]
    #[arg(long, value_name = "N")]
    pub prefetch: Option<usize>,
    /// How scores of the full graph are computed, without sampling: in one pass over all of it (graph), or layer by layer, for some
    /// nodes at a time (layers), which takes less memory [default: graph; layers with a feature or topology cache]
    #[arg(long, value_enum)]
    pub score_by: Option<ScoreByArg>,
}

/// Settings of batches that are subgraphs.
#[derive(Debug, Args)]
pub struct SubgraphSettings {
    /// Clusters that the graph is cut into for cluster batches [default: one for 200 nodes]
    #[arg(long, value_name = "N")]
    pub clusters: Option<usize>,
    /// Clusters in a batch [default: a quarter of them, at most 20]
    #[arg(long, value_name = "N")]
    pub clusters_per_batch: Option<usize>,
    /// What saint batches are drawn by [default: walk]
    #[arg(long, value_enum)]
    pub saint: Option<Saint>,
    /// Steps of the walks of saint batches [default: 2]
    #[arg(long, value_name = "N")]
    pub walk_length: Option<u32>,
}

impl SubgraphSettings {
    /// Puts what was given into `config`.
    fn override_in(&self, config: &mut BatchConfig) {
        set(&mut config.clusters, self.clusters.map(Some));
        set(&mut config.clusters_per_batch, self.clusters_per_batch.map(Some));
        set(&mut config.saint, self.saint.map(SaintKind::from));
        set(&mut config.walk_length, self.walk_length);
    }
}

/// Settings of link prediction.
#[derive(Debug, Args)]
#[command(next_help_heading = "Links (--task links)")]
pub struct LinkSettings {
    /// Pairs that no edge joins for each training link, drawn anew in every epoch [default: 1]
    #[arg(long, value_name = "N")]
    pub negatives: Option<usize>,
    /// Share of the links that choose the epoch [default: 0.05]
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    pub val_links: Option<f64>,
    /// Share of the links that are reported; messages travel over neither [default: 0.1]
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    pub test_links: Option<f64>,
    /// Columns of the embeddings, whose products are the scores of pairs [default: 16]
    #[arg(long, value_name = "N")]
    pub embedding_width: Option<usize>,
}

impl LinkSettings {
    /// Puts what was given into `config`.
    fn override_in(&self, config: &mut TrainConfig) {
        let links = &mut config.links;
        set(&mut links.negatives, self.negatives);
        set(&mut links.val, self.val_links);
        set(&mut links.test, self.test_links);
        set(&mut links.width, self.embedding_width);
    }
}

/// Puts what was given in the place of a setting.
fn set<T>(slot: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *slot = value;
    }
}

impl BatchSettings {
    /// Puts what was given into `config`.
    fn override_in(&self, config: &mut TrainConfig) {
        set(&mut config.batch_size, self.batch_size.map(Some));
        let batch = &mut config.batch;
        set(&mut batch.kind, self.batch.map(BatchKind::from));
        set(&mut batch.fanout, self.fanout.as_ref().map(numbers));
        set(&mut batch.replace, self.replace);
        set(&mut batch.subgraphs, self.subgraphs_in_step);
        set(&mut batch.prefetch, self.prefetch);
        set(&mut batch.score_by, self.score_by.map(|by| Some(ScoreBy::from(by))));
        self.subgraphs.override_in(batch);
    }
}

/// A fan-out as configurations hold it.
fn numbers(fan_out: &FanOut) -> Vec<i64> {
    let number = |hop: &Neighbors| match *hop {
        Neighbors::Count(count) => i64::from(count),
        Neighbors::All => -1,
    };
    fan_out.hops().iter().map(number).collect()
}

impl Settings {
    /// Puts what was given into `config`.
    pub fn override_in(&self, config: &mut TrainConfig) {
        set(&mut config.task, self.task.map(TaskKind::from));
        let model = &mut config.model;
        set(&mut model.kind, self.model.map(ModelKind::from));
        set(&mut model.layers, self.layers);
        set(&mut model.hidden, self.hidden);
        set(&mut model.dropout, self.dropout);
        set(&mut model.input_dropout, self.input_dropout.map(Some));
        set(&mut model.aggregate_once, self.aggregate_once);
        set(&mut model.heads, self.heads);
        set(&mut model.out_heads, self.out_heads);
        set(&mut model.attention_dropout, self.attention_dropout.map(Some));
        set(&mut model.hops, self.hops);
        set(&mut model.teleport, self.teleport);
        set(&mut model.mixing, self.mixing);
        set(&mut model.residual, self.residual);
        set(&mut model.norm, self.norm.map(NormKind::from));
        set(&mut model.jump, self.jump.map(Jump::from));
        set(&mut model.aggregator, self.aggregator.map(Aggregator::from));
        let optimizer = &mut config.optimizer;
        set(&mut optimizer.kind, self.optimizer.map(OptimizerKind::from));
        set(&mut optimizer.lr, self.lr);
        set(&mut optimizer.schedule, self.schedule);
        set(&mut optimizer.warmup, self.warmup);
        set(&mut optimizer.weight_decay, self.weight_decay);
        set(&mut optimizer.decay, self.decay.map(Decay::from));
        self.batches.override_in(config);
        self.links.override_in(config);
        set(&mut config.epochs, self.epochs);
        set(&mut config.patience, self.patience.map(Some));
        set(&mut config.eval_every, self.eval_every);
        set(&mut config.runs, self.runs);
        set(&mut config.seed, self.seed);
        set(&mut config.metric, self.metric.map(Metric::from));
        set(&mut config.precision, self.precision.map(Dtype::from));
        set(&mut config.codec, self.codec.map(CodecChoice::codec));
        self.tiers.override_in(&mut config.tiers);
    }
}

/// Declares a flag's values beside the library's enum that they stand for.
macro_rules! value_enum {
    ($(#[$doc:meta])* $name:ident for $target:ty { $($(#[$value_doc:meta])* $value:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
        pub enum $name { $($(#[$value_doc])* $value),+ }

        impl From<$name> for $target {
            fn from(value: $name) -> Self {
                match value { $($name::$value => Self::$value),+ }
            }
        }
    };
}

value_enum! {
    /// For which nodes a hop draws neighbours.
    ExpandChoice for Expand {
        /// For the nodes that the hop before found.
        Once,
        /// For all nodes found so far.
        PerLayer,
    }
}
value_enum! {
    /// Who draws neighbours.
    DrawsChoice for Draws {
        /// Each node for itself (GraphSAGE).
        #[value(name = "node")]
        PerNode,
        /// The nodes of a hop together, so many for all (DSP's layer-wise sampling).
        #[value(name = "layer")]
        PerLayer,
        /// Each node for itself, with numbers in common (LABOR-0).
        Labor,
    }
}
value_enum! {
    /// What a sampled batch is.
    SampledBatch for BatchKind { Neighbor, Layer, Cluster, Saint }
}
value_enum! {
    /// A network.
    Model for ModelKind { Gcn, Sgc, Sage, Gat, Gatv2, Gin, Ngcn, Appnp, Mlp, #[value(name = "lightgcn")] LightGcn }
}
value_enum! {
    /// What is learnt.
    TaskArg for TaskKind { Nodes, Links }
}
value_enum! {
    /// What normalises hidden layers.
    NormArg for NormKind { None, Layer, Batch }
}
value_enum! {
    /// How logits read hidden layers.
    JumpArg for Jump { None, Concat, Max }
}
value_enum! {
    /// A score that chooses the epoch.
    MetricArg for Metric { Accuracy, RocAuc }
}
value_enum! {
    /// An aggregator of GraphSAGE.
    AggregatorArg for Aggregator { Mean, Pool, Lstm }
}
value_enum! {
    /// An optimiser.
    Optimizer for OptimizerKind { Adam, Adamw, Sgd }
}
value_enum! {
    /// Which parameters decay.
    DecayArg for Decay { First, All }
}
value_enum! {
    /// What rows of features are divided by.
    RowDivisor for FeatureNorm { None, Sum, Length, RootLength }
}
value_enum! {
    /// What a training step sees.
    Batch for BatchKind { Full, Neighbor, Layer, Cluster, Saint }
}
value_enum! {
    /// What GraphSAINT draws.
    Saint for SaintKind { Node, Edge, Walk }
}
value_enum! {
    /// How runs on mini-batches are scored.
    ScoreByArg for ScoreBy { Graph, Layers }
}
value_enum! {
    /// A storage of floats.
    Precision for Dtype { F32, Bf16 }
}

fn parse_schedule(text: &str) -> Result<Schedule, String> {
    let parts: Vec<&str> = text.split(':').collect();
    match parts[..] {
        ["constant"] => Ok(Schedule::Constant),
        ["cosine"] => Ok(Schedule::Cosine),
        ["step", every, factor] => {
            let every = every.parse().map_err(|_| format!("`{every}` is not a number of epochs"))?;
            let factor = factor.parse().map_err(|_| format!("`{factor}` is not a factor"))?;
            Ok(Schedule::Step { every, factor })
        }
        _ => Err("expected constant, cosine or step:EVERY:FACTOR, for instance step:100:0.5".to_owned()),
    }
}

/// `girih evaluate`.
#[derive(Debug, Args)]
pub struct EvaluateArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Output folder of `girih train`, or one checkpoint file of it
    #[arg(long, value_name = "DIR")]
    pub checkpoint: PathBuf,
    /// Compress features by another codec than in training, or not at all: none
    #[arg(long, value_name = "CODEC", value_parser = parse_codec)]
    pub codec: Option<CodecChoice>,
    /// Say how alike inputs and layers are on features and on their codes, before and after training, instead of scores
    #[arg(long)]
    pub similarity: bool,
    #[command(flatten)]
    pub ranks: RankArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `girih predict`.
#[derive(Debug, Args)]
pub struct PredictArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Output folder of `girih train`, or one checkpoint file of it
    #[arg(long, value_name = "DIR")]
    pub checkpoint: PathBuf,
    /// File to write: an integer class per node; with several labels a node, a row of 0 and 1; of a recommender, a row of
    /// 20 items per user, best first
    #[arg(long, value_name = "FILE.npy")]
    pub out: PathBuf,
    /// Write the logits, a row of floats per node, instead
    #[arg(long)]
    pub logits: bool,
    #[command(flatten)]
    pub ranks: RankArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `girih stats`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    #[command(flatten)]
    pub data: DataArgs,
    #[command(flatten)]
    pub cache: CacheArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `girih generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    #[arg(
        value_name = "SPEC",
        help = "What to generate: NAME[@SCALE][,key=value…], with or without `synth:` before it"
    )]
    pub spec: String,
    /// Folder to write
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `girih convert`.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Folder to write; a name ending in `.safetensors` writes all arrays to one file, and these write the graph alone:
    /// `.npz` for scipy, `.mtx`, `.graph`, and edge lists `.csv`, `.tsv` and `.txt`, text also as `.gz`
    #[arg(long, value_name = "PATH")]
    pub out: PathBuf,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `girih compress`.
#[derive(Debug, Args)]
pub struct CompressArgs {
    /// Data with features, as for `girih train`; or a matrix `.npy` of float16, float32 or float64 with a row for each node,
    /// which may be larger than memory
    #[arg(long, value_name = "SPEC")]
    pub data: String,
    /// Code of a row: topk:K (K largest and K smallest values of each 256), topk-residual:K, f16, bf16, int8, int4, pca:R
    /// (R components), pq:M (M pieces), or auto:BYTES (the one with the least error in so many bytes)
    #[arg(long, value_name = "CODEC", default_value = "topk:8")]
    pub codec: CodecSpec,
    /// Folder that gets the store, `features.codes`; interrupted, the same call goes on
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Threads to encode with [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// Rows that the codec learns from, drawn at random
    #[arg(long, value_name = "N", default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(2..))]
    pub sample: u32,
    /// Seed of what is drawn
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `girih decompress`.
#[derive(Debug, Args)]
pub struct DecompressArgs {
    /// Folder that `girih compress` wrote
    #[arg(value_name = "DIR")]
    pub store: PathBuf,
    /// Array to write, of float32
    #[arg(long, value_name = "FILE.npy")]
    #[arg(value_parser = PathBufValueParser::new().try_map(paths::npy))]
    pub out: PathBuf,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `girih doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub output: OutputArgs,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_override_what_the_file_says() {
        let cli = Cli::parse_from(["girih", "train", "--model", "sage", "--lr", "0.1", "--schedule", "step:10:0.5"]);
        let Command::Train(args) = cli.command else { panic!("not train") };
        let mut config = TrainConfig { epochs: 7, ..TrainConfig::default() };
        args.settings.override_in(&mut config);
        assert_eq!((config.model.kind, config.optimizer.lr, config.epochs), (ModelKind::Sage, 0.1, 7));
        assert_eq!(config.optimizer.schedule, Schedule::Step { every: 10, factor: 0.5 });
    }

    #[test]
    fn a_codec_is_named_as_girih_compress_names_it() {
        let config = |codec: &str| {
            let cli = Cli::try_parse_from(["girih", "train", "--codec", codec]);
            let Command::Train(args) = cli.map_err(|error| error.to_string())?.command else { panic!("not train") };
            let mut config = TrainConfig { codec: Some(CodecSpec::Int4), ..TrainConfig::default() };
            args.settings.override_in(&mut config);
            Ok::<_, String>(config.codec)
        };
        assert_eq!(config("topk:8"), Ok(Some(CodecSpec::Topk(8))));
        assert_eq!((config("half"), config("none")), (Ok(Some(CodecSpec::F16)), Ok(None)));
        for (wrong, told) in [("foo", "topk:K"), ("foo", "or none"), ("topk:0", "1 to 128"), ("topk", "topk:8")] {
            let error = config(wrong).unwrap_err();
            assert!(error.contains(told), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_fan_out_is_one_number_a_layer() {
        let cli = Cli::parse_from(["girih", "train", "--batch", "neighbor", "--fanout", "-1,5", "--replace"]);
        let Command::Train(args) = cli.command else { panic!("not train") };
        let mut config = TrainConfig::default();
        args.settings.override_in(&mut config);
        assert_eq!((config.batch.kind, &config.batch.fanout[..]), (BatchKind::Neighbor, &[-1, 5][..]));
        assert!(config.batch.replace && config.validate().is_ok());
    }

    #[test]
    fn a_schedule_that_makes_no_sense_is_refused() {
        assert!(parse_schedule("step:x:0.5").is_err());
        assert!(parse_schedule("linear").is_err());
    }
}
