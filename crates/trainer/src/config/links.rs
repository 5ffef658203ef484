//! [`LinkConfig`]: settings of link prediction.

use serde::{Deserialize, Serialize};

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
    /// Refuses invalid settings.
    ///
    /// # Errors
    /// At the first such setting; the message names a valid one.
    pub(crate) fn validate(&self) -> Result<(), TrainError> {
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
            Some((_, setting, rule)) => Err(TrainError::invalid(format!("setting `links.{setting}` must be {rule}"))),
        }
    }
}
