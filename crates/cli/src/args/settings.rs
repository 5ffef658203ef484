//! Flags that override settings of a run.

use clap::Args;
use girih_compute::Dtype;
use girih_datasets::{FeaturesFrom, TypeRule};
use girih_features::{CacheShares, HostReads, Hotness};
use girih_graph_format::Degrees;
use girih_trainer::{
    Aggregator, CacheConfig, Decay, Jump, Metric, ModelConfig, ModelKind, NormKind, OptimizerKind, Schedule,
    SelfWeight, TaskKind, TrainConfig,
};

use super::choices::set;
use super::codec::parse_codec;
use super::{
    AggregatorArg, BatchSettings, CodecChoice, DecayArg, EdgeSettings, JumpArg, LinkSettings, MetricArg, NormArg,
    NormalizationArg, Optimizer, Precision, SelfWeightArg, TaskArg, TimeSettings, any_case, one_of,
};
use crate::sizes;

/// Settings of a [`TrainConfig`]. Values that are not given come from the file or the defaults.
#[derive(Debug, Args)]
pub struct Settings {
    /// Task: classes of nodes, links between them, or triples of a knowledge graph [default: nodes]
    #[arg(long, value_enum, help_heading = "Model")]
    pub task: Option<TaskArg>,
    #[command(flatten)]
    pub model: ModelSettings,
    #[command(flatten)]
    pub training: TrainingSettings,
    #[command(flatten)]
    pub batches: BatchSettings,
    #[command(flatten)]
    pub links: LinkSettings,
    #[command(flatten)]
    pub time: TimeSettings,
    #[command(flatten)]
    pub edges: EdgeSettings,
    /// Storage of features and gathered rows; sums are f32 in any case [default: f32]
    #[arg(long, value_enum, help_heading = "Features")]
    pub precision: Option<Precision>,
    /// Codec of the features, or none [default: none]
    ///
    /// Features are encoded once, before training, and rows are decoded where they are used. `girih compress --help`
    /// lists the codecs.
    #[arg(long, value_name = "CODEC", value_parser = parse_codec, help_heading = "Features")]
    pub codec: Option<CodecChoice>,
    /// Features for data that has none: degree, onehot, embedding:WIDTH or random-walk:STEPS
    ///
    /// degree: statistics of the degrees around each node. onehot: one column for each node. embedding: a learned row
    /// for each node. random-walk: return probabilities of random walks. docs/configuration.md has the details.
    #[arg(long, value_name = "RULE", help_heading = "Features")]
    pub features_from: Option<FeaturesFrom>,
    /// Features of a node type: TYPE=as-is, learned, learned:WIDTH, mean:EDGETYPE or constant
    ///
    /// May be given several times. learned: a row for each node. mean: the mean over the neighbors by an edge type, such
    /// as author=mean:paper.written_by.author. constant: one column of ones. [default: as-is, or learned without features]
    #[arg(long, value_name = "TYPE=RULE", value_parser = parse_node_features, help_heading = "Features")]
    pub node_features: Vec<(String, TypeRule)>,
    #[command(flatten)]
    pub tiers: TierSettings,
}

/// Parses the name of a node type and a rule.
fn parse_node_features(text: &str) -> Result<(String, TypeRule), String> {
    let (name, rule) = text.split_once('=').ok_or_else(|| {
        format!(
            "`{text}` has no `=`: give a node type and a rule, as in author=learned:128; rules are {}",
            TypeRule::VALUES
        )
    })?;
    Ok((name.to_owned(), rule.parse()?))
}

/// Settings of the network.
#[derive(Debug, Args)]
#[command(next_help_heading = "Model")]
pub struct ModelSettings {
    /// Network [default: gcn]
    ///
    /// rgcn, hsage, rgat and hgt read types of nodes and edges, and gine, gat and gatv2 features of edges in time. Defaults below apply to all networks, unless they name one.
    #[arg(long, value_parser = one_of::<ModelKind>(ModelKind::ALL.map(ModelKind::name)))]
    pub model: Option<ModelKind>,
    /// Layers; hops of sgc, lightgcn [default: 2; lightgcn 3]
    #[arg(long, value_name = "N")]
    pub layers: Option<usize>,
    /// Width of hidden layers [default: 16]
    ///
    /// With --task links [default: 32]. For gat and gatv2, of each head [default: 8]; for lightgcn, of the embeddings
    /// [default: 64]. sgc has no hidden layers.
    #[arg(long, value_name = "N", visible_alias = "dim")]
    pub hidden: Option<usize>,
    /// Dropout rate of hidden activations [default: 0.5; links, rgcn and lightgcn 0]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub dropout: Option<f64>,
    /// Dropout rate of input features [default: as --dropout]
    ///
    /// At 0 the first aggregation is the same in every epoch, and is computed once.
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub input_dropout: Option<f64>,
    /// Compute the first aggregation only once, where --input-dropout is 0 [default: true]
    #[arg(long, value_name = "BOOL")]
    pub aggregate_once: Option<bool>,
    /// Attention heads of hidden layers (gat, gatv2, rgat, hgt) [default: 8; rgat, hgt 4]
    #[arg(long, value_name = "N")]
    pub heads: Option<usize>,
    /// Attention heads of the last layer, averaged (gat, gatv2) [default: 1]
    #[arg(long, value_name = "N")]
    pub out_heads: Option<usize>,
    /// Dropout rate of attention coefficients (gat, gatv2, rgat) [default: as --dropout]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub attention_dropout: Option<f64>,
    /// Hops of appnp's propagation [default: 10]; highest power of ngcn [default: 4]
    #[arg(long, value_name = "N")]
    pub hops: Option<usize>,
    /// Teleport probability of appnp [default: 0.1]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub teleport: Option<f64>,
    /// Combine ngcn's powers by a linear layer; false: by their mean [default: true]
    #[arg(long, value_name = "BOOL")]
    pub mixing: Option<bool>,
    /// Residual connections of hidden layers (gcn, gat, gatv2, gin, gine)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub residual: Option<bool>,
    /// Degrees that gcn, sgc, sage, ngcn, appnp and lightgcn divide by: default or absolute
    ///
    /// Sums of weights as they are, or of absolute weights, for graphs with negative ones. [default: default]
    #[arg(long, value_enum, ignore_case = true)]
    pub normalization: Option<NormalizationArg>,
    /// Normalisation of hidden layers (gcn, gat, gatv2, gin, gine) [default: none]
    #[arg(long, value_enum)]
    pub norm: Option<NormArg>,
    /// Jumping knowledge: logits read all hidden layers (gcn, gat, gatv2, gin, gine) [default: none]
    #[arg(long, value_enum)]
    pub jump: Option<JumpArg>,
    /// Aggregator over neighbors (sage) [default: mean]
    #[arg(long, value_enum)]
    pub aggregator: Option<AggregatorArg>,
    /// Bases that the weights of relations share (rgcn, hsage); 0: a weight for each [default: 0]
    #[arg(long, value_name = "N")]
    pub bases: Option<usize>,
    /// Blocks along the diagonal of each relation's weight, which is zero elsewhere (rgcn, hsage); 0: none [default: 0]
    ///
    /// It must divide the width of the layers. A layer whose other width it does not divide, such as the number of classes,
    /// has whole weights.
    #[arg(long, value_name = "N", conflicts_with = "bases")]
    pub blocks: Option<usize>,
    /// Weights of rgcn, hsage and rgat for a node's own row
    ///
    /// shared: one for all. type: one for each type of nodes. relation: one for each relation; a node has the sum of those
    /// that end in its type. [default: shared; hsage relation, rgat type]
    #[arg(long, value_enum)]
    pub self_weight: Option<SelfWeightArg>,
}

/// Settings of the optimiser and of runs.
#[derive(Debug, Args)]
#[command(next_help_heading = "Training")]
pub struct TrainingSettings {
    /// Optimiser [default: adam]
    #[arg(long, value_enum)]
    pub optimizer: Option<Optimizer>,
    /// Learning rate [default: 0.01; lightgcn 0.001]
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    pub lr: Option<f64>,
    /// Learning rate schedule [default: constant]
    ///
    /// One of constant, cosine, step:EVERY:FACTOR; for instance step:100:0.5.
    #[arg(long, value_parser = parse_schedule)]
    pub schedule: Option<Schedule>,
    /// Epochs over which the learning rate first rises [default: 0]
    #[arg(long, value_name = "N")]
    pub warmup: Option<u64>,
    /// Weight decay [default: 0.0005; links and rgcn 0, lightgcn 0.0001]
    ///
    /// For lightgcn, of the embeddings of a batch.
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    pub weight_decay: Option<f64>,
    /// Parameters that decay: of the first layer, or all [default: first]
    #[arg(long, value_enum)]
    pub decay: Option<DecayArg>,
    /// Epochs of a run, at most [default: 200; lightgcn 1000]
    ///
    /// For rgcn [default: 50].
    #[arg(long, value_name = "N")]
    pub epochs: Option<u64>,
    /// Epochs without a better validation score before a run ends [default: never]
    #[arg(long, value_name = "N")]
    pub patience: Option<u64>,
    /// Validation score that selects the best epoch; for links always roc-auc [default: accuracy]
    #[arg(long, value_enum)]
    pub metric: Option<MetricArg>,
    /// Epochs between two evaluations [default: 1; lightgcn 10]
    ///
    /// The last epoch is evaluated in any case.
    #[arg(long, value_name = "N")]
    pub eval_every: Option<u64>,
    /// Independent runs, reported as mean and deviation [default: 1]
    #[arg(long, value_name = "N")]
    pub runs: Option<u64>,
    /// Random seed [default: 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// Settings of the caches of CUDA devices, for mini-batches whose graph or features stay in host memory.
#[derive(Debug, Args)]
#[command(next_help_heading = "Caches of CUDA devices")]
pub struct TierSettings {
    /// Share of the nodes whose features every GPU caches, like 0.2; host memory has all
    ///
    /// The nodes that are read most are cached. With a second share, as in 0.1,0.3, further nodes are cached on one GPU
    /// each, and the other GPUs read them there. [default: each GPU holds all features]
    #[arg(long, value_name = "EVERY[,ONE]")]
    pub feature_cache: Option<CacheShares>,
    /// Share of the nodes whose neighbor lists every GPU caches, as --feature-cache
    ///
    /// [default: each GPU holds the whole graph]
    #[arg(long, value_name = "EVERY[,ONE]")]
    pub topology_cache: Option<CacheShares>,
    /// Prediction of which nodes are read most [default: presampled]
    ///
    /// degree: nodes that are neighbors of many. pagerank: PageRank along the edges. reverse-pagerank: PageRank from
    /// the seeds, in the direction of sampling. presampled: counts over some sampled batches.
    #[arg(long, value_name = "NAME", value_parser = any_case::<Hotness>)]
    pub hotness: Option<Hotness>,
    /// Way in which GPUs read features from host memory: auto, staged or in-place [default: auto]
    ///
    /// staged: CPU threads gather the rows, which are then copied to the GPU. in-place: the GPU reads pinned host
    /// memory itself (UVA). auto: the one that is predicted to be faster, but staged if pinning needs a copy of half of
    /// the free host memory or more.
    #[arg(long, value_name = "NAME", value_parser = any_case::<HostReads>)]
    pub host_reads: Option<HostReads>,
    /// GPU memory for training, from which both cache sizes follow: a size like 80GB, or auto
    ///
    /// Training then takes at most this much memory of each GPU, and the caches get what it does not need itself. auto:
    /// all free memory. The config.toml in --out has the resulting shares.
    #[arg(long, value_name = "SIZE|auto", value_parser = parse_tier_memory, conflicts_with_all = ["feature_cache", "topology_cache"])]
    pub tier_memory: Option<TierMemory>,
}

/// Memory of each device that features and graph share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TierMemory {
    /// All free memory.
    Auto,
    /// Number of bytes.
    Size(u64),
}

fn parse_tier_memory(text: &str) -> Result<TierMemory, String> {
    match text {
        _ if text.eq_ignore_ascii_case("auto") => Ok(TierMemory::Auto),
        _ => sizes::parse(text).map(TierMemory::Size).map_err(|error| format!("{error}, or auto")),
    }
}

impl TierSettings {
    fn override_in(&self, tiers: &mut CacheConfig) {
        set(&mut tiers.features, self.feature_cache.map(Some));
        set(&mut tiers.topology, self.topology_cache.map(Some));
        set(&mut tiers.hotness, self.hotness);
        set(&mut tiers.host_reads, self.host_reads);
    }
}

impl Settings {
    /// Writes the given values into `config`.
    pub fn override_in(&self, config: &mut TrainConfig) {
        set(&mut config.task, self.task.map(TaskKind::from));
        self.model.override_in(&mut config.model);
        self.training.override_in(config);
        self.batches.override_in(config);
        self.links.override_in(config);
        self.time.override_in(&mut config.time);
        self.edges.override_in(&mut config.edges);
        set(&mut config.precision, self.precision.map(Dtype::from));
        set(&mut config.codec, self.codec.map(CodecChoice::codec));
        set(&mut config.features_from, self.features_from.map(Some));
        for (name, rule) in &self.node_features {
            config.node.entry(name.clone()).or_default().features = rule.clone();
        }
        self.tiers.override_in(&mut config.tiers);
    }
}

impl ModelSettings {
    /// Writes the given values into `model`.
    pub fn override_in(&self, model: &mut ModelConfig) {
        set(&mut model.kind, self.model);
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
        set(&mut model.bases, self.bases);
        set(&mut model.blocks, self.blocks);
        set(&mut model.self_weight, self.self_weight.map(SelfWeight::from));
    }
}

impl TrainingSettings {
    fn override_in(&self, config: &mut TrainConfig) {
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
        set(&mut config.metric, self.metric.map(Metric::from));
    }
}

fn parse_schedule(text: &str) -> Result<Schedule, String> {
    let text = text.to_ascii_lowercase();
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
