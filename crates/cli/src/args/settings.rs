//! Flags that override settings of a run.

use clap::Args;
use girih_compute::Dtype;
use girih_datasets::FeaturesFrom;
use girih_graph_format::Degrees;
use girih_tiers::{CacheShares, HostReads, Hotness};
use girih_trainer::{
    Aggregator, Decay, Jump, Metric, ModelKind, NormKind, OptimizerKind, Schedule, TaskKind, TierConfig, TrainConfig,
};

use super::codec::parse_codec;
use super::{
    AggregatorArg, BatchSettings, CodecChoice, DecayArg, JumpArg, LinkSettings, MetricArg, Model, NormArg,
    NormalizationArg, Optimizer, Precision, TaskArg,
};
use crate::sizes;

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
    /// Width of hidden layers, of which sgc has none; for lightgcn, of embeddings [default: 16; links 32, lightgcn 64]
    #[arg(long, value_name = "N", visible_alias = "dim")]
    pub hidden: Option<usize>,
    /// Share of hidden activations dropped out in training [default: 0.5; links and lightgcn 0]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub dropout: Option<f64>,
    /// Share of input features dropped out; at 0 the first aggregation is computed once [default: as --dropout]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub input_dropout: Option<f64>,
    /// Whether a first aggregation that is a constant is computed once, before training, or in every epoch [default:
    /// true]
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
    /// Degrees by which gcn, sgc, sage, ngcn, appnp and lightgcn divide: sums of weights as they are, or of absolute
    /// weights, for graphs with negative ones [default: default]
    #[arg(long, value_enum)]
    pub normalization: Option<NormalizationArg>,
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
    /// Make features for data that has none: degree (local degree profile), onehot (a column for each node),
    /// embedding:WIDTH (learned rows, one a node), random-walk:STEPS (return probabilities)
    #[arg(long, value_name = "RULE")]
    pub features_from: Option<FeaturesFrom>,
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
    /// Keep features in the host's memory, where CUDA devices read the rows of mini-batches, and on every device this
    /// share of them, from 0 to 1, those of the hottest nodes; behind a comma a share that is on one device each, from
    /// which the others read [default: every device has all]
    #[arg(long, value_name = "EVERY[,ONE]")]
    pub feature_cache: Option<CacheShares>,
    /// The same for the neighbours that devices draw from [default: every device has all]
    #[arg(long, value_name = "EVERY[,ONE]")]
    pub topology_cache: Option<CacheShares>,
    /// What tells which nodes are hot: in how many lists of neighbours they are (degree), walks along edges (pagerank),
    /// walks from the seeds as sampling goes (reverse-pagerank), or batches of the sampler (presampled) [default:
    /// presampled]
    #[arg(long, value_name = "degree|pagerank|reverse-pagerank|presampled")]
    pub hotness: Option<Hotness>,
    /// How devices get rows of features that are on the host: its cores gather them and copies bring them (staged), or
    /// they read pinned memory themselves (in-place) [default: auto, what is expected to be faster; staged where rows
    /// would be copied to half of the free memory and more]
    #[arg(long, value_name = "auto|staged|in-place")]
    pub host_reads: Option<HostReads>,
    /// Choose both shares so that training takes so much memory of each device, like 80GB, at most, and batches are
    /// read in the least time; auto for what is free on the device, of several the least. The configuration that is
    /// written has the shares
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
        set(&mut tiers.host_reads, self.host_reads);
    }
}

/// Puts what was given in the place of a setting.
pub(super) fn set<T>(slot: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *slot = value;
    }
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
        set(&mut model.normalization, self.normalization.map(Degrees::from));
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
        set(&mut config.features_from, self.features_from.map(Some));
        self.tiers.override_in(&mut config.tiers);
    }
}

fn parse_schedule(text: &str) -> Result<Schedule, String> {
    let parts: Vec<&str> = text.split(':').collect();
    match parts[..] {
        ["constant"] => Ok(Schedule::Constant {}),
        ["cosine"] => Ok(Schedule::Cosine {}),
        ["step", every, factor] => {
            let every = every.parse().map_err(|_| format!("`{every}` is not a number of epochs"))?;
            let factor = factor.parse().map_err(|_| format!("`{factor}` is not a factor"))?;
            Ok(Schedule::Step { every, factor })
        }
        _ => Err("expected constant, cosine or step:EVERY:FACTOR, for instance step:100:0.5".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use girih_compress::CodecSpec;
    use girih_trainer::{BatchKind, ModelKind};

    use super::*;
    use crate::args::{Cli, Command};

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
