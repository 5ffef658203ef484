//! Tables of predictions: a line for each node, by its name.

use std::borrow::Cow;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use girih_datasets::Names;
use girih_graph_format::{FormatError, file};

use super::Predictions;
use crate::error::CliError;

/// Separator of the fields of a file, by its name; `None` if it is no table.
pub fn separator_of(path: &Path) -> Option<char> {
    let ending = path.extension()?.to_ascii_lowercase();
    [("tsv", '\t'), ("csv", ',')].into_iter().find(|(name, _)| ending == *name).map(|(_, separator)| separator)
}

/// Lines of nodes, with the names that the data has.
pub struct Table {
    pub separator: char,
    pub names: Option<Arc<Names>>,
    /// Id of the first node.
    pub first: usize,
    pub n_classes: usize,
}

impl Table {
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
        match &self.names {
            Some(names) if self.first == 0 => names.nodes.get(node).into(),
            _ => (self.first + node).to_string().into(),
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
