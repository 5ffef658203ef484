//! Validation of a [`TrainConfig`].

use super::batch::BatchKind;
use super::rules::{Unread, is_default};
use super::{
    Combination, LinkConfig, ModelConfig, ModelKind, OptimizerConfig, Schedule, TaskKind, TrainConfig, supported,
};
use crate::TrainError;

impl TrainConfig {
    /// First setting that differs from its usual value and has no effect.
    fn unread(&self) -> Option<Unread> {
        let usual = Self::for_task(self.task, self.model.kind);
        let learns_rows = !self.model.kind.reads_features();
        let of_rows = [
            (!learns_rows || self.optimizer.decay == usual.optimizer.decay, "decay", "all others"),
            (!learns_rows || self.metric == usual.metric, "metric", "all others"),
        ];
        self.model
            .unread(&usual.model)
            .or_else(|| self.optimizer.unread(&usual.optimizer))
            .or_else(|| Unread::first(self.model.kind.name(), &of_rows))
    }

    /// Refuses invalid settings, and settings that are not [supported](supported()) together. The message names the
    /// setting and its valid values.
    ///
    /// # Errors
    /// At the first such setting.
    pub fn validate(&self) -> Result<(), TrainError> {
        if let Some(Unread { setting, by, readers }) = self.unread() {
            return Err(TrainError::invalid(format!(
                "setting `{setting}` must be left out: {by} does not read it, but {readers}"
            )));
        }
        let (model, optimizer) = (rules_of_model(&self.model), rules_of_optimizer(&self.optimizer));
        let (steps, others) = (self.rules_of_steps(), self.rules_of_other_settings());
        let mut rules = model.iter().chain(&optimizer).chain(&steps).chain(&others);
        if let Some((_, setting, rule)) = rules.find(|(holds, ..)| !holds) {
            return Err(TrainError::invalid(format!("setting `{setting}` must be {rule}")));
        }
        supported(&Combination::of(self))?;
        if self.task == TaskKind::Links {
            self.links.validate()?;
        }
        if self.task == TaskKind::Triples {
            self.triples.validate()?;
        }
        if self.time.is_set() {
            self.time.bound()?;
        }
        self.edges.validate(self.links.negatives == LinkConfig::default().negatives)?;
        if self.model.kind == ModelKind::Embedding {
            self.check_no_layers()?;
        }
        if let Some(codec) = self.codec {
            codec.check().map_err(|error| TrainError::invalid(format!("setting `codec`: {error}")))?;
        }
        self.batch.validate(self.model.layers)
    }

    /// Refuses settings of layers for a network without any.
    fn check_no_layers(&self) -> Result<(), TrainError> {
        let usual = ModelConfig::default();
        let rules = [
            (self.model.layers == usual.layers, "layers", "embedding has no layers"),
            (self.model.hidden == usual.hidden, "hidden", "triples.width is the width of its rows"),
            (self.model.input_dropout.is_none(), "input_dropout", "embedding reads no features"),
        ];
        rules.iter().find(|(holds, ..)| !holds).map_or(Ok(()), |(_, setting, why)| {
            Err(TrainError::invalid(format!("setting `{setting}` must be left out: {why}")))
        })
    }

    /// Rules on epochs and batch size.
    fn rules_of_steps(&self) -> [Rule; 6] {
        let learns_rows = !self.model.kind.reads_features() || self.task == TaskKind::Triples;
        [
            (self.epochs >= 1, "epochs", "at least 1"),
            (self.patience != Some(0), "patience", "at least 1"),
            (self.eval_every >= 1, "eval_every", "at least 1"),
            (self.batch_size != Some(0), "batch_size", "at least 1"),
            (
                self.batch_size.is_none() || learns_rows || self.batch.is_sampled(),
                "batch_size",
                "left out: steps see the full graph; choose a batch kind (neighbor, layer, cluster, saint) or lightgcn",
            ),
            (
                self.batch_size.is_none() || self.batch.kind != BatchKind::Cluster,
                "batch_size",
                "left out: clusters_per_batch says how large cluster batches are",
            ),
        ]
    }

    /// Rules on settings that not every task, model or batch kind allows, and on the number of runs.
    fn rules_of_other_settings(&self) -> [Rule; 9] {
        let (recommends, tiers) = (self.model.kind.is_recommender(), self.tiers.complaint());
        [
            (!recommends || self.model.dropout == 0.0, "dropout", "0: lightgcn has none"),
            (!recommends || self.model.input_dropout() == 0.0, "input_dropout", "0: lightgcn has none"),
            (tiers.is_none(), tiers.map_or("", |(name, _)| name), tiers.map_or("", |(_, rule)| rule)),
            (self.task == TaskKind::Links || is_default(&self.links), "links", "left out: choose the task links"),
            (
                self.task == TaskKind::Triples || is_default(&self.triples),
                "triples",
                "left out: choose the task triples",
            ),
            (self.runs >= 1, "runs", "at least 1"),
            (self.runs <= 10_000, "runs", "at most 10000"),
            (
                self.model.own.is_none() || self.model.kind == ModelKind::default(),
                "kind",
                "left out: the model is from outside, and its builder knows it",
            ),
            (self.model.own.as_ref().is_none_or(|own| !own.name.is_empty()), "own.name", "a name of the model"),
        ]
    }
}

/// Rule on a setting: whether it holds, the setting, and its valid values.
type Rule = (bool, &'static str, &'static str);

/// Rules on the network and its sizes.
fn rules_of_model(model: &ModelConfig) -> [Rule; 15] {
    [
        (model.layers >= 1, "layers", "at least 1"),
        (model.layers <= 1000, "layers", "at most 1000"),
        (model.hidden >= 1, "hidden", "at least 1"),
        (model.hidden <= 1 << 20, "hidden", "at most 1048576"),
        (is_share(model.dropout), "dropout", "at least 0 and below 1"),
        (is_share(model.input_dropout()), "input_dropout", "at least 0 and below 1"),
        ((1..=1024).contains(&model.heads), "heads", "from 1 to 1024"),
        ((1..=1024).contains(&model.out_heads), "out_heads", "from 1 to 1024"),
        (is_share(model.attention_dropout()), "attention_dropout", "at least 0 and below 1"),
        (is_share(model.slope), "slope", "at least 0 and below 1"),
        (model.hops <= 1000, "hops", "at most 1000"),
        (model.bases <= 1 << 16, "bases", "at most 65536"),
        (model.blocks <= 1 || model.bases == 0, "blocks", "left out with bases: weights have one form"),
        (model.blocks <= 1 || model.hidden.is_multiple_of(model.blocks), "blocks", "a divisor of hidden"),
        ((0.0..=1.0).contains(&model.teleport), "teleport", "from 0 to 1"),
    ]
}

/// Rules on the optimiser and the schedule of the learning rate.
fn rules_of_optimizer(o: &OptimizerConfig) -> [Rule; 8] {
    let factor_holds = !matches!(o.schedule, Schedule::Step { factor, .. } if !is_positive(factor));
    [
        (is_positive(o.lr), "lr", "positive, and finite in 32 bits"),
        (is_not_negative(o.weight_decay), "weight_decay", "zero or positive, and finite in 32 bits"),
        (is_share(o.beta1), "beta1", "at least 0 and below 1"),
        (is_share(o.beta2), "beta2", "at least 0 and below 1"),
        (is_positive(o.eps), "eps", "positive"),
        (is_share(o.momentum), "momentum", "at least 0 and below 1"),
        (!matches!(o.schedule, Schedule::Step { every: 0, .. }), "schedule.every", "at least 1"),
        (factor_holds, "schedule.factor", "positive"),
    ]
}

// Numbers are checked as `f32`, the type of the computation: rounding may reach the limit itself.

/// Whether a number is at least 0 and below 1, as `f32`.
fn is_share(v: f64) -> bool {
    (0.0..1.0).contains(&(v as f32))
}

/// Whether a number is positive and finite, as `f32`.
fn is_positive(v: f64) -> bool {
    (v as f32).is_finite() && v as f32 > 0.0
}

/// Whether a number is zero or positive, and finite as `f32`.
fn is_not_negative(v: f64) -> bool {
    (v as f32).is_finite() && v >= 0.0
}
