//! MAG240M of OGB-LSC (Hu et al., NeurIPS 2021), with types of nodes and edges.
//!
//! ```text
//! meta.pt                                          numbers of nodes by type, and num_classes; may be missing
//! split_dict.pt                                    ids of papers: train, valid, test; may be missing
//! processed/paper/node_feat.npy                    papers × 768, float16
//! processed/paper/node_label.npy                   a class a paper, NaN where unknown
//! processed/paper/node_year.npy                    the year of each paper
//! processed/author___writes___paper/edge_index.npy 2 × edges: ids of sources and destinations, inside their types
//! ```
//! Any other types and relations are read alike.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use girih_graph_format::file::Array;
use girih_graph_format::{NodeId, NodeType, Notes};

use crate::feature_file::open_matrix;
use crate::file_kind::stem;
use crate::named_arrays::note_empty;
use crate::pickle::torch::TorchFile;
use crate::splits::{drawn_by, part_of};
use crate::type_folders::{self, TypeFolders};
use crate::typed_parts::{TypedParts, check_edge_options, target_of};
use crate::{Dataset, DatasetError, Labels, LoadOptions, Split, SplitRule, UNLABELLED, labels, reverses};

/// Separator of the parts of a relation's full name.
const JOINT: &str = "___";
/// Files of numbers and of the split, above the folders of types.
const META: &str = "meta.pt";
const SPLIT: &str = "split_dict.pt";
/// Key of the number of classes.
const N_CLASSES: &str = "num_classes";
/// Last year of training papers; validation papers are of the next one, test papers are later.
const TRAIN_YEAR: i64 = 2018;
/// Number of the papers of `test-dev` among five test papers; the others are of `test-challenge`.
const DEV_OF_FIVE: usize = 3;

/// Folder of the folders of types, given itself or the one above as `path`.
pub(crate) fn find(path: &Path) -> Option<PathBuf> {
    type_folders::find(path, JOINT)
}

/// Loads a data set. Each relation gets its reverse, unless the options say otherwise. Features of `float16` are widened
/// in memory, or encoded row by row if the options name a codec.
///
/// # Errors
/// When files are damaged or contradict each other; each error names its file.
pub(crate) fn load(processed: &Path, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    type_folders::load(processed, JOINT, |folders, root| read(folders, root, options))
}

fn read(folders: &mut TypeFolders, root: &Path, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    check_edge_options(options)?;
    let mut notes = Notes::default();
    let features = folders.features(options, |_, path, options| open_matrix(path, options))?;
    let meta_path = root.join(META);
    let meta = if meta_path.is_file() { numbers(&meta_path)? } else { BTreeMap::new() };
    let types = folders.node_types(&features, |name| meta.get(name).copied(), &mut notes);
    let types = types.map_err(|error| if meta.is_empty() { error } else { error.at(&meta_path) })?;
    let unknown = meta.keys().filter(|key| *key != N_CLASSES && !folders.names().contains(key));
    unknown.for_each(|key| notes.leave_out(format!("{META}: {key}"), "no folder has such nodes"));
    let graph = folders.graph(&types, options, &mut notes)?;
    let graph = reverses::with_option(graph, options.reverse, &mut notes)?;

    let target = target_of(&types, &folders.labelled(), options)?;
    let labels = labels_of(folders, &types[target], meta.get(N_CLASSES).copied(), options, &mut notes)?;
    let splits = splits_of((folders, root), &types[target], labels.as_ref(), options, &mut notes)?;
    folders.note_rest(&[META, SPLIT], &mut notes)?;
    let parts = TypedParts { graph, features, target, labels, splits, names: None };
    parts.into_loaded(stem(root), notes, options)
}

/// Numbers of a dictionary, by their keys.
fn numbers(path: &Path) -> Result<BTreeMap<String, usize>, DatasetError> {
    let file = TorchFile::open(path)?;
    let wrong = |what: &str| DatasetError::invalid(format!("{what}; expected numbers of nodes by type")).at(path);
    let entries = file.entries().ok_or_else(|| wrong("no dictionary"))?;
    let number = |(key, value): (String, _)| {
        let number = file.int(&value).ok().and_then(|n| usize::try_from(n).ok());
        Ok((key.clone(), number.ok_or_else(|| wrong(&format!("{key} is no number from 0")))?))
    };
    entries.into_iter().map(number).collect()
}

/// Labels of the target, whose classes the data may count.
fn labels_of(
    folders: &mut TypeFolders,
    target: &NodeType,
    n_classes: Option<usize>,
    options: &LoadOptions,
    notes: &mut Notes,
) -> Result<Option<Labels>, DatasetError> {
    let Some(path) = folders.take(&format!("{}/node_label.npy", target.name)) else { return Ok(None) };
    let labels = labels::of_declared(Array::map(&path)?, n_classes, options, notes)?;
    labels.validate(target.n_nodes).map_err(|error| error.at(&path))?;
    Ok(Some(labels))
}

/// The split of the data, or else one by year, or else a drawn one.
fn splits_of(
    (folders, root): (&mut TypeFolders, &Path),
    target: &NodeType,
    labels: Option<&Labels>,
    options: &LoadOptions,
    notes: &mut Notes,
) -> Result<Vec<Split>, DatasetError> {
    let path = root.join(SPLIT);
    if path.is_file() {
        return Ok(vec![saved_split(&path, target, notes).map_err(|error| error.at(&path))?]);
    }
    let Some(labels) = labels.filter(|_| !options.random_split) else { return Ok(Vec::new()) };
    if let Labels::Single { classes, .. } = labels
        && let Some(path) = folders.take(&format!("{}/node_year.npy", target.name))
    {
        return Ok(vec![split_by_year(&path, target, classes, notes)?]);
    }
    Ok(drawn_by(SplitRule::UNSPLIT, labels, options, notes))
}

/// Split of a file of `torch.save`.
fn saved_split(path: &Path, target: &NodeType, notes: &mut Notes) -> Result<Split, DatasetError> {
    let mut file = TorchFile::open(path)?;
    let entries = file.entries().ok_or_else(|| DatasetError::invalid("no dictionary; expected train, valid, test"))?;
    let mut parts = BTreeMap::new();
    for (key, value) in entries {
        let named = |error: DatasetError| DatasetError::invalid(format!("{key}: {error}"));
        let mut ids = match key.as_str() {
            "train" | "valid" | "test" | "test-dev" => file.ids(&value, 1).map_err(named)?.ids,
            _ => {
                notes.leave_out(format!("{SPLIT}: {key}"), "no part that is trained or scored");
                continue;
            }
        };
        if key == "test" {
            let challenge = take_challenge(&mut ids);
            if challenge > 0 {
                let why = format!("{challenge} test nodes of test-challenge; the other {} are test-dev", ids.len());
                notes.leave_out(format!("{SPLIT}: test"), why);
            }
        }
        let part = if key == "test-dev" { "test" } else { &key };
        let ids = part_of(ids, target).map_err(named)?;
        if parts.insert(part.to_owned(), ids).is_some() {
            let what = format!("{key}: there are such nodes already; keep one of test and test-dev");
            return Err(DatasetError::invalid(what));
        }
    }
    if parts.len() < 3 {
        let there: Vec<&str> = parts.keys().map(|key| if key == "valid" { "val" } else { key }).collect();
        note_empty(&there, notes);
    }
    let mut part = |name: &str| parts.remove(name).unwrap_or_default();
    let split = Split { train: part("train"), val: part("valid"), test: part("test") };
    split.validate(target.n_nodes).map_err(DatasetError::invalid)?;
    Ok(split)
}

/// Takes the nodes of `test-challenge` out of the test nodes, by their places, and counts them. Those of `test-dev` stay.
fn take_challenge(ids: &mut Vec<NodeId>) -> usize {
    let n_whole = ids.len();
    let mut places = 0_usize..;
    ids.retain(|_| places.next().is_some_and(|place| place % 5 < DEV_OF_FIVE));
    n_whole - ids.len()
}

/// Split of the labelled papers by year.
fn split_by_year(path: &Path, target: &NodeType, classes: &[u32], notes: &mut Notes) -> Result<Split, DatasetError> {
    let array = Array::map(path)?;
    array.expect_1d()?;
    let years = array.into_i64()?;
    if years.len() != target.n_nodes {
        let what = format!("{} years for {} nodes of {}; each needs one", years.len(), target.n_nodes, target.name);
        return Err(DatasetError::invalid(what).at(path));
    }
    let mut split = Split::default();
    for (node, (&year, _)) in years.iter().zip(classes).enumerate().filter(|(_, (_, class))| **class != UNLABELLED) {
        let part = match year - TRAIN_YEAR {
            ..=0 => &mut split.train,
            1 => &mut split.val,
            _ => &mut split.test,
        };
        part.push(node as NodeId);
    }
    let [train, val, test] = split.parts().map(|(_, nodes)| nodes.len());
    let text = format!(
        "split by year, as OGB-LSC's: labelled nodes until {TRAIN_YEAR} train, of {} val, later ones test: {train}, {val} \
         and {test} nodes",
        TRAIN_YEAR + 1
    );
    let counts = [("train", train as u64), ("val", val as u64), ("test", test as u64)];
    notes.make_up("split_by_year", text, &counts);
    Ok(split)
}
