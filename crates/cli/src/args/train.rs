//! Flags of commands that train models and apply them.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser as _};
use girih_reorder::OrderKind;

use super::codec::parse_codec;
use super::{CodecChoice, DataArgs, DeviceArgs, LayoutChoice, OutputArgs, RankArgs, Settings, any_case};
use crate::{paths, sizes};

/// `girih train`.
#[derive(Debug, Args)]
pub struct TrainArgs {
    #[command(flatten)]
    pub data: DataArgs,
    #[command(flatten)]
    pub settings: Settings,
    /// Read settings from a TOML file; flags override it
    #[arg(long, value_name = "FILE", help_heading = "Settings")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub ranks: RankArgs,
    /// Data that each rank holds, for neighbor batches [default: replicated]
    ///
    /// Each rank has a patch: a part of the nodes. A rank asks the others for data that it does not hold. With
    /// split-features and --feature-cache, each GPU caches the most read features of all patches, and host memory has
    /// those of its own patch.
    #[arg(long, value_enum, help_heading = "Ranks")]
    pub layout: Option<LayoutChoice>,
    /// Order in which nodes are numbered for training; results keep the original ids
    ///
    /// One of none, degree, slashburn, rcm, metis, parts, community, random, or auto: the order that is predicted to be
    /// fastest on this machine.
    #[arg(long, value_name = "ORDER", default_value_t, value_parser = any_case::<OrderKind>)]
    #[arg(help_heading = "Order of nodes")]
    pub reorder: OrderKind,
    /// Number of equal ranges of ids that --reorder renumbers apart, so that nodes stay with their rank
    ///
    /// For --reorder parts: the number of parts. [default: the number of row blocks of the partition]
    #[arg(long, value_name = "B", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Order of nodes")]
    pub reorder_blocks: Option<u32>,
    /// Predict memory and time, and train nothing
    ///
    /// With --gpus or --ranks: a table of every partition and exchange, with the fastest one that fits. For
    /// mini-batches with --gpus: the memory of every layout.
    #[arg(long, help_heading = "Plan")]
    pub plan: bool,
    /// Memory of the planned CUDA device, like 80GB; the device need not be here
    ///
    /// With --device cpu, the main memory of the planned machine.
    #[arg(long, value_name = "SIZE", requires = "plan", value_parser = sizes::parse, help_heading = "Plan")]
    pub memory: Option<u64>,
    /// Folder for all results: metrics, checkpoints, report.html
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Write event files for TensorBoard, too: `tensorboard --logdir DIR/tensorboard`
    ///
    /// DIR is that of --out. Each run has a folder there. A resumed training goes on with them in any case.
    #[arg(long, requires = "out", help_heading = "Output")]
    pub tensorboard: bool,
    /// Epochs between two checkpoints; one is written at the end in any case
    #[arg(long, value_name = "N", requires = "out", value_parser = clap::value_parser!(u64).range(1..))]
    #[arg(help_heading = "Output")]
    pub checkpoint_every: Option<u64>,
    /// Resume the training in --out; results are bit-identical
    ///
    /// Data and settings are those of its config.toml; flags may change --epochs, --runs, --patience, --eval-every,
    /// --prefetch and shares of caches. Other settings are refused. Another device or other ranks give a warning:
    /// results then differ by the order of sums.
    #[arg(long, requires = "out", help_heading = "Output")]
    pub resume: bool,
    /// File for the last 200 000 kernels and copies of CUDA devices, to view in ui.perfetto.dev
    #[arg(long, value_name = "FILE.json", value_parser = PathBufValueParser::new().try_map(paths::json))]
    #[arg(help_heading = "Output")]
    pub timeline: Option<PathBuf>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `girih evaluate`.
#[derive(Debug, Args)]
pub struct EvaluateArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Output folder of `girih train`, or one checkpoint file of it
    ///
    /// Without --data, the data are those of its config.toml.
    #[arg(long, value_name = "DIR", help_heading = "Model")]
    pub checkpoint: PathBuf,
    /// Codec of the features, where it is not that of the training; none for no compression
    #[arg(long, value_name = "CODEC", value_parser = parse_codec, help_heading = "Model")]
    pub codec: Option<CodecChoice>,
    /// Report the similarity of layers on features and on their codes, instead of scores
    #[arg(long, help_heading = "Model")]
    pub similarity: bool,
    /// Print what the evaluator of the Open Graph Benchmark prints for these data, instead of scores
    ///
    /// For ogbn-arxiv, ogbn-products, ogbn-papers100M, ogbn-proteins, ogbl-ddi, ogbl-collab, ogbl-ppa and
    /// ogbl-citation2, in folders of these names, on their own splits and negative pairs. The lists of ogbl-citation2 are
    /// printed as their means.
    #[arg(long, conflicts_with = "similarity", help_heading = "Model")]
    pub ogb: bool,
    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub ranks: RankArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `girih predict`.
#[derive(Debug, Args)]
pub struct PredictArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Output folder of `girih train`, or one checkpoint file of it
    ///
    /// Without --data, the data are those of its config.toml.
    #[arg(long, value_name = "DIR", help_heading = "Model")]
    pub checkpoint: PathBuf,
    /// Nodes that the graph does not have: .npz, .safetensors or a folder with x, edge_index, edge_weight
    ///
    /// Only they are predicted, as if the graph had them and their edges. Of a graph of N nodes, they have the ids N,
    /// N + 1, … in the order of the rows of x. An edge goes from the first row of edge_index to the second; give both
    /// directions where the graph has both.
    #[arg(long, value_name = "PATH", conflicts_with = "ranks", help_heading = "Model")]
    pub nodes: Option<PathBuf>,
    /// Logits, a row of floats for each node, instead of classes
    #[arg(long, help_heading = "Model")]
    pub logits: bool,
    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub ranks: RankArgs,
    /// File to write: one class for each node
    ///
    /// With several labels a node: a row of 0 and 1 for each node. Of a recommender: a row of 20 items for each user,
    /// best first. A table, .csv or .tsv, has the names of nodes and classes, where the data has names.
    #[arg(long, value_name = "FILE.npy", help_heading = "Output")]
    #[arg(value_parser = PathBufValueParser::new().try_map(paths::npy_or_table))]
    pub out: PathBuf,
    #[command(flatten)]
    pub output: OutputArgs,
}
