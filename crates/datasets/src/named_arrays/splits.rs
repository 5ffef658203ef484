//! The splits among named arrays: masks or ids, under the names of `PyG`, `DGL` and girih.

use girih_graph_format::file::Array;
use girih_graph_format::{NodeId, Notes};

use super::source::{Arrays, only_one};
use crate::{DatasetError, Split};

/// Suffix of names of masks.
const MASK: [&str; 1] = ["_mask"];
/// Suffixes of names of ids: `PyG`'s and DGL's.
const IDS: [&str; 2] = ["_idx", "_nid"];

/// Reads the split sets; none when no array is one. Parts without an array are empty, which is noted.
pub(crate) fn read(arrays: &mut Arrays<'_>, n_nodes: usize, notes: &mut Notes) -> Result<Vec<Split>, DatasetError> {
    let numbered = read_numbered(arrays)?;
    let parts = [
        ("train", read_part(arrays, &["train"], n_nodes)?),
        ("val", read_part(arrays, &["val", "valid"], n_nodes)?),
        ("test", read_part(arrays, &["test"], n_nodes)?),
    ];
    let there: Vec<&str> = parts.iter().filter(|(_, sets)| sets.is_some()).map(|(part, _)| *part).collect();
    if !numbered.is_empty() {
        return match there.first() {
            None => Ok(numbered),
            Some(part) => Err(DatasetError::invalid(format!(
                "arrays split0_train and those of {part} nodes say the same thing, perhaps not alike; remove one of them"
            ))),
        };
    }
    if there.is_empty() {
        return Ok(Vec::new());
    }
    note_empty(&there, notes);
    let n_splits = parts.iter().filter_map(|(_, sets)| sets.as_ref()).map(Vec::len).max().unwrap_or(0);
    let [train, val, test] = parts.map(|(part, sets)| (part, sets.unwrap_or_else(|| vec![Vec::new()])));
    for (part, sets) in [&train, &val, &test] {
        if sets.len() != n_splits && sets.len() != 1 {
            let message = format!("{} sets of {part} nodes, but {n_splits} of another part", sets.len());
            return Err(DatasetError::invalid(message));
        }
    }
    // A part with one set, such as WikiCS's test nodes, belongs to every split.
    let set = |(_, sets): &(&str, Vec<Vec<NodeId>>), i: usize| sets[i % sets.len()].clone();
    Ok((0..n_splits).map(|i| Split { train: set(&train, i), val: set(&val, i), test: set(&test, i) }).collect())
}

/// Notes the parts of a split that have no array.
pub(crate) fn note_empty(there: &[&str], notes: &mut Notes) {
    for part in ["train", "val", "test"].into_iter().filter(|part| !there.contains(part)) {
        let text = format!("no {part} nodes: the data has those of {} alone", there.join(" and "));
        notes.make_up("empty_part", text, &[(part, 0)]);
    }
}

/// The splits that girih numbers: `split0_train`, `split0_val`, `split0_test`, `split1_train` and so on.
fn read_numbered(arrays: &mut Arrays<'_>) -> Result<Vec<Split>, DatasetError> {
    let mut splits = Vec::new();
    while arrays.has(&format!("split{}_train", splits.len())) {
        let i = splits.len();
        let mut part =
            |part: &str| -> Result<Vec<NodeId>, DatasetError> { ids(arrays.required(&format!("split{i}_{part}"))?) };
        splits.push(Split { train: part("train")?, val: part("val")?, test: part("test")? });
    }
    Ok(splits)
}

/// Nodes of a part, for each split set.
fn read_part(
    arrays: &mut Arrays<'_>,
    names: &[&str],
    n_nodes: usize,
) -> Result<Option<Vec<Vec<NodeId>>>, DatasetError> {
    let named = |endings: &[&str]| -> Vec<String> {
        names.iter().flat_map(|name| endings.iter().map(move |ending| format!("{name}{ending}"))).collect()
    };
    let (masks, lists) = (named(&MASK), named(&IDS));
    let known: Vec<&str> = masks.iter().chain(&lists).map(String::as_str).collect();
    let Some(name) = only_one(arrays, &known)? else { return Ok(None) };
    let array = arrays.required(name)?;
    if masks.iter().any(|mask| mask == name) {
        return nodes_of_masks(array, n_nodes).map(Some);
    }
    Ok(Some(vec![ids(array)?]))
}

/// Ids in any order, each once.
fn ids(array: Array) -> Result<Vec<NodeId>, DatasetError> {
    let origin = array.origin().to_owned();
    array.expect_1d()?;
    let mut ids = array.into_ids()?.into_vec();
    ids.sort_unstable();
    match ids.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(ids),
        Some(pair) => Err(DatasetError::invalid(format!("node {} is listed twice", pair[0])).at(&origin)),
    }
}

/// Nodes of one mask, or of every column of several.
fn nodes_of_masks(array: Array, n_nodes: usize) -> Result<Vec<Vec<NodeId>>, DatasetError> {
    let n_masks = match *array.shape() {
        [n] if n == n_nodes => 1,
        [n, n_masks] if n == n_nodes && n_masks > 0 => n_masks,
        ref shape => {
            let message =
                format!("a mask of shape {shape:?}; expected one value a node, and there are {n_nodes} nodes");
            return Err(DatasetError::invalid(message).at(array.origin()));
        }
    };
    let chosen = array.into_bools()?;
    let nodes = |mask: usize| (0..n_nodes).filter(|v| chosen[v * n_masks + mask]).map(|v| v as NodeId).collect();
    Ok((0..n_masks).map(nodes).collect())
}
