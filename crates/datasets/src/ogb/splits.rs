//! The splits below a data set's folder `split`, as text or as files of `torch.save`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use girih_graph_format::file::read_integers;
use girih_graph_format::{Csr, MAX_NODES, NodeId, Notes};

use super::{edge_splits, table};
use crate::dataset::EdgeSplit;
use crate::inventory::Inventory;
use crate::named_arrays::note_empty;
use crate::pickle::torch::TorchFile;
use crate::{DatasetError, Split};

/// Parts of a split, as in the names of their files.
const PARTS: [&str; 3] = ["train", "valid", "test"];
/// Name of the file that holds all parts.
const DICTIONARY: &str = "split_dict.pt";

/// Result of the search for splits.
#[derive(Default)]
pub(super) struct Found {
    /// Split sets, in the order of their names.
    pub(super) splits: Vec<Split>,
    /// Split of edges.
    pub(super) edges: Option<Arc<EdgeSplit>>,
    /// Whether any split exists, including one that cannot be read.
    pub(super) is_there: bool,
}

/// Reads the split sets below `split`, of nodes or edges of `graph`; none when there is no such folder.
pub(super) fn read(split: &Path, graph: &Csr, notes: &mut Notes) -> Result<Found, DatasetError> {
    let mut found = Found::default();
    if !split.is_dir() {
        return Ok(found);
    }
    for entry in Inventory::of_folder(split)?.left() {
        match entry.strip_suffix('/') {
            Some(name) => found.add(read_set((&split.join(name), name), graph, notes)?).map_err(|e| e.at(split))?,
            None => notes.leave_out(format!("split/{entry}"), "splits are folders of train, valid and test"),
        }
    }
    if found.splits.is_empty() && found.edges.is_none() && found.is_there {
        notes.warn("no split is drawn: the folder split holds one that is not of nodes; --split random draws one");
    }
    Ok(found)
}

impl Found {
    fn add(&mut self, set: Set) -> Result<(), DatasetError> {
        self.is_there |= !matches!(set, Set::Nothing);
        match set {
            Set::Nodes(split) => self.splits.push(split),
            Set::Edges(split) => {
                if self.edges.replace(Arc::new(split)).is_some() {
                    return Err(DatasetError::invalid("two folders with a split of edges; keep one of them"));
                }
            }
            Set::Other | Set::Nothing => {}
        }
        Ok(())
    }
}

/// Contents of the folder of a split set.
enum Set {
    Nodes(Split),
    Edges(EdgeSplit),
    /// A split of other items, such as triples.
    Other,
    Nothing,
}

fn read_set((folder, name): (&Path, &str), graph: &Csr, notes: &mut Notes) -> Result<Set, DatasetError> {
    let mut files = Inventory::of_folder(folder)?;
    let set = match read_saved(folder, &mut files, notes)? {
        Saved::Nothing => Set::Nothing,
        Saved::Ids(parts) => Set::Nodes(split_of(parts, notes)),
        Saved::Edges => {
            let split = edge_splits::read(folder, name, graph, notes)?;
            PARTS.iter().for_each(|part| files.take(&format!("{part}.pt")));
            Set::Edges(split)
        }
        Saved::Other => Set::Other,
    };
    note_others(&files, name, notes);
    Ok(set)
}

/// Notes the files of a split set that are not read.
pub(super) fn note_others(files: &Inventory, name: &str, notes: &mut Notes) {
    files.left().for_each(|file| {
        let why = if file.ends_with(".pt") { "no ids of nodes and no edges" } else { "" };
        notes.leave_out(format!("split/{name}/{file}"), why);
    });
}

/// Reads the parts of a split set: text, or else files of `torch.save`.
pub(super) fn read_saved(folder: &Path, files: &mut Inventory, notes: &mut Notes) -> Result<Saved, DatasetError> {
    let text: Vec<(&str, PathBuf)> = PARTS.iter().filter_map(|part| Some((*part, table(folder, part)?))).collect();
    if text.is_empty() {
        return read_torch(folder, files);
    }
    text.iter().for_each(|(_, path)| files.take(&path.file_name().unwrap_or_default().to_string_lossy()));
    let parts = text.iter().map(|(part, path)| Ok((*part, read_ids(path, notes)?)));
    Ok(Saved::Ids(parts.collect::<Result<_, DatasetError>>()?))
}

/// Split of some parts; a missing part is empty, which is noted.
pub(super) fn split_of(mut parts: Parts, notes: &mut Notes) -> Split {
    let shown = |part: &str| if part == "valid" { "val" } else { part }.to_owned();
    let there: Vec<String> = parts.iter().map(|(part, _)| shown(part)).collect();
    note_empty(&there.iter().map(String::as_str).collect::<Vec<_>>(), notes);
    let mut part = |name: &str| {
        let mut ids =
            parts.iter_mut().find(|(part, _)| *part == name).map_or(Vec::new(), |(_, ids)| std::mem::take(ids));
        ids.sort_unstable();
        ids
    };
    Split { train: part("train"), val: part("valid"), test: part("test") }
}

pub(super) type Parts = Vec<(&'static str, Vec<NodeId>)>;

/// Contents of a folder's files of `torch.save`.
pub(super) enum Saved {
    Nothing,
    Ids(Parts),
    Edges,
    Other,
}

/// Reads the parts in files of `torch.save`, if they hold ids.
fn read_torch(folder: &Path, files: &mut Inventory) -> Result<Saved, DatasetError> {
    if files.has(DICTIONARY) {
        let path = folder.join(DICTIONARY);
        let mut file = TorchFile::open(&path)?;
        let Some(entries) = file.entries() else { return Ok(Saved::Other) };
        let mut parts = Parts::new();
        for (key, value) in entries {
            match PARTS.into_iter().find(|part| *part == key) {
                Some(part) if !file.is_dict(&value) => {
                    parts.push((part, file.ids(&value, 1).map_err(|e| e.at(&path))?.ids));
                }
                _ => return Ok(Saved::Other),
            }
        }
        files.take(DICTIONARY);
        return Ok(Saved::Ids(parts));
    }
    let there: Vec<&str> = PARTS.into_iter().filter(|part| files.has(&format!("{part}.pt"))).collect();
    if there.is_empty() {
        return Ok(Saved::Nothing);
    }
    let mut parts = Parts::new();
    for part in there {
        let path = folder.join(format!("{part}.pt"));
        let mut file = TorchFile::open(&path)?;
        let root = file.root();
        if file.is_dict(&root) {
            return Ok(if edge_splits::holds_edges(&file) { Saved::Edges } else { Saved::Other });
        }
        parts.push((part, file.ids(&root, 1).map_err(|e| e.at(&path))?.ids));
    }
    parts.iter().for_each(|(part, _)| files.take(&format!("{part}.pt")));
    Ok(Saved::Ids(parts))
}

fn read_ids(path: &Path, notes: &mut Notes) -> Result<Vec<NodeId>, DatasetError> {
    let ids = read_integers(path, notes)?;
    if let Some(at) = ids.iter().position(|&id| id >= MAX_NODES as u64) {
        return Err(DatasetError::invalid(format!("line {}: node {} does not exist", at + 1, ids[at])).at(path));
    }
    Ok(ids.into_iter().map(|id| id as NodeId).collect())
}
