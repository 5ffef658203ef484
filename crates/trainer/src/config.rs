//! [`TrainConfig`]: everything that decides a run's result besides the data. Written into every checkpoint.

use girih_compute::Dtype;
use serde::{Deserialize, Serialize};

use crate::TrainError;

/// A training configuration; the same configuration and data give the same result, bit for bit, on one kind of device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainConfig {
    /// The network.
    pub model: ModelConfig,
    /// How weights change.
    pub optimizer: OptimizerConfig,
    /// Passes over the data of a run, at most.
    pub epochs: u64,
    /// Ends a run after this many epochs without a better validation score; `None` for never.
    pub patience: Option<u64>,
    /// Scores are taken every so many epochs, and at the last.
    pub eval_every: u64,
    /// Independent runs: each with its own initial weights, its own dropout, and the next split if there are several.
    pub runs: u64,
    /// Names every random draw of all runs.
    pub seed: u64,
    /// How features are stored and rows are gathered; sums are `f32` in any case.
    pub precision: Dtype,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            model: ModelConfig::default(),
            optimizer: OptimizerConfig::default(),
            epochs: 200,
            patience: None,
            eval_every: 1,
            runs: 1,
            seed: 0,
            precision: Dtype::F32,
        }
    }
}

/// Which network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelKind {
    /// Graph convolutional network (Kipf and Welling, ICLR 2017).
    #[default]
    Gcn,
    /// Simplified graph convolution (Wu et al., ICML 2019).
    Sgc,
    /// GraphSAGE (Hamilton et al., NeurIPS 2017).
    Sage,
    /// A perceptron that ignores the graph: the control.
    Mlp,
}

impl ModelKind {
    /// The name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gcn => "gcn",
            Self::Sgc => "sgc",
            Self::Sage => "sage",
            Self::Mlp => "mlp",
        }
    }
}

/// How GraphSAGE aggregates over neighbours (Hamilton et al., NeurIPS 2017, section 3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Aggregator {
    /// Their mean.
    #[default]
    Mean,
    /// The element-wise maximum of what a layer makes of each.
    Pool,
    /// The last state of an LSTM that reads them in a random order.
    Lstm,
}

/// The network and its sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelConfig {
    /// Which network.
    pub kind: ModelKind,
    /// Layers; for SGC, hops.
    pub layers: usize,
    /// Width of hidden layers.
    pub hidden: usize,
    /// Share of hidden activations dropped out in training.
    pub dropout: f64,
    /// Share of input features dropped out; `None` for the same as `dropout`. At zero the first aggregation is a
    /// constant and computed once.
    pub input_dropout: Option<f64>,
    /// How GraphSAGE aggregates; other models do not look at it.
    pub aggregator: Aggregator,
}

impl ModelConfig {
    /// Share of input features dropped out.
    #[must_use]
    pub fn input_dropout(&self) -> f64 {
        self.input_dropout.unwrap_or(self.dropout)
    }
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            kind: ModelKind::Gcn,
            layers: 2,
            hidden: 16,
            dropout: 0.5,
            input_dropout: None,
            aggregator: Aggregator::Mean,
        }
    }
}

/// Which rule changes the weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerKind {
    /// Adam (Kingma and Ba, ICLR 2015); weight decay goes through the gradient.
    #[default]
    Adam,
    /// AdamW (Loshchilov and Hutter, ICLR 2019); weight decay is decoupled.
    Adamw,
    /// Stochastic gradient descent with momentum.
    Sgd,
}

/// Which parameters decay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decay {
    /// Those of the first layer, as Kipf and Welling do.
    #[default]
    First,
    /// All.
    All,
}

/// How the learning rate changes from epoch to epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind", deny_unknown_fields)]
pub enum Schedule {
    /// Not at all.
    #[default]
    Constant,
    /// Half a cosine from the full rate to zero over all epochs.
    Cosine,
    /// Multiplied by `factor` after every `every` epochs.
    Step {
        /// Epochs between two changes.
        every: u64,
        /// The factor.
        factor: f64,
    },
}

/// The optimiser and its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OptimizerConfig {
    /// The rule.
    pub kind: OptimizerKind,
    /// Learning rate at full height.
    pub lr: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// Which parameters decay.
    pub decay: Decay,
    /// Decay of Adam's first moment.
    pub beta1: f64,
    /// Decay of Adam's second moment.
    pub beta2: f64,
    /// Adam's epsilon.
    pub eps: f64,
    /// Momentum of SGD.
    pub momentum: f64,
    /// Epochs over which the rate first rises linearly.
    pub warmup: u64,
    /// How the rate changes after that.
    pub schedule: Schedule,
}

impl Default for OptimizerConfig {
    fn default() -> Self {
        Self {
            kind: OptimizerKind::Adam,
            lr: 0.01,
            weight_decay: 5e-4,
            decay: Decay::First,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            momentum: 0.9,
            warmup: 0,
            schedule: Schedule::Constant,
        }
    }
}

impl TrainConfig {
    /// Refuses settings that make no sense, naming the setting and the values it can take.
    ///
    /// # Errors
    /// At the first such setting.
    pub fn validate(&self) -> Result<(), TrainError> {
        let share = 0.0..1.0;
        let positive = |v: f64| v.is_finite() && v > 0.0;
        let not_negative = |v: f64| v.is_finite() && v >= 0.0;
        let o = &self.optimizer;
        let rules = [
            (self.model.layers >= 1, "layers", "at least 1"),
            (self.model.layers <= 1000, "layers", "at most 1000"),
            (self.model.hidden >= 1, "hidden", "at least 1"),
            (self.model.hidden <= 1 << 20, "hidden", "at most 1048576"),
            (share.contains(&self.model.dropout), "dropout", "at least 0 and below 1"),
            (share.contains(&self.model.input_dropout()), "input_dropout", "at least 0 and below 1"),
            (positive(o.lr), "lr", "positive"),
            (not_negative(o.weight_decay), "weight_decay", "zero or positive"),
            (share.contains(&o.beta1), "beta1", "at least 0 and below 1"),
            (share.contains(&o.beta2), "beta2", "at least 0 and below 1"),
            (positive(o.eps), "eps", "positive"),
            (share.contains(&o.momentum), "momentum", "at least 0 and below 1"),
            (!matches!(o.schedule, Schedule::Step { every: 0, .. }), "schedule.every", "at least 1"),
            (!matches!(o.schedule, Schedule::Step { factor, .. } if !positive(factor)), "schedule.factor", "positive"),
            (self.epochs >= 1, "epochs", "at least 1"),
            (self.patience != Some(0), "patience", "at least 1"),
            (self.eval_every >= 1, "eval_every", "at least 1"),
            (self.runs >= 1, "runs", "at least 1"),
            (self.runs <= 10_000, "runs", "at most 10000"),
        ];
        match rules.iter().find(|(holds, ..)| !holds) {
            None => Ok(()),
            Some((_, setting, rule)) => Err(TrainError::invalid(format!("setting `{setting}` must be {rule}"))),
        }
    }
}
