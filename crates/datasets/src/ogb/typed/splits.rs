//! Split sets of the nodes of a type: `split/NAME/TYPE/{train,valid,test}`.

use std::path::Path;

use girih_graph_format::{NodeType, Notes};

use super::text::check_flag;
use crate::inventory::Inventory;
use crate::ogb::splits::{Saved, note_others, read_saved, split_of};
use crate::splits::part_of;
use crate::{DatasetError, LoadOptions, Split};

/// Table that says which types have split sets.
const FLAGS: &str = "nodetype-has-split";

/// Result of the search for splits.
#[derive(Default)]
pub(super) struct Found {
    /// Split sets, in the order of their names.
    pub(super) splits: Vec<Split>,
    /// Whether any split exists, including one that is not read.
    pub(super) is_there: bool,
}

/// Reads the split sets of the target, by ids inside it.
///
/// # Errors
/// When a split set is of another type alone, a part is damaged, names a node twice or beyond the type, or two parts
/// have one node.
pub(super) fn read(
    split: &Path,
    (types, target): (&[NodeType], usize),
    options: &LoadOptions,
    notes: &mut Notes,
) -> Result<Found, DatasetError> {
    let mut found = Found::default();
    for entry in Inventory::of_folder(split)?.left() {
        let Some(name) = entry.strip_suffix('/') else {
            notes.leave_out(format!("split/{entry}"), "splits are folders of types");
            continue;
        };
        let (folder, set) = (split.join(name), Set { name, types, target: &types[target] });
        found.is_there |= Inventory::of_folder(&folder)?.left().next().is_some();
        found.splits.extend(set.read(&folder, options, notes).map_err(|e| e.at(&folder))?);
    }
    if found.splits.is_empty() && found.is_there {
        notes.warn("no split is drawn: the folder split holds one that is not read; --split random draws one");
    }
    Ok(found)
}

/// Split set of a folder.
struct Set<'a> {
    name: &'a str,
    types: &'a [NodeType],
    target: &'a NodeType,
}

impl Set<'_> {
    fn read(&self, folder: &Path, options: &LoadOptions, notes: &mut Notes) -> Result<Option<Split>, DatasetError> {
        let (name, of) = (self.name, &self.target.name);
        let mut files = Inventory::of_folder(folder)?;
        files.take_all(|file| file.split('.').next() == Some(FLAGS));
        let is_there = files.has(&format!("{of}/"));
        files.take(&format!("{of}/"));
        check_flag(folder, FLAGS, of, (is_there, &format!("folder {of} beside it")))?;
        let others = files.left().filter_map(|file| file.strip_suffix('/'));
        let others: Vec<&str> = others.filter(|file| self.types.iter().any(|of| of.name == *file)).collect();
        if let (false, Some(other), false) = (is_there, others.first(), options.random_split) {
            let what = format!("the split is one of {}, and the target is {of}", others.join(" and "));
            return Err(DatasetError::invalid(format!("{what}; give --target {other}, or --split random")));
        }
        for file in files.left() {
            let is_type = file.strip_suffix('/').is_some_and(|file| others.contains(&file));
            let why = if is_type { format!("of another type than {of}") } else { String::new() };
            notes.leave_out(format!("split/{name}/{file}"), why);
        }
        if is_there { self.parts(&folder.join(of), notes) } else { Ok(None) }
    }

    fn parts(&self, folder: &Path, notes: &mut Notes) -> Result<Option<Split>, DatasetError> {
        let mut files = Inventory::of_folder(folder)?;
        let saved = read_saved(folder, &mut files, notes)?;
        note_others(&files, &format!("{}/{}", self.name, self.target.name), notes);
        let Saved::Ids(mut parts) = saved else { return Ok(None) };
        for (part, ids) in &mut parts {
            let named = |error: DatasetError| DatasetError::invalid(format!("{part}: {error}")).at(folder);
            *ids = part_of(std::mem::take(ids), self.target).map_err(named)?;
        }
        let split = split_of(parts, notes);
        split.validate(self.target.n_nodes).map_err(|what| DatasetError::invalid(what).at(folder))?;
        Ok(Some(split))
    }
}
