//! [`LinkConfig`]: settings of link prediction.

use serde::{Deserialize, Serialize};

use super::batch::{BatchConfig, BatchKind};
use super::model::{ModelConfig, ModelKind};
use crate::TrainError;

/// Division of links into parts, and their training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinkConfig {
    /// Fraction of the links for validation, which choose the epoch; at least 0 and below 1.
    pub val: f64,
    /// Fraction of the links for the test; at least 0 and below 1.
    pub test: f64,
    /// Number of non-links for each training link, drawn anew in every epoch (1 to 10,000). Held-out links have one
    /// each.
    pub negatives: usize,
    /// Number of columns of the embeddings.
    pub width: usize,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self { val: 0.05, test: 0.10, negatives: 1, width: 16 }
    }
}

impl LinkConfig {
    /// Refuses invalid settings, and settings that do not work with the model or the batches.
    ///
    /// # Errors
    /// At the first such setting; the message names a valid one.
    pub(crate) fn validate(&self, model: &ModelConfig, batch: &BatchConfig) -> Result<(), TrainError> {
        let refused = |what: String| Err(TrainError::invalid(what));
        if model.kind.is_recommender() {
            return refused(format!(
                "{} cannot be trained for --task links: it computes no embeddings of features; give another --model, such as gcn or sage",
                model.name()
            ));
        }
        if model.kind == ModelKind::Sgc {
            return refused(
                "sgc cannot be trained for --task links: from its initial weights of zero, inner products have no gradient; give another --model, such as gcn"
                    .to_owned(),
            );
        }
        if !matches!(batch.kind, BatchKind::Full | BatchKind::Neighbor) {
            return refused(format!(
                "--task links trains on neighbor batches or the full graph, not on {} batches: give --batch neighbor or full",
                batch.kind.name()
            ));
        }
        let share = 0.0..1.0;
        let rules = [
            (share.contains(&self.val), "val", "at least 0 and below 1"),
            (share.contains(&self.test), "test", "at least 0 and below 1"),
            (
                self.val + self.test < 1.0,
                "test",
                "less than what `links.val` leaves, so that links are left to train on",
            ),
            ((1..=10_000).contains(&self.negatives), "negatives", "from 1 to 10000"),
            ((1..=1 << 20).contains(&self.width), "width", "from 1 to 1048576"),
        ];
        match rules.iter().find(|(holds, ..)| !holds) {
            None => Ok(()),
            Some((_, setting, rule)) => refused(format!("setting `links.{setting}` must be {rule}")),
        }
    }
}
