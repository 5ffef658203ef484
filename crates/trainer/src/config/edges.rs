//! [`EdgeConfig`]: settings of edges with features, labels and times.

use serde::{Deserialize, Serialize};

use super::rules::is_default;
use crate::TrainError;

/// Name that stands for all columns of an edge list besides ids and times.
const ALL_COLUMNS: &str = "all";
/// Largest number of columns of an encoding of ages.
const MAX_ENCODING: usize = 1024;

/// Columns of an edge list that a model reads as features of edges, and what links are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EdgeConfig {
    /// Columns that are features, by name or by number from 1; the one entry `all`: all besides ids and times.
    #[serde(skip_serializing_if = "is_default")]
    pub features: Vec<String>,
    /// Column whose sign is predicted, in place of whether there is a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Number of columns that encode the age of an edge (at most 1024): `cos(age·10^(-10·i/n))` for column `i` of `n`,
    /// with ages in the unit of the data. These are the fixed frequencies of `GraphMixer` (Cong et al., ICLR 2023).
    #[serde(skip_serializing_if = "is_default")]
    pub time_encoding: usize,
}

impl EdgeConfig {
    /// Whether anything of edges is read besides their ends and times.
    #[must_use]
    pub fn is_set(&self) -> bool {
        *self != Self::default()
    }

    /// Whether a model has to read features of edges.
    #[must_use]
    pub fn has_features(&self) -> bool {
        !self.features.is_empty() || self.time_encoding > 0
    }

    /// Columns to read from the data: the features, and the label if it is not one of them.
    #[must_use]
    pub fn columns(&self) -> Vec<String> {
        let mut columns = self.features.clone();
        let is_extra = |label: &&String| !self.reads_all() && !self.features.contains(label);
        columns.extend(self.label.as_ref().filter(is_extra).cloned());
        columns
    }

    /// Whether all columns are features.
    pub(crate) fn reads_all(&self) -> bool {
        self.features == [ALL_COLUMNS]
    }

    /// Number of columns of the data that are features; `n_columns` are read.
    #[must_use]
    pub(crate) fn n_given(&self, n_columns: usize) -> usize {
        if self.reads_all() { n_columns } else { self.features.len() }
    }

    /// Width of the features of edges of data of which `n_columns` columns are read: these, one column for the direction
    /// in which an edge is read, and the encoding of its age.
    #[must_use]
    pub fn width(&self, n_columns: usize) -> usize {
        self.n_given(n_columns) + 1 + self.time_encoding
    }

    /// Refuses invalid settings.
    ///
    /// # Errors
    /// At the first such setting; the message names a valid one.
    pub(crate) fn validate(&self, negatives_are_usual: bool) -> Result<(), TrainError> {
        if self.time_encoding > MAX_ENCODING {
            return Err(TrainError::invalid(format!("setting `edges.time_encoding` must be at most {MAX_ENCODING}")));
        }
        if self.label.is_some() && !negatives_are_usual {
            return Err(TrainError::invalid(
                "setting `links.negatives` must be left out: labels of edges take the place of other destinations",
            ));
        }
        Ok(())
    }

    /// Position of the column with labels among those that were read, with these names.
    pub(crate) fn label_column(&self, names: &[String]) -> Option<usize> {
        let label = self.label.as_ref()?;
        match self.features.iter().position(|feature| feature == label) {
            Some(at) => Some(at),
            None if self.reads_all() => names.iter().position(|name| name.eq_ignore_ascii_case(label)),
            None => Some(self.features.len()),
        }
    }
}
