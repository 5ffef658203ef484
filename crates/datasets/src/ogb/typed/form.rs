//! [`Form`]: files of a typed raw folder, in either form.

use std::path::PathBuf;

use girih_graph_format::{Matrix, NodeId, NodeType, Notes};

use crate::pair_file::Lines;
use crate::{DatasetError, Labels, LoadOptions};

/// Separator of the parts of a relation's full name.
pub(super) const JOINT: &str = "___";
/// Number of folders above the files of a raw folder.
pub(super) const DEPTH: usize = 2;

/// Parts of a relation's full name.
pub(super) fn parts_of(full: &str) -> Option<[String; 3]> {
    let parts: Vec<&str> = full.split(JOINT).collect();
    let [source, relation, destination] = parts[..] else { return None };
    let parts = [source, relation, destination];
    parts.iter().all(|part| !part.is_empty()).then(|| parts.map(str::to_owned))
}

/// Files of either form.
pub(super) trait Form {
    /// Types of nodes, ascending by name.
    fn node_types(&mut self) -> Result<Vec<NodeType>, DatasetError>;
    /// File that states the numbers of nodes.
    fn counts(&self) -> PathBuf;
    /// Pairs of each relation, ascending by its parts.
    fn pairs(&mut self, notes: &mut Notes) -> Result<Vec<Pairs>, DatasetError>;
    /// Features of a type, and their file, if it has some.
    fn features(&mut self, of: &str, notes: &mut Notes) -> Result<Option<(Matrix, PathBuf)>, DatasetError>;
    /// Whether a type has labels.
    fn has_labels(&self, of: &str) -> Result<bool, DatasetError>;
    /// Labels of a type, and their file.
    fn labels(&mut self, of: &str, options: &LoadOptions, notes: &mut Notes)
    -> Result<(Labels, PathBuf), DatasetError>;
    /// Notes what is not read.
    fn note_rest(&self, notes: &mut Notes);
}

/// Pairs of ids of a relation.
pub(super) struct Pairs {
    /// Source type, relation and destination type.
    pub(super) of: [String; 3],
    pub(super) origin: PathBuf,
    pub(super) ids: [Vec<NodeId>; 2],
    /// Lines of the pairs, if the file is text.
    pub(super) lines: Option<Lines>,
}

/// Place of an edge in its file.
pub(super) fn place(lines: Option<&Lines>, edge: usize) -> String {
    match lines {
        Some(lines) => format!("line {}", lines.of(edge)),
        None => format!("edge {edge}"),
    }
}
