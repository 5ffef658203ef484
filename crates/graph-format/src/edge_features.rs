//! [`EdgeFeatures`]: numbers that a list has for each of its edges.

use std::collections::BTreeSet;

use girih_machine::parallel;

use crate::FormatError;

/// Features of the edges of a list: one row per edge, in the order of the list.
///
/// # Invariants
/// Names are distinct, and there is at least one unless there is no value. Every row has one value per name; all values are
/// finite.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EdgeFeatures {
    names: Vec<String>,
    /// Row-major values: `n_edges × names.len()`.
    values: Vec<f32>,
}

impl EdgeFeatures {
    /// Features with these names, from row-major values: `n_edges × names.len()`.
    ///
    /// # Errors
    /// When there is no name, a name is repeated, the last row is incomplete, or a value is not finite.
    pub fn new(names: Vec<String>, values: Vec<f32>) -> Result<Self, FormatError> {
        let width = names.len();
        if width == 0 {
            return Err(FormatError::invalid("features of edges without a name; give one name per column"));
        }
        let mut known = BTreeSet::new();
        if let Some(name) = names.iter().find(|name| !known.insert(name.as_str())) {
            return Err(FormatError::invalid(format!(
                "two features of edges are named {name:?}; give each column a name of its own"
            )));
        }
        if !values.len().is_multiple_of(width) {
            let n = values.len();
            return Err(FormatError::invalid(format!(
                "{n} values for {width} features of edges; each edge needs one value of each"
            )));
        }
        if let Some(at) = parallel::position(&values, |value| !value.is_finite()) {
            let (edge, name, value) = (at / width, &names[at % width], values[at]);
            return Err(FormatError::invalid(format!(
                "edge {edge}, feature {name:?}: {value} is not finite; give a number"
            )));
        }
        Ok(Self { names, values })
    }

    /// Name of each column.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Number of columns.
    #[must_use]
    pub fn width(&self) -> usize {
        self.names.len()
    }

    /// Number of edges, each with a row.
    #[must_use]
    pub fn n_edges(&self) -> usize {
        self.values.len() / self.width().max(1)
    }

    /// Values of an edge, in the order of the names.
    ///
    /// # Panics
    /// When there is no such edge.
    #[must_use]
    pub fn row(&self, edge: usize) -> &[f32] {
        &self.values[edge * self.width()..(edge + 1) * self.width()]
    }

    /// Row-major values: `n_edges × width`.
    #[must_use]
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Number of the column with this name.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known == name)
    }
}
