//! Split sets of id pairs: `train_20.npy` and so on.

use std::path::Path;

use girih_graph_format::file::Array;
use girih_graph_format::{NodeId, NodeType, Notes};

use super::part_path;
use crate::inventory::Inventory;
use crate::named_arrays::note_empty;
use crate::splits::part_of;
use crate::{DatasetError, Split};

/// Parts of a split, in the order of [`Split::parts`].
const PARTS: [&str; 3] = ["train", "val", "test"];

/// Numbers in the names of training parts, ascending: a split set for each.
fn numbers(entries: &Inventory) -> Vec<u64> {
    let number = |name: &str| {
        let number: u64 = name.strip_prefix("train_")?.strip_suffix(".npy")?.parse().ok()?;
        (name == format!("train_{number}.npy")).then_some(number)
    };
    let mut numbers: Vec<u64> = entries.left().filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

/// Whether a folder has split sets.
pub(super) fn are_in(entries: &Inventory) -> bool {
    !numbers(entries).is_empty()
}

/// Number from 0 of the split set whose files have this number in their names. `None` if no file has it.
pub(crate) fn number_of_split(folder: &Path, named: usize) -> Option<usize> {
    numbers(&Inventory::of_folder(folder).ok()?).iter().position(|&number| number == named as u64)
}

/// Reads the split sets, in the order of their numbers.
///
/// # Errors
/// When a part names a node twice or beyond the type, or two parts have one node.
pub(super) fn read(
    folder: &Path,
    target: &NodeType,
    others: &mut Inventory,
    notes: &mut Notes,
) -> Result<Vec<Split>, DatasetError> {
    let numbers = numbers(others);
    let mut splits = Vec::new();
    for &number in &numbers {
        let there = PARTS.into_iter().filter(|part| others.has(&format!("{part}_{number}.npy"))).collect::<Vec<_>>();
        if there.len() < PARTS.len() {
            note_empty(&there, notes);
        }
        let mut nodes = PARTS.map(|_| Vec::new());
        for (part, nodes) in PARTS.into_iter().zip(&mut nodes).filter(|(part, _)| there.contains(part)) {
            *nodes = ids(&part_path(folder, part, number), target)?;
            others.take(&format!("{part}_{number}.npy"));
        }
        let [train, val, test] = nodes;
        let split = Split { train, val, test };
        let named = |what: String| {
            DatasetError::invalid(format!("train_{number}.npy, val_{number}.npy and test_{number}.npy: {what}"))
                .at(folder)
        };
        split.validate(target.n_nodes).map_err(named)?;
        splits.push(split);
    }
    if numbers.len() > 1 {
        let list = numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        let last = numbers[numbers.len() - 1];
        let text = format!("split sets are those of {list} in this order (--split {last} takes one of them)");
        notes.make_up("split_sets", text, &[("splits", numbers.len() as u64)]);
    }
    Ok(splits)
}

/// Ids of a part, ascending.
fn ids(path: &Path, target: &NodeType) -> Result<Vec<NodeId>, DatasetError> {
    let array = Array::read(path)?;
    array.expect_1d()?;
    part_of(array.into_ids()?.into_vec(), target).map_err(|e| e.at(path))
}
