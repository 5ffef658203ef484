//! Names of the arrays of typed data.

use std::collections::{BTreeMap, BTreeSet};

use crate::DatasetError;
use crate::inventory::looks_like_split;
use crate::named_arrays::{FEATURES, LABELS, NamedArrays};

/// Separator of the parts of a relation's full name.
const JOINT: &str = "__";
/// Array that makes a name one of a relation.
pub(super) const EDGES: &str = "edge_index";

/// Names of all types, and of the arrays of each.
#[derive(Debug, Default)]
pub(super) struct Scheme {
    /// Node types, ascending.
    pub(super) nodes: Vec<String>,
    /// Source type, relation and destination type of each edge type, ascending by full name.
    pub(super) edges: Vec<[String; 3]>,
}

/// Whether arrays are those of typed data.
pub(crate) fn recognizes(source: &dyn NamedArrays) -> bool {
    source.entries().iter().any(|entry| parts(entry).is_some_and(|(_, key)| key == EDGES || key == "num_nodes"))
}

/// Name of a type, and of an array of it, from an entry of a file or folder.
pub(super) fn parts(entry: &str) -> Option<(&str, &str)> {
    let name = entry.strip_suffix(".npy").unwrap_or(entry);
    name.rsplit_once('.').filter(|(of, _)| !of.is_empty())
}

/// Full name of a relation.
pub(super) fn full_name(of: &[String; 3]) -> String {
    of.join(JOINT)
}

/// Whether an array of this name makes its type one of nodes.
fn is_of_nodes(key: &str) -> bool {
    let is_other = matches!(key, "num_nodes" | "target" | "learned_width");
    is_other || FEATURES.contains(&key) || LABELS.contains(&key) || looks_like_split(key)
}

impl Scheme {
    /// Finds the types that arrays name.
    ///
    /// # Errors
    /// When the name of a relation does not tell its types.
    pub(super) fn of(source: &dyn NamedArrays) -> Result<Self, DatasetError> {
        let (mut keys, entries) = (BTreeMap::<String, BTreeSet<String>>::new(), source.entries());
        for (of, key) in entries.iter().filter_map(|entry| parts(entry)) {
            keys.entry(of.to_owned()).or_default().insert(key.to_owned());
        }
        let (relations, others): (Vec<_>, Vec<_>) = keys.into_iter().partition(|(_, keys)| keys.contains(EDGES));
        let nodes = others.into_iter().filter(|(_, keys)| keys.iter().any(|key| is_of_nodes(key)));
        let mut scheme = Self { nodes: nodes.map(|(of, _)| of).collect(), edges: Vec::new() };
        for (full, _) in relations {
            scheme.edges.push(relation_of(&full, &scheme.nodes)?);
        }
        let ends = scheme.edges.iter().flat_map(|[source, _, destination]| [source, destination]);
        let all: BTreeSet<String> = scheme.nodes.iter().chain(ends).cloned().collect();
        scheme.nodes = all.into_iter().collect();
        Ok(scheme)
    }
}

/// Types and relation of a full name: those whose types are known, or else the only three parts.
///
/// # Errors
/// When there is no way to read the name, or several.
pub(super) fn relation_of(full: &str, nodes: &[String]) -> Result<[String; 3], DatasetError> {
    let ends = |source: &String, destination: &String| {
        let rest = full.strip_prefix(source.as_str())?.strip_prefix(JOINT)?;
        let relation = rest.strip_suffix(destination.as_str())?.strip_suffix(JOINT)?;
        (!relation.is_empty()).then(|| [source.clone(), relation.to_owned(), destination.clone()])
    };
    let pairs = nodes.iter().flat_map(|source| nodes.iter().map(move |destination| (source, destination)));
    let known: Vec<[String; 3]> = pairs.filter_map(|(source, destination)| ends(source, destination)).collect();
    let parts: Vec<&str> = full.split(JOINT).collect();
    match (&known[..], &parts[..]) {
        ([one], _) => Ok(one.clone()),
        ([], [source, relation, destination]) if parts.iter().all(|part| !part.is_empty()) => {
            Ok([source, relation, destination].map(|part| (*part).to_owned()))
        }
        ([], _) => Err(DatasetError::invalid(format!(
            "{full}.{EDGES}: expected SOURCE__RELATION__DESTINATION before the dot, with types of nodes that have a \
             num_nodes, such as author__writes__paper.{EDGES}"
        ))),
        ([one, other, ..], _) => Err(DatasetError::invalid(format!(
            "{full}.{EDGES} may go from {} to {} or from {} to {}; rename a type that has {JOINT} in its name",
            one[0], one[2], other[0], other[2]
        ))),
    }
}
