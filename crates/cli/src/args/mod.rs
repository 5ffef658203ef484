//! Commands and flags of the command line.

mod batches;
mod choices;
mod codec;
mod compare;
mod completions;
mod data;
mod device;
mod edges;
mod help;
mod order;
mod ranks;
mod reading;
mod sample;
mod serve;
mod settings;
mod suggest;
mod time;
mod train;
mod weights;

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

pub use self::batches::{BatchSettings, LinkSettings, SubgraphSettings};
pub use self::choices::{
    AggregatorArg, Batch, DecayArg, DistanceArg, DrawsChoice, ExpandChoice, JumpArg, LayoutChoice, MetricArg, NormArg,
    NormalizationArg, Optimizer, Precision, RowDivisor, Saint, SampledBatch, ScoreByArg, SelfWeightArg, TaskArg,
};
pub use self::codec::{CodecChoice, CompressArgs, DecompressArgs};
pub use self::compare::CompareArgs;
pub use self::completions::{CompletionsArgs, Script};
pub use self::data::{ConvertArgs, DEFAULT_DATA, DataArgs, GenerateArgs, StatsArgs};
pub use self::device::{Device, DeviceArgs};
pub use self::edges::EdgeSettings;
pub use self::help::{HELP, Help};
pub use self::order::{CacheArgs, ReorderArgs};
pub use self::ranks::{LaunchArgs, PartitionArgs, PartitionChoice, PartitionKind, RankArgs};
pub use self::reading::ReadArgs;
pub use self::sample::{CutChoice, Importance, SampleArgs};
pub use self::serve::{EmbedArgs, LimitArgs, ServeArgs};
pub use self::settings::{ModelSettings, Settings, TierMemory};
pub use self::suggest::FOREIGN;
pub use self::time::{TimeSettings, read_times};
pub use self::train::{EvaluateArgs, PredictArgs, TrainArgs};
pub use self::weights::{ExportArgs, ImportArgs};

/// Trains graph neural networks, from two laptop cores up
#[derive(Debug, Parser)]
#[command(name = "girih", version, propagate_version = true, max_term_width = 100)]
pub struct Cli {
    /// Flags of every command.
    #[command(flatten)]
    pub messages: MessageArgs,
    /// Command with its flags.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a model; without flags, a GCN on a small generated graph
    Train(Box<TrainArgs>),
    /// Start processes that train together, one per rank
    Launch(LaunchArgs),
    /// Score a trained model on a data set
    Evaluate(EvaluateArgs),
    /// Write a trained model's predictions for every node
    Predict(PredictArgs),
    /// Write the last hidden layer of a trained model, or its embeddings
    Embed(EmbedArgs),
    /// Answer questions about nodes over HTTP, also about nodes that the graph does not have
    Serve(ServeArgs),
    /// Write the weights of a trained model for PyG, NumPy or Hugging Face
    Export(ExportArgs),
    /// Make a trained model from weights of PyG, NumPy or Hugging Face
    Import(Box<ImportArgs>),
    /// Show training sessions side by side: settings, scores, times, curves
    Compare(CompareArgs),
    /// Describe a data set: degrees, components, order quality, tile densities
    Stats(StatsArgs),
    /// Renumber the nodes so that neighbors are near each other in memory
    Reorder(ReorderArgs),
    /// Show how ranks would divide a product: blocks, bytes, time
    Partition(PartitionArgs),
    /// Sample mini-batches, and report their number, size and speed
    Sample(SampleArgs),
    /// Encode features into a compressed store
    Compress(CompressArgs),
    /// Write the features of a compressed store as an array
    Decompress(DecompressArgs),
    /// Generate a data set and write it as a girih folder
    Generate(GenerateArgs),
    /// Read a data set in any format and write it in another
    Convert(ConvertArgs),
    /// Compare a folder, store or checkpoint with its checksums
    Verify(VerifyArgs),
    /// Show what this machine offers and what is missing
    Doctor(DoctorArgs),
    /// Print shell completions, or write man pages
    Completions(CompletionsArgs),
}

/// Amount of messages on standard error.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub struct MessageArgs {
    /// Print no progress and no notes; -qq no warnings either
    #[arg(short, long, global = true, action = ArgAction::Count, conflicts_with = "verbose")]
    pub quiet: u8,
    /// Print decisions; -vv also details for debugging
    ///
    /// The environment variable GIRIH_LOG overrides both, for instance GIRIH_LOG=debug.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
}

/// Form of the results.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Print JSON, one object a line
    ///
    /// Nothing else goes to standard output. Errors and warnings are events there, too: {"event":"error", ...}.
    #[arg(long)]
    pub json: bool,
}

/// `girih verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// A girih folder, a store of codes, a checkpoint, or a folder of a training session
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `girih doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub output: OutputArgs,
}

impl Cli {
    /// Parses a command line, whose first word is the program.
    ///
    /// # Errors
    /// Errors of clap, including help and version. For a flag of another tool, the error names girih's flag.
    pub fn parse_line(words: impl IntoIterator<Item = impl Into<OsString>>) -> Result<Self, clap::Error> {
        let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
        let mut command = command();
        let parsed = command.try_get_matches_from_mut(&words).and_then(|matches| Self::from_arg_matches(&matches));
        let mut cli = parsed.map_err(|error| suggest::with_flag_of_girih(error, &command, &words))?;
        cli.command.take_path();
        Ok(cli)
    }
}

impl Command {
    /// Number of threads for all computation, if a flag says it.
    pub fn threads(&self) -> Option<u16> {
        match self {
            Self::Train(args) => args.device.threads,
            Self::Evaluate(args) => args.device.threads,
            Self::Predict(args) => args.device.threads,
            Self::Embed(args) => args.device.threads,
            Self::Serve(args) => args.device.threads,
            Self::Compress(args) => args.threads,
            _ => None,
        }
    }

    /// Treats data given without `--data` as if they were given with it.
    fn take_path(&mut self) {
        let data = match self {
            Self::Train(args) => &mut args.data,
            Self::Evaluate(args) => &mut args.data,
            Self::Predict(args) => &mut args.data,
            Self::Embed(args) => &mut args.data,
            Self::Serve(args) => &mut args.data,
            Self::Stats(args) => &mut args.data,
            Self::Reorder(args) => &mut args.data,
            Self::Partition(args) => &mut args.data,
            Self::Sample(args) => &mut args.data,
            Self::Convert(args) => &mut args.data,
            Self::Import(args) => &mut args.data,
            Self::Launch(_)
            | Self::Export(_)
            | Self::Compare(_)
            | Self::Compress(_)
            | Self::Decompress(_)
            | Self::Generate(_)
            | Self::Verify(_)
            | Self::Doctor(_)
            | Self::Completions(_) => return,
        };
        data.data = data.data.take().or_else(|| data.path.take());
    }
}

/// Grammar of the command line: enum values in any case, short help of common flags, examples.
pub fn command() -> clap::Command {
    let any_case = |arg: clap::Arg| {
        let has_names = arg.get_action().takes_values() && !arg.get_possible_values().is_empty();
        if has_names { arg.ignore_case(true) } else { arg }
    };
    Cli::command().mut_subcommands(|command| help::completed(command.mut_args(any_case)))
}

/// Parses a name without regard to case.
fn any_case<T: FromStr<Err: ToString>>(text: &str) -> Result<T, String> {
    text.to_ascii_lowercase().parse().map_err(|error: T::Err| error.to_string())
}

/// Parser of names that a library lists, without regard to case. Help and completions show all of them.
fn one_of<T>(names: impl IntoIterator<Item = &'static str>) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err: ToString> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|name| any_case(&name))
}
