//! Raw folders of the Open Graph Benchmark (Hu et al., NeurIPS 2020), for one graph and properties of its nodes.
//!
//! ```text
//! raw/edge.csv.gz             source, destination            raw/data.npz        instead: edge_index, node_feat,
//! raw/num-node-list.csv.gz    nodes                                              num_nodes_list, num_edges_list
//! raw/num-edge-list.csv.gz    edges                          raw/node-label.npz  node_label
//! raw/edge_weight.csv.gz      a weight an edge; may be missing
//! raw/node-feat.csv.gz        a row of numbers a node; may be missing
//! raw/node-label.csv.gz       a class a node, empty or nan where unknown; or a row of 0 and 1; may be missing
//! split/NAME/{train,valid,test}.csv.gz                       ids, one a line; one split set a NAME
//! split/NAME/{train,valid,test}.pt, split_dict.pt            instead: ids that torch.save has written, or edges
//! ```
//! Files `.csv` may be packed as `.gz` or not. Edges are stored in both directions, as the benchmark's examples do with
//! every graph. Every other file is named in the notes.

mod benchmark;
mod edge_splits;
mod splits;
pub(crate) mod typed;

use std::path::{Path, PathBuf};

use girih_graph_format::file::{
    Array, EdgeList, EdgeListOptions, Missing, Npz, read_csv, read_edge_list, read_integers,
};
use girih_graph_format::{Coo, Csr, Duplicates, Matrix, Notes};
use girih_machine::memory::Free;

pub use self::benchmark::{Benchmark, BenchmarkMetric};
use crate::edges::{directed_as, to_graph};
use crate::inventory::Inventory;
use crate::named_arrays;
use crate::splits::drawn_by;
use crate::{Dataset, DatasetError, FEATURE_STORE, Features, Labels, LoadOptions, SplitRule, labels, memory};

/// Treatment of parallel edges in the benchmark's examples: `to_undirected` and `to_symmetric` store each pair once.
const DUPLICATES: Duplicates = Duplicates::Merge;

/// Files of the text form, without their extensions.
const TABLES: [&str; 6] = ["edge", "num-node-list", "num-edge-list", "edge_weight", "node-feat", "node-label"];

/// Folder of the raw files of a data set, given its root or the raw folder as `path`.
pub(crate) fn find_raw(path: &Path) -> Option<PathBuf> {
    let has = |dir: &Path, names: &[&str]| names.iter().any(|name| table(dir, name).is_some());
    // A list of edges alone does not identify a folder of the benchmark.
    let is_text =
        |dir: &Path| has(dir, &["edge"]) && has(dir, &["num-node-list", "num-edge-list", "node-feat", "node-label"]);
    let is_binary = |dir: &Path| {
        let npz = Npz::open(&dir.join("data.npz"));
        npz.is_ok_and(|npz| npz.contains("edge_index") && npz.contains("num_nodes_list"))
    };
    [path.to_owned(), path.join("raw")].into_iter().find(|dir| is_text(dir) || is_binary(dir))
}

/// Loads a data set from its raw folder and the split folder next to it. Labels without a split get one by
/// [`SplitRule::UNSPLIT`], unless there is a split that cannot be read.
///
/// # Errors
/// When files are missing, damaged or contradict each other; each error names its file.
pub(crate) fn load(raw: &Path, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    let Home { raw, root, name } = &Home::of(raw)?;
    let mut notes = Notes::default();
    let is_text = table(raw, "edge").is_some();
    let parts = if is_text { read_text(raw, options, &mut notes)? } else { read_binary(raw, options, &mut notes)? };
    let Parts { graph, features, labels } = parts;
    note_files(root, raw, is_text, &mut notes)?;
    let graph = directed_as(graph, options, true, &mut notes);
    let found = splits::read(&root.join("split"), &graph, &mut notes)?;
    let splits = match &labels {
        Some(labels) if found.splits.is_empty() && !found.is_there => {
            drawn_by(SplitRule::UNSPLIT, labels, options, &mut notes)
        }
        _ => found.splits,
    };
    let norm = options.feature_norm.unwrap_or_default();
    let features = features.map(|features| norm.apply(Features::Dense(features))).transpose();
    let dataset = features.and_then(|features| Dataset::new(name, graph, features, labels, splits));
    let dataset = dataset.map_err(|e| e.at(root))?;
    Ok(Dataset { notes, feature_norm: norm, edge_split: found.edges, ..dataset })
}

/// Folders of a data set, and its name.
struct Home {
    raw: PathBuf,
    /// Folder above `raw`, if that has this name; else the same folder.
    root: PathBuf,
    name: String,
}

impl Home {
    fn of(raw: &Path) -> Result<Self, DatasetError> {
        let raw = std::path::absolute(raw).map_err(|e| DatasetError::from(e).at(raw))?;
        let above = raw.parent().filter(|_| raw.ends_with("raw"));
        let root = above.unwrap_or(&raw).to_owned();
        let name = root.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        Ok(Self { raw, root, name })
    }
}

/// Notes the files of both folders that the loader does not read.
fn note_files(root: &Path, raw: &Path, is_text: bool, notes: &mut Notes) -> Result<(), DatasetError> {
    let is_used = |name: &str| match name.strip_suffix(".csv.gz").or_else(|| name.strip_suffix(".csv")) {
        Some(stem) => is_text && TABLES.contains(&stem) && table(raw, stem).is_some_and(|path| path.ends_with(name)),
        None => name == FEATURE_STORE || (!is_text && (name == "data.npz" || name == "node-label.npz")),
    };
    let mut files = Inventory::of_folder(raw)?;
    files.take_all(is_used);
    if root != raw {
        files.note_below("raw", notes);
        files = Inventory::of_folder(root)?;
        files.take("raw/");
    }
    files.take("split/");
    files.note(notes);
    Ok(())
}

/// Contents of the raw folder.
struct Parts {
    graph: Csr,
    features: Option<Matrix>,
    labels: Option<Labels>,
}

/// Path of `name.csv.gz` or `name.csv`, if one exists.
fn table(dir: &Path, name: &str) -> Option<PathBuf> {
    ["csv.gz", "csv"].iter().map(|extension| dir.join(format!("{name}.{extension}"))).find(|path| path.is_file())
}

fn read_text(raw: &Path, options: &LoadOptions, notes: &mut Notes) -> Result<Parts, DatasetError> {
    let missing: Vec<&str> = TABLES[..3].iter().copied().filter(|name| table(raw, name).is_none()).collect();
    if !missing.is_empty() {
        let files = missing.iter().map(|name| format!("{name}.csv.gz")).collect::<Vec<_>>().join(" and ");
        return Err(DatasetError::invalid(format!(
            "no {files} beside edge.csv.gz; each is one line with the number of nodes or edges, as in the benchmark's \
             raw folders"
        ))
        .at(raw));
    }
    let count = |name: &str, notes: &mut Notes| {
        let path = table(raw, name).unwrap_or_default();
        only_graph(&read_integers(&path, notes)?).map_err(|e| e.at(&path))
    };
    let n_nodes = count("num-node-list", notes)?;
    let path = table(raw, "edge").unwrap_or_default();
    let read = EdgeListOptions { n_nodes: Some(n_nodes as usize), ..EdgeListOptions::default() };
    let EdgeList { edges, notes: of_edges, .. } = read_edge_list(&path, &read)?;
    notes.append(of_edges);
    if edges.values().is_some() {
        let message = "three columns; expected source and destination, and weights in edge_weight.csv.gz";
        return Err(DatasetError::invalid(message).at(&path));
    }
    check_edges(edges.len(), count("num-edge-list", notes)?).map_err(|e| e.at(&path))?;
    let edges = with_weights(edges, table(raw, "edge_weight"), notes)?;
    let features = table(raw, "node-feat").map(|path| read_csv(&path, Missing::Refuse, notes)).transpose()?;
    let labels = table(raw, "node-label")
        .map(|path| {
            let matrix = read_csv(&path, Missing::Nan, notes)?;
            labels::of_matrix(matrix, options, notes).map_err(|e| e.at(&path))
        })
        .transpose()?;
    check_nodes(n_nodes, features.as_ref(), labels.as_ref(), edges.len()).map_err(|e| e.at(raw))?;
    Ok(Parts { graph: to_graph(&edges, options, DUPLICATES, notes).map_err(|e| e.at(&path))?, features, labels })
}

/// Adds the weights of a file, one per line, to the edges, if the file exists.
fn with_weights(edges: Coo, path: Option<PathBuf>, notes: &mut Notes) -> Result<Coo, DatasetError> {
    let Some(path) = path else { return Ok(edges) };
    let table = read_csv(&path, Missing::Refuse, notes)?;
    if table.n_cols() != 1 || table.n_rows() != edges.len() {
        let (rows, columns) = (table.n_rows(), table.n_cols());
        let message = format!("{rows} lines of {columns} columns for {} edges; expected a weight an edge", edges.len());
        return Err(DatasetError::invalid(message).at(&path));
    }
    let (n_rows, n_cols) = (edges.n_rows(), edges.n_cols());
    let (rows, cols) = (edges.rows().to_vec(), edges.cols().to_vec());
    Coo::new(n_rows, n_cols, rows, cols, Some(table.data().to_vec())).map_err(|e| DatasetError::from(e).at(&path))
}

fn read_binary(raw: &Path, options: &LoadOptions, notes: &mut Notes) -> Result<Parts, DatasetError> {
    const MEMBERS: [&str; 4] = ["edge_index.npy", "node_feat.npy", "num_nodes_list.npy", "num_edges_list.npy"];
    let path = raw.join("data.npz");
    let mut data = Npz::open(&path)?;
    let mut members = Inventory::of_names(data.members().iter().cloned());
    members.take_all(|name| MEMBERS.contains(&name));
    let n_nodes = only_graph(&data.array("num_nodes_list")?.into_offsets()?).map_err(|e| e.at(&path))?;
    let edge_index = data.array("edge_index")?;
    if let Some(declared) = data.try_array("num_edges_list")? {
        let declared = only_graph(&declared.into_offsets()?).map_err(|e| e.at(&path))?;
        check_edges(edge_index.values().len() / 2, declared).map_err(|e| e.at(edge_index.origin()))?;
    }
    let weights = data.try_array("edge_weight")?.map(Array::into_f32).transpose()?;
    members.take("edge_weight.npy");
    let features = data.try_array("node_feat")?.map(Array::into_matrix).transpose()?;
    members.note_below("raw/data.npz", notes);
    let label_path = raw.join("node-label.npz");
    let labels = match label_path.is_file() {
        true => Some(labels::of_array(Npz::open(&label_path)?.array("node_label")?, None, options, notes)?),
        false => None,
    };
    let n_edges = edge_index.values().len() / 2;
    check_nodes(n_nodes, features.as_ref(), labels.as_ref(), n_edges).map_err(|e| e.at(&path))?;
    let n_nodes = Some(n_nodes as usize);
    let weights = weights.map(|weights| weights.into_vec());
    let graph = named_arrays::from_edge_index(edge_index, weights, n_nodes, DUPLICATES, options, notes)?;
    Ok(Parts { graph, features, labels })
}

fn check_nodes(
    n_nodes: u64,
    features: Option<&Matrix>,
    labels: Option<&Labels>,
    n_edges: usize,
) -> Result<(), DatasetError> {
    let rows = (features.map(Matrix::n_rows), labels.map(Labels::n_nodes));
    memory::check_declared_nodes(n_nodes as usize, rows, n_edges, Free::now())
}

/// Value of a list that has one value per graph; refuses several graphs.
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
