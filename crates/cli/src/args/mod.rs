//! What a user can write: commands and flags.

mod batches;
mod choices;
mod codec;
mod data;
mod device;
mod order;
mod ranks;
mod sample;
mod settings;
mod train;

use clap::{Args, Parser, Subcommand};

pub use self::batches::{BatchSettings, LinkSettings, SubgraphSettings};
pub use self::choices::{
    AggregatorArg, Batch, DecayArg, DrawsChoice, ExpandChoice, JumpArg, LayoutChoice, MetricArg, Model, NormArg,
    NormalizationArg, Optimizer, Precision, RowDivisor, Saint, SampledBatch, ScoreByArg, TaskArg,
};
pub use self::codec::{CodecChoice, CompressArgs, DecompressArgs};
pub use self::data::{ConvertArgs, DEFAULT_DATA, DataArgs, GenerateArgs, SplitChoice, StatsArgs};
pub use self::device::{Device, DeviceArgs};
pub use self::order::{CacheArgs, ReorderArgs};
pub use self::ranks::{LaunchArgs, PartitionArgs, PartitionChoice, PartitionKind, RankArgs};
pub use self::sample::{CutChoice, Importance, SampleArgs};
pub use self::settings::{Settings, TierMemory};
pub use self::train::{EvaluateArgs, PredictArgs, TrainArgs};

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

/// Where results go.
#[derive(Clone, Copy, Debug, Args)]
pub struct OutputArgs {
    /// Print one JSON object a line on standard output, and nothing else there
    #[arg(long)]
    pub json: bool,
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
}
