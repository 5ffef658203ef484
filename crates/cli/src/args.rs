//! What a user can write: commands and flags.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use girih_compute::Dtype;
use girih_datasets::{FeatureNorm, LoadOptions};
use girih_trainer::{Aggregator, Decay, ModelKind, OptimizerKind, Schedule, TrainConfig};

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
    /// Score a trained model on a data set
    Evaluate(EvaluateArgs),
    /// Write a trained model's predictions for every node
    Predict(PredictArgs),
    /// Describe a data set: degrees, components, order quality, tile densities
    Stats(StatsArgs),
    /// Generate a data set and write it as a girih folder
    Generate(GenerateArgs),
    /// Read a data set in any format and write it in another
    Convert(ConvertArgs),
    /// Say what this machine offers and what is missing
    Doctor(DoctorArgs),
}

const DATA_HELP: &str = "\
A path (girih folder, Planetoid `ind.*` folder, gnn-benchmark or scipy `.npz`, also in a `.zip`, edge list `.csv`/`.tsv`/`.txt`, \
`.gz` or not), or a generator: synth:planted, synth:rmat, synth:reddit, proteins, archaea, products, papers100m, mag240m, yelp, \
friendster, with @SCALE and ,key=value…, for instance synth:reddit@0.1 or synth:planted,nodes=10000,degree=20";

/// Which data, and how files become a data set.
#[derive(Debug, Args)]
pub struct DataArgs {
    #[arg(long, value_name = "SPEC", help = DATA_HELP)]
    pub data: Option<String>,
    /// Features for an edge list: a `.npy` with one row of floats per node
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
}

impl DataArgs {
    /// The options for the loaders; `seed` and `n_splits` decide the splits of data that ships none.
    pub fn options(&self, seed: u64, n_splits: usize) -> LoadOptions {
        LoadOptions {
            feature_norm: self.normalize_features.map(FeatureNorm::from),
            symmetrize: self.symmetrize,
            seed,
            n_splits,
            features: self.features.clone(),
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
#[derive(Debug, Args)]
pub struct DeviceArgs {
    /// Device to compute on
    #[arg(long, value_enum, default_value_t)]
    pub device: Device,
    /// Threads to compute with [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
}

/// A device to compute on.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum Device {
    /// The fastest that is there
    #[default]
    Auto,
    /// The processor's cores
    Cpu,
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
    /// Predict memory and time, and train nothing
    #[arg(long)]
    pub plan: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Settings that end up in a [`TrainConfig`]; what is not given comes from the file or the defaults.
#[derive(Debug, Args)]
#[command(next_help_heading = "Settings")]
pub struct Settings {
    /// Network: graph convolutions, simplified graph convolution, GraphSAGE, or a perceptron as the control
    #[arg(long, value_enum)]
    pub model: Option<Model>,
    /// Layers; for sgc, hops [default: 2]
    #[arg(long, value_name = "N")]
    pub layers: Option<usize>,
    /// Width of hidden layers [default: 16]
    #[arg(long, value_name = "N")]
    pub hidden: Option<usize>,
    /// Share of hidden activations dropped out in training [default: 0.5]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub dropout: Option<f64>,
    /// Share of input features dropped out; at 0 the first aggregation is computed once [default: as --dropout]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub input_dropout: Option<f64>,
    /// How GraphSAGE aggregates over neighbours: their mean, maximum, or an LSTM's last state [default: mean]
    #[arg(long, value_enum)]
    pub aggregator: Option<AggregatorArg>,
    /// Rule that changes the weights [default: adam]
    #[arg(long, value_enum)]
    pub optimizer: Option<Optimizer>,
    /// Learning rate [default: 0.01]
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    pub lr: Option<f64>,
    /// How the learning rate falls: constant, cosine, or step:EVERY:FACTOR [default: constant]
    #[arg(long, value_parser = parse_schedule)]
    pub schedule: Option<Schedule>,
    /// Epochs over which the learning rate first rises [default: 0]
    #[arg(long, value_name = "N")]
    pub warmup: Option<u64>,
    /// Weight decay [default: 0.0005]
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    pub weight_decay: Option<f64>,
    /// Parameters that decay: those of the first layer, or all [default: first]
    #[arg(long, value_enum)]
    pub decay: Option<DecayArg>,
    /// Epochs of a run, at most [default: 200]
    #[arg(long, value_name = "N")]
    pub epochs: Option<u64>,
    /// End a run after N epochs without a better validation score [default: never]
    #[arg(long, value_name = "N")]
    pub patience: Option<u64>,
    /// Take scores every N epochs, and at the last [default: 1]
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
}

impl Settings {
    /// Puts what was given into `config`.
    pub fn override_in(&self, config: &mut TrainConfig) {
        fn set<T: Clone>(slot: &mut T, given: Option<T>) {
            if let Some(value) = given {
                *slot = value;
            }
        }
        let model = &mut config.model;
        set(&mut model.kind, self.model.map(ModelKind::from));
        set(&mut model.layers, self.layers);
        set(&mut model.hidden, self.hidden);
        set(&mut model.dropout, self.dropout);
        set(&mut model.input_dropout, self.input_dropout.map(Some));
        set(&mut model.aggregator, self.aggregator.map(Aggregator::from));
        let optimizer = &mut config.optimizer;
        set(&mut optimizer.kind, self.optimizer.map(OptimizerKind::from));
        set(&mut optimizer.lr, self.lr);
        set(&mut optimizer.schedule, self.schedule);
        set(&mut optimizer.warmup, self.warmup);
        set(&mut optimizer.weight_decay, self.weight_decay);
        set(&mut optimizer.decay, self.decay.map(Decay::from));
        set(&mut config.epochs, self.epochs);
        set(&mut config.patience, self.patience.map(Some));
        set(&mut config.eval_every, self.eval_every);
        set(&mut config.runs, self.runs);
        set(&mut config.seed, self.seed);
        set(&mut config.precision, self.precision.map(Dtype::from));
    }
}

/// Declares a flag's values beside the library's enum that they stand for.
macro_rules! value_enum {
    ($(#[$doc:meta])* $name:ident for $target:ty { $($(#[$value_doc:meta])* $value:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, ValueEnum)]
        pub enum $name { $($(#[$value_doc])* $value),+ }

        impl From<$name> for $target {
            fn from(value: $name) -> Self {
                match value { $($name::$value => Self::$value),+ }
            }
        }
    };
}

value_enum! {
    /// A network.
    Model for ModelKind { Gcn, Sgc, Sage, Mlp }
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
    /// File to write: an integer class per node; with several labels a node, a row of 0 and 1
    #[arg(long, value_name = "FILE.npy")]
    pub out: PathBuf,
    /// Write the logits, a row of floats per node, instead
    #[arg(long)]
    pub logits: bool,
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
    /// Folder to write; a name ending in `.npz` writes the graph alone for scipy, `.csv`, `.tsv` or `.txt` an edge list
    #[arg(long, value_name = "PATH")]
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
    fn a_schedule_that_makes_no_sense_is_refused() {
        assert!(parse_schedule("step:x:0.5").is_err());
        assert!(parse_schedule("linear").is_err());
    }
}
