//! Raw folders of the Open Graph Benchmark (Hu et al., NeurIPS 2020), for one graph and properties of its nodes.
//!
//! ```text
//! raw/edge.csv.gz             source, destination            raw/data.npz        instead: edge_index, node_feat,
//! raw/num-node-list.csv.gz    nodes                                              num_nodes_list, num_edges_list
//! raw/num-edge-list.csv.gz    edges                          raw/node-label.npz  node_label
//! raw/node-feat.csv.gz        a row of numbers a node; may be missing
//! raw/node-label.csv.gz       a class a node, empty or nan where unknown; or a row of 0 and 1; may be missing
//! split/NAME/{train,valid,test}.csv.gz                       ids, one a line; one split set a NAME
//! ```
//! Files `.csv` may be packed as `.gz` or not. Edges are stored in both directions, as the benchmark's examples do with
//! every graph. Splits as PyTorch files (`.pt`) and features of edges are left out with a warning.

use std::path::{Path, PathBuf};

use girih_graph_format::file::{Array, EdgeListOptions, Missing, Npz, read_csv, read_edge_list, read_integers};
use girih_graph_format::{Csr, Duplicates, MAX_NODES, Matrix, NodeId};
use tracing::warn;

use crate::{Dataset, DatasetError, Features, Labels, LoadOptions, Split, SplitRule, arrays, memory, named_arrays};

/// The folder with the raw files of a data set whose root, or raw folder, is `path`.
pub(crate) fn find_raw(path: &Path) -> Option<PathBuf> {
    let is_text = |dir: &Path| table(dir, "edge").is_some() && table(dir, "num-node-list").is_some();
    let is_binary = |dir: &Path| {
        let npz = Npz::open(&dir.join("data.npz"));
        npz.is_ok_and(|npz| npz.contains("edge_index") && npz.contains("num_nodes_list"))
    };
    [path.to_owned(), path.join("raw")].into_iter().find(|dir| is_text(dir) || is_binary(dir))
}

/// Loads a data set from its raw folder and the splits beside it. Labels without a split get one by
/// [`SplitRule::UNSPLIT`], with a warning.
///
/// # Errors
/// When files are missing, damaged or contradict each other; each error names its file.
pub(crate) fn load(raw: &Path, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    let raw = &std::path::absolute(raw).map_err(|e| DatasetError::from(e).at(raw))?;
    let root = if raw.ends_with("raw") { raw.parent().unwrap_or(raw) } else { raw };
    let name = root.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let Parts { graph, features, labels } =
        if table(raw, "edge").is_some() { read_text(raw)? } else { read_binary(raw)? };
    let graph = if options.symmetrize.unwrap_or(true) { graph.symmetrized() } else { graph };
    let mut splits = read_splits(&root.join("split"))?;
    if let Some(labels) = labels.as_ref().filter(|_| splits.is_empty()) {
        warn!("{}: no split of nodes is shipped; 60 % train, 20 % validate, 20 % test", root.display());
        splits = SplitRule::UNSPLIT.draw_many(labels, options.seed, options.n_drawn())?;
    }
    let norm = options.feature_norm.unwrap_or_default();
    let features = features.map(|features| norm.apply(Features::Dense(features))).transpose();
    let dataset = features.and_then(|features| Dataset::new(name, graph, features, labels, splits));
    dataset.map_err(|e| e.at(root))
}

/// What the raw folder holds.
struct Parts {
    graph: Csr,
    features: Option<Matrix>,
    labels: Option<Labels>,
}

/// The file `name.csv.gz` or `name.csv`, if there is one.
fn table(dir: &Path, name: &str) -> Option<PathBuf> {
    ["csv.gz", "csv"].iter().map(|extension| dir.join(format!("{name}.{extension}"))).find(|path| path.is_file())
}

fn read_text(raw: &Path) -> Result<Parts, DatasetError> {
    let required = |name: &str| {
        table(raw, name).ok_or_else(|| DatasetError::invalid(format!("no {name}.csv.gz beside edge.csv.gz")).at(raw))
    };
    let count = |name: &str| {
        let path = required(name)?;
        only_graph(&read_integers(&path)?).map_err(|e| e.at(&path))
    };
    let n_nodes = count("num-node-list")?;
    let path = required("edge")?;
    let options = EdgeListOptions { n_nodes: Some(n_nodes as usize), ..EdgeListOptions::default() };
    let edges = read_edge_list(&path, &options)?.edges;
    if edges.values().is_some() {
        return Err(DatasetError::invalid("three columns; expected source and destination").at(&path));
    }
    check_edges(edges.len(), count("num-edge-list")?).map_err(|e| e.at(&path))?;
    if table(raw, "edge-feat").is_some() {
        warn!("{}: features of edges (edge-feat) are left out", raw.display());
    }
    let features = table(raw, "node-feat").map(|path| read_csv(&path, Missing::Refuse)).transpose()?;
    let labels = table(raw, "node-label")
        .map(|path| arrays::labels_of_table(read_csv(&path, Missing::Nan)?, &path))
        .transpose()?;
    check_nodes(n_nodes, features.as_ref(), labels.as_ref()).map_err(|e| e.at(raw))?;
    Ok(Parts { graph: edges.to_csr(Duplicates::Merge)?, features, labels })
}

fn read_binary(raw: &Path) -> Result<Parts, DatasetError> {
    let path = raw.join("data.npz");
    let mut data = Npz::open(&path)?;
    let n_nodes = only_graph(&data.array("num_nodes_list")?.into_offsets()?).map_err(|e| e.at(&path))?;
    let edge_index = data.array("edge_index")?;
    if let Some(declared) = data.try_array("num_edges_list")? {
        let declared = only_graph(&declared.into_offsets()?).map_err(|e| e.at(&path))?;
        check_edges(edge_index.values().len() / 2, declared).map_err(|e| e.at(edge_index.origin()))?;
    }
    let features = data.try_array("node_feat")?.map(Array::into_matrix).transpose()?;
    if data.try_array("edge_feat")?.is_some_and(|array| !array.values().is_empty()) {
        warn!("{}: features of edges (edge_feat) are left out", path.display());
    }
    let label_path = raw.join("node-label.npz");
    let labels = if label_path.is_file() {
        Some(arrays::labels_or_nan(Npz::open(&label_path)?.array("node_label")?)?)
    } else {
        None
    };
    check_nodes(n_nodes, features.as_ref(), labels.as_ref()).map_err(|e| e.at(&path))?;
    let graph = named_arrays::from_edge_index(edge_index, None, Some(n_nodes as usize))?;
    Ok(Parts { graph, features, labels })
}

fn check_nodes(n_nodes: u64, features: Option<&Matrix>, labels: Option<&Labels>) -> Result<(), DatasetError> {
    let rows = (features.map(Matrix::n_rows), labels.map(Labels::n_nodes));
    memory::check_declared_nodes(n_nodes as usize, rows, memory::available_bytes())
}

/// The only value of a list with one value a graph.
fn only_graph(counts: &[u64]) -> Result<u64, DatasetError> {
    match *counts {
        [n] => Ok(n),
        _ => Err(DatasetError::invalid(format!("{} graphs; a data set of one graph is expected", counts.len()))),
    }
}

fn check_edges(n_found: usize, n_declared: u64) -> Result<(), DatasetError> {
    if n_found as u64 == n_declared {
        return Ok(());
    }
    Err(DatasetError::corrupt(format!("{n_declared} edges are declared, but the file holds {n_found}")))
}

/// The split sets below `split`, in the order of their names; none when there is no such folder.
fn read_splits(split: &Path) -> Result<Vec<Split>, DatasetError> {
    let entries = std::fs::read_dir(split).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders.iter().filter_map(|folder| read_split(folder).transpose()).collect()
}

fn read_split(folder: &Path) -> Result<Option<Split>, DatasetError> {
    let parts = ["train", "valid", "test"].map(|part| table(folder, part));
    match parts {
        [Some(train), Some(val), Some(test)] => {
            Ok(Some(Split { train: read_ids(&train)?, val: read_ids(&val)?, test: read_ids(&test)? }))
        }
        [None, None, None] => {
            warn!("{}: no train, valid and test as .csv.gz; splits as PyTorch files are left out", folder.display());
            Ok(None)
        }
        _ => Err(DatasetError::invalid("expected train.csv.gz, valid.csv.gz and test.csv.gz").at(folder)),
    }
}

/// Ids one a line, ascending.
fn read_ids(path: &Path) -> Result<Vec<NodeId>, DatasetError> {
    let ids = read_integers(path)?;
    if let Some(at) = ids.iter().position(|&id| id >= MAX_NODES as u64) {
        return Err(DatasetError::invalid(format!("line {}: node {} does not exist", at + 1, ids[at])).at(path));
    }
    let mut ids: Vec<NodeId> = ids.into_iter().map(|id| id as NodeId).collect();
    ids.sort_unstable();
    Ok(ids)
}
