//! Flags of commands that train models and apply them.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser as _};
use girih_reorder::OrderKind;

use super::codec::parse_codec;
use super::{CodecChoice, DataArgs, DeviceArgs, LayoutChoice, OutputArgs, RankArgs, Settings};
use crate::{paths, sizes};

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
    /// Of neighbor batches, what each rank holds: all of graph and features (replicated), its own rows of both
    /// (patches), or all of the graph and its own rows of features (split-features), of which with --feature-cache a
    /// CUDA device has the hottest of all and the host its own; what it needs of others' it asks them for [default:
    /// replicated]
    #[arg(long, value_enum, help_heading = "Ranks")]
    pub layout: Option<LayoutChoice>,
    /// Number the nodes in this order first; results keep their own numbers: none, degree, slashburn, rcm, metis,
    /// parts, community, auto (what is predicted to be quickest here), random
    #[arg(long, value_name = "ORDER", default_value_t)]
    pub reorder: OrderKind,
    /// With --reorder, order inside so many equal ranges of ids; of parts, how many there are [default: one for each
    /// row block of the partition]
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
    /// Predict memory and time, and train nothing; with --gpus or --ranks for every partition, exchange, and number of
    /// stages and chunks, which are then not told, with the ones to choose; of mini-batches, with --gpus, memory for
    /// each layout
    #[arg(long)]
    pub plan: bool,
    /// With --plan, for a CUDA device with so much memory, which need not be here, like 80GB; with --device cpu, for a
    /// machine
    #[arg(long, value_name = "SIZE", requires = "plan", value_parser = sizes::parse)]
    pub memory: Option<u64>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `girih evaluate`.
#[derive(Debug, Args)]
pub struct EvaluateArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Output folder of `girih train`, which also says what data it was trained on, or one checkpoint file of it
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
    /// Output folder of `girih train`, which also says what data it was trained on, or one checkpoint file of it
    #[arg(long, value_name = "DIR")]
    pub checkpoint: PathBuf,
    /// File to write: an integer class per node; with several labels a node, a row of 0 and 1; of a recommender, a row
    /// of 20 items per user, best first
    #[arg(long, value_name = "FILE.npy")]
    #[arg(value_parser = PathBufValueParser::new().try_map(paths::npy))]
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
