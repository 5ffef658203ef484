//! [`OptimizerConfig`]: optimiser, learning rate and its schedule.

use serde::{Deserialize, Serialize};

use super::rules::Unread;

/// Kind of optimiser.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerKind {
    /// Adam (Kingma and Ba, ICLR 2015). Weight decay is added to the gradient.
    #[default]
    Adam,
    /// AdamW (Loshchilov and Hutter, ICLR 2019). Weight decay is decoupled.
    Adamw,
    /// Stochastic gradient descent with momentum.
    Sgd,
}

impl OptimizerKind {
    /// Name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Adam => "adam",
            Self::Adamw => "adamw",
            Self::Sgd => "sgd",
        }
    }
}

/// Parameters that weight decay applies to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decay {
    /// Parameters of the first layer, as in Kipf and Welling.
    #[default]
    First,
    /// All parameters.
    All,
}

/// Schedule of the learning rate over epochs.
///
/// Variants without settings have braces, so that unknown settings are refused.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind", deny_unknown_fields)]
pub enum Schedule {
    /// Constant rate.
    Constant {},
    /// Half a cosine from the full rate to zero over all epochs.
    Cosine {},
    /// Multiplication by `factor` after every `every` epochs.
    Step {
        /// Number of epochs between two changes.
        every: u64,
        /// Factor of a change.
        factor: f64,
    },
}

impl Default for Schedule {
    fn default() -> Self {
        Self::Constant {}
    }
}

/// The optimiser and its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OptimizerConfig {
    /// Kind of optimiser.
    pub kind: OptimizerKind,
    /// Base learning rate.
    pub lr: f64,
    /// Weight decay; for LightGCN, the weight of the penalty on the embeddings of a batch.
    pub weight_decay: f64,
    /// Parameters that weight decay applies to.
    pub decay: Decay,
    /// Decay rate of Adam's first moment.
    pub beta1: f64,
    /// Decay rate of Adam's second moment.
    pub beta2: f64,
    /// Adam's epsilon, added to the denominator.
    pub eps: f64,
    /// Momentum of SGD.
    pub momentum: f64,
    /// Number of epochs of linear warm-up.
    pub warmup: u64,
    /// Schedule of the rate.
    pub schedule: Schedule,
}

impl OptimizerConfig {
    /// Whether the optimiser reads a setting, by its name in files.
    pub(super) fn reads(&self, setting: &str) -> bool {
        match setting {
            "beta1" | "beta2" | "eps" => self.kind != OptimizerKind::Sgd,
            "momentum" => self.kind == OptimizerKind::Sgd,
            _ => true,
        }
    }

    /// First setting that differs from `usual` although the optimiser does not read it, with the optimisers that do.
    pub(super) fn unread(&self, usual: &Self) -> Option<Unread> {
        const ADAM: &str = "adam and adamw";
        let has_moments = self.kind != OptimizerKind::Sgd;
        let settings = [
            (has_moments || self.beta1 == usual.beta1, "beta1", ADAM),
            (has_moments || self.beta2 == usual.beta2, "beta2", ADAM),
            (has_moments || self.eps == usual.eps, "eps", ADAM),
            (!has_moments || self.momentum == usual.momentum, "momentum", "sgd"),
        ];
        Unread::first(self.kind.name(), &settings)
    }
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
            schedule: Schedule::default(),
        }
    }
}
