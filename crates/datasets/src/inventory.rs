//! [`Inventory`]: entries of a folder or archive; loaders mark the used ones, and the notes name the others.

use std::collections::BTreeSet;
use std::path::Path;

use girih_graph_format::Notes;

use crate::DatasetError;

/// Entries of a folder or archive that are not used so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inventory {
    left: BTreeSet<String>,
}

impl Inventory {
    /// Lists the entries of a folder: files by their names, folders with a `/` at the end.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub(crate) fn of_folder(path: &Path) -> Result<Self, DatasetError> {
        let failed = |e| DatasetError::from(e).at(path);
        let mut left = BTreeSet::new();
        for entry in std::fs::read_dir(path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let slash = if entry.path().is_dir() { "/" } else { "" };
            left.insert(format!("{}{slash}", entry.file_name().to_string_lossy()));
        }
        Ok(Self { left })
    }

    /// Lists the files of a folder and of the folders in it, down to `depth` folders, by their paths below it. Empty
    /// folders, and those further down, have a `/` at the end.
    ///
    /// # Errors
    /// When a folder cannot be read.
    pub(crate) fn of_tree(path: &Path, depth: usize) -> Result<Self, DatasetError> {
        let mut tree = Self::default();
        for entry in Self::of_folder(path)?.left {
            match entry.strip_suffix('/').filter(|_| depth > 0) {
                None => tree.left.extend([entry]),
                Some(folder) => {
                    let below = Self::of_tree(&path.join(folder), depth - 1)?.left;
                    let is_empty = below.is_empty();
                    tree.left.extend(is_empty.then(|| entry.clone()));
                    tree.left.extend(below.into_iter().map(|file| format!("{entry}{file}")));
                }
            }
        }
        Ok(tree)
    }

    /// Lists the members of an archive.
    pub(crate) fn of_names(names: impl IntoIterator<Item = String>) -> Self {
        Self { left: names.into_iter().collect() }
    }

    /// Whether an entry exists and is not used so far.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.left.contains(name)
    }

    /// Marks an entry as used.
    pub(crate) fn take(&mut self, name: &str) {
        self.left.remove(name);
    }

    /// Marks all entries as used for which `is_used` holds.
    pub(crate) fn take_all(&mut self, is_used: impl Fn(&str) -> bool) {
        self.left.retain(|name| !is_used(name));
    }

    /// Unused entries, ascending.
    pub(crate) fn left(&self) -> impl Iterator<Item = &str> {
        self.left.iter().map(String::as_str)
    }

    /// Notes the members of an archive for which `is_used` does not hold.
    pub(crate) fn note_others(
        names: impl IntoIterator<Item = String>,
        is_used: impl Fn(&str) -> bool,
        notes: &mut Notes,
    ) {
        let mut members = Self::of_names(names);
        members.take_all(is_used);
        members.note(notes);
    }

    /// Notes all unused entries, with the reason that their names suggest.
    pub(crate) fn note(&self, notes: &mut Notes) {
        self.left().for_each(|name| notes.leave_out(name, reason(name)));
    }

    /// Notes all unused entries of a folder or archive inside the data, as [`Self::note`].
    pub(crate) fn note_below(&self, folder: &str, notes: &mut Notes) {
        self.left().for_each(|name| notes.leave_out(format!("{folder}/{name}"), reason(name)));
    }
}

/// Reason why an entry is not used, by its name without folders; empty where the name suggests none.
pub(crate) fn reason(entry: &str) -> &'static str {
    let name = entry.trim_end_matches('/').rsplit('/').next().unwrap_or(entry);
    let stem = name.split('.').next().unwrap_or(name).to_ascii_lowercase();
    let stem = stem.replace('-', "_");
    match stem.strip_suffix("_dict").unwrap_or(&stem) {
        "edge_attr" | "edge_feat" | "edge_feats" | "edge_features" | "efeat" | "edata" => "edge features",
        "edge_type" | "edge_types" | "etype" | "rel" | "relation" | "edge_reltype" => "edge types",
        "node_type" | "node_types" | "ntype" => "node types",
        "edge_time" | "edge_times" | "edge_year" | "time" | "timestamp" | "timestamps" | "t" => "times of edges",
        "node_year" | "node_time" | "year" => "times of nodes",
        "edge_label" | "edge_label_index" | "edge_y" => "labels of edges",
        "pos" | "coords" | "coordinates" => "positions of nodes",
        "adj_t" | "adj" | "adjacency" => "another form of the graph",
        "n_id" | "e_id" | "node_ids" | "node_id" | "id" | "ids" | "eid" => "ids",
        "class_names" | "label_names" | "classes" => "names of classes",
        "attr_names" | "feature_names" => "names of features",
        "node_names" | "names" | "idx_to_node" => "names of nodes",
        "edge_weight" | "edge_weights" | "weight" | "weights" => "weights of another graph or length",
        "readme" | "license" | "licence" | "release_v1" | "metadata" | "meta" | "meta_info" => "description",
        "processed" | "pre_filter" | "pre_transform" => "what PyG made of the raw files",
        "mapping" => "names of ids",
        "node_label" => "labels that are not chosen",
        mapping if mapping.ends_with("_mapping") => "names of ids",
        _ if looks_like_split(name) => "perhaps a split, but not under a known name",
        _ => "",
    }
}

/// Whether a name suggests that it holds parts of a split.
pub(crate) fn looks_like_split(name: &str) -> bool {
    let name = name.split('.').next().unwrap_or(name).to_ascii_lowercase();
    let holds = |word: &str| name.contains(word);
    let has_token = |word: &str| name.split(|c: char| !c.is_ascii_alphanumeric()).any(|token| token == word);
    ["train", "valid", "test", "split", "mask", "fold"].into_iter().any(holds)
        || ["val", "vals", "dev", "tr", "va", "te"].into_iter().any(has_token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_arrays_are_named_with_a_reason() {
        let mut inventory = Inventory::of_names(["x", "edge_attr", "foo", "trainmask"].map(String::from));
        inventory.take("x");
        let mut notes = Notes::default();
        inventory.note(&mut notes);
        let line = notes.not_used_line().unwrap();
        assert_eq!(
            line,
            "not used: edge_attr: edge features; foo; trainmask: perhaps a split, but not under a known name"
        );
    }

    #[test]
    fn names_of_splits_are_told_from_others() {
        for name in ["train_nids.npy", "idx-train", "val.npy", "split0", "test", "fold_1", "dev_idx", "TrainMask"] {
            assert!(looks_like_split(name), "{name}");
        }
        for name in ["values", "x", "y", "edge_index", "evaluation_time", "node_year", "interval"] {
            assert!(!looks_like_split(name), "{name}");
        }
    }
}
