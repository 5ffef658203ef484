//! Tables of predictions: a line for each node, by its name.

use std::borrow::Cow;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use girih_datasets::{DataSource, Names};
use girih_graph_format::{FormatError, file};
use girih_trainer::DataShape;

use super::Predictions;
use crate::error::CliError;

/// Separator of the fields of a file, by its name; `None` if it is no table.
pub fn separator_of(path: &Path) -> Option<char> {
    let ending = path.extension()?.to_ascii_lowercase();
    [("tsv", '\t'), ("csv", ',')].into_iter().find(|(name, _)| ending == *name).map(|(_, separator)| separator)
}

/// Lines of nodes, with the names that the data has.
pub struct Table {
    separator: char,
    names: Option<Arc<Names>>,
    /// Place of the first node among the names of nodes; `None` if the nodes have no names.
    first_name: Option<usize>,
    /// Id of the first node; ids of a node type begin at 0.
    first_id: usize,
    n_classes: usize,
}

impl Table {
    /// Table of the rows `wanted` of some data, of which the first `n_known` nodes are those of the data without new ones.
    pub fn of(
        data: &DataSource,
        separator: char,
        (n_known, wanted): (usize, &Range<usize>),
        trained: &DataShape,
    ) -> Self {
        let names = match data {
            DataSource::Loaded(dataset) => dataset.names.clone(),
            DataSource::Stored(_) => None,
        };
        let first_name = names.as_ref().filter(|names| n_known == 0 && !names.nodes.is_empty()).map(|_| wanted.start);
        Self { separator, names, first_name, first_id: n_known, n_classes: trained.n_classes }
    }

    /// Writes a header, and a line for each node: its name or else its id, and its class or a value for each class.
    pub fn write(&self, path: &Path, predictions: &Predictions) -> Result<(), CliError> {
        let all: Vec<String> = (0..self.n_classes).map(|class| self.class(class)).collect();
        file::write_file(path, |out| {
            let mut line = |fields: &mut dyn Iterator<Item = Cow<'_, str>>| -> Result<(), FormatError> {
                let fields: Vec<String> = fields.map(|field| self.quoted(&field)).collect();
                writeln!(out, "{}", fields.join(&self.separator.to_string()))?;
                Ok(())
            };
            let columns: Vec<Cow<'_, str>> = match predictions {
                Predictions::Classes(_) => vec!["class".into()],
                _ => all.iter().map(|name| name.as_str().into()).collect(),
            };
            line(&mut std::iter::once("node".into()).chain(columns))?;
            for node in 0..predictions.n_nodes(self.n_classes) {
                let values: Vec<Cow<'_, str>> = match predictions {
                    Predictions::Classes(classes) => vec![all[classes[node] as usize].as_str().into()],
                    Predictions::Logits(logits) => self.of_node(logits, node),
                    Predictions::Labels(labels) => self.of_node(labels, node),
                };
                line(&mut std::iter::once(self.node(node)).chain(values))?;
            }
            Ok(())
        })?;
        Ok(())
    }

    fn of_node<T: ToString>(&self, values: &[T], node: usize) -> Vec<Cow<'_, str>> {
        values[node * self.n_classes..][..self.n_classes].iter().map(|value| value.to_string().into()).collect()
    }

    /// Name of a node, or its id.
    fn node(&self, node: usize) -> Cow<'_, str> {
        match (&self.names, self.first_name) {
            (Some(names), Some(first)) => names.nodes.get(first + node).into(),
            _ => (self.first_id + node).to_string().into(),
        }
    }

    /// Name of a class, or its number.
    fn class(&self, class: usize) -> String {
        let named = self.names.as_ref().and_then(|names| names.classes.get(class));
        named.map_or_else(|| class.to_string(), String::clone)
    }

    /// A field in quotes, if it has a separator, a quote or the end of a line.
    fn quoted(&self, field: &str) -> String {
        if field.contains([self.separator, '"', '\n', '\r']) {
            format!("\"{}\"", field.replace('"', "\"\""))
        } else {
            field.to_owned()
        }
    }
}
