//! Data sets as named arrays, the way users of `PyG` and `DGL` save them: a folder of `.npy` files, one `.safetensors`
//! file, or one `.npz` archive.
//!
//! ```text
//! edge_index  edge_weight               2 × m (or m × 2): sources and destinations; m
//! indptr  indices  values               instead of edge_index: row v lists the in-neighbours of v
//! num_nodes                             one integer; else features, labels or the largest id tell
//! x | features | feat                   n × width; or, sparse, features_indptr, _indices, _values and _shape
//! y | labels | label                    n classes, negative or NaN where unknown; or n × classes of 0 and 1
//! num_classes                           one integer; else the largest class tells
//! train_mask  val_mask  test_mask       n, or n × splits, true where a node takes part; or, instead,
//! train_idx  val_idx  test_idx          ids
//! ```

use std::path::{Path, PathBuf};

use girih_graph_format::file::{Array, Npz, Tensors};
use girih_graph_format::{Coo, Csr, Duplicates, FormatError, NodeId};

use crate::sparse::csr_from_arrays;
use crate::{Dataset, DatasetError, Features, Labels, LoadOptions, Split, SplitRule, arrays, memory};

/// What sparse features are told by.
const SPARSE_FEATURES: &str = "features_indptr";
const FEATURES: [&str; 4] = ["x", "features", "feat", SPARSE_FEATURES];
const LABELS: [&str; 3] = ["y", "labels", "label"];

/// Arrays by name, wherever they lie.
pub(crate) trait NamedArrays {
    /// The file or folder that errors name.
    fn origin(&self) -> &Path;
    /// Whether there is an array of this name.
    fn has(&self, name: &str) -> bool;
    /// The array of this name, if there is one.
    fn find(&mut self, name: &str) -> Result<Option<Array>, FormatError>;
}

/// A folder of `.npy` files.
pub(crate) struct ArrayFolder(pub(crate) PathBuf);

impl ArrayFolder {
    fn file(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.npy"))
    }
}

impl NamedArrays for ArrayFolder {
    fn origin(&self) -> &Path {
        &self.0
    }

    fn has(&self, name: &str) -> bool {
        self.file(name).is_file()
    }

    fn find(&mut self, name: &str) -> Result<Option<Array>, FormatError> {
        if self.has(name) { Array::map(&self.file(name)).map(Some) } else { Ok(None) }
    }
}

impl NamedArrays for Tensors {
    fn origin(&self) -> &Path {
        self.origin()
    }

    fn has(&self, name: &str) -> bool {
        self.names().iter().any(|known| known == name)
    }

    fn find(&mut self, name: &str) -> Result<Option<Array>, FormatError> {
        self.try_array(name)
    }
}

impl NamedArrays for Npz {
    fn origin(&self) -> &Path {
        self.origin()
    }

    fn has(&self, name: &str) -> bool {
        self.contains(name)
    }

    fn find(&mut self, name: &str) -> Result<Option<Array>, FormatError> {
        self.try_array(name)
    }
}

/// Whether there is a graph among the arrays.
pub(crate) fn holds_graph(source: &dyn NamedArrays) -> bool {
    source.has("edge_index") || (source.has("indptr") && source.has("indices"))
}

/// Whether there is a graph among the arrays, and something that a bare graph has not.
pub(crate) fn holds_data_set(source: &dyn NamedArrays) -> bool {
    source.has("edge_index") || holds_graph(source) && FEATURES.iter().chain(&LABELS).any(|name| source.has(name))
}

/// Loads a data set; edges stay as they are stored unless `options` say otherwise. Labels without masks and ids get
/// splits by [`SplitRule::UNSPLIT`].
///
/// # Errors
/// When there is no graph, or arrays are damaged or contradict each other.
pub(crate) fn load(source: &mut dyn NamedArrays, name: &str, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    let origin = source.origin().to_owned();
    read(source, name, options).map_err(|e| e.at(&origin))
}

fn read(source: &mut dyn NamedArrays, name: &str, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    if !holds_graph(source) {
        return Err(DatasetError::invalid("no array edge_index, and no pair indptr and indices; a graph is expected"));
    }
    let features = read_features(source)?;
    let labels = read_labels(source)?;
    let n_nodes = match scalar(source, "num_nodes")? {
        Some(n) => {
            let rows = (features.as_ref().map(Features::n_rows), labels.as_ref().map(Labels::n_nodes));
            memory::check_declared_nodes(n, rows, memory::available_bytes())?;
            Some(n)
        }
        None => features.as_ref().map(Features::n_rows).or(labels.as_ref().map(Labels::n_nodes)),
    };
    let graph = read_graph(source, n_nodes)?;
    let graph = if options.symmetrize.unwrap_or(false) && graph.is_square() { graph.symmetrized() } else { graph };
    let mut splits = read_splits(source, graph.n_rows())?;
    if let Some(labels) = labels.as_ref().filter(|_| splits.is_empty()) {
        splits = SplitRule::UNSPLIT.draw_many(labels, options.seed, options.n_drawn())?;
    }
    let norm = options.feature_norm.unwrap_or_default();
    let features = features.map(|features| norm.apply(features)).transpose()?;
    Dataset::new(name, graph, features, labels, splits)
}

/// Which of several names for the same thing there is an array of.
fn only_one<'n>(source: &dyn NamedArrays, names: &[&'n str]) -> Result<Option<&'n str>, DatasetError> {
    let mut there = names.iter().copied().filter(|name| source.has(name));
    match (there.next(), there.next()) {
        (Some(one), Some(other)) => Err(DatasetError::invalid(format!(
            "arrays {one} and {other} say the same thing, perhaps not alike; remove or rename the one that is not meant"
        ))),
        (found, _) => Ok(found),
    }
}

fn required(source: &mut dyn NamedArrays, name: &str) -> Result<Array, DatasetError> {
    let found = source.find(name)?;
    found.ok_or_else(|| DatasetError::invalid(format!("no array {name}, which the others need")))
}

/// The only value of an array.
fn scalar(source: &mut dyn NamedArrays, name: &str) -> Result<Option<usize>, DatasetError> {
    let Some(array) = source.find(name)? else { return Ok(None) };
    let origin = array.origin().to_owned();
    match array.into_ids()?[..] {
        [value] => Ok(Some(value as usize)),
        ref values => Err(DatasetError::invalid(format!("{} values; expected one integer", values.len())).at(&origin)),
    }
}

fn read_features(source: &mut dyn NamedArrays) -> Result<Option<Features>, DatasetError> {
    let Some(name) = only_one(source, &FEATURES)? else { return Ok(None) };
    if name == SPARSE_FEATURES {
        let shape = required(source, "features_shape")?;
        let origin = shape.origin().to_owned();
        let [n_rows, n_cols] = shape.into_ids()?[..] else {
            return Err(DatasetError::invalid("expected two values: rows and columns").at(&origin));
        };
        let values = source.find("features_values")?.map(Array::into_f32).transpose()?;
        let csr = csr_from_arrays(
            n_rows as usize,
            n_cols as usize,
            &required(source, SPARSE_FEATURES)?.into_i64()?,
            &required(source, "features_indices")?.into_i64()?,
            values.map(|values| values.into_vec()),
        );
        return Ok(Some(Features::Sparse(csr.map_err(|e| e.at(&origin))?)));
    }
    Ok(Some(Features::Dense(required(source, name)?.into_matrix()?)))
}

fn read_labels(source: &mut dyn NamedArrays) -> Result<Option<Labels>, DatasetError> {
    let Some(name) = only_one(source, &LABELS)? else { return Ok(None) };
    let labels = arrays::labels_or_nan(required(source, name)?)?;
    Ok(Some(match (labels, scalar(source, "num_classes")?) {
        (Labels::Single { classes, .. }, Some(n_classes)) => Labels::Single { n_classes, classes },
        (labels, _) => labels,
    }))
}

fn read_graph(source: &mut dyn NamedArrays, n_nodes: Option<usize>) -> Result<Csr, DatasetError> {
    only_one(source, &["edge_index", "indptr"])?;
    if let Some(array) = source.find("edge_index")? {
        let weights = source.find("edge_weight")?.map(Array::into_f32).transpose()?;
        return from_edge_index(array, weights.map(|w| w.into_vec()), n_nodes);
    }
    let indptr = required(source, "indptr")?.into_i64()?;
    let indices = required(source, "indices")?;
    let origin = indices.origin().to_owned();
    let values = source.find("values")?.map(Array::into_f32).transpose()?;
    let n = indptr.len().saturating_sub(1);
    let graph = csr_from_arrays(n, n, &indptr, &indices.into_i64()?, values.map(|v| v.into_vec()));
    graph.map_err(|e| e.at(&origin))
}

/// A graph from pairs of ids: two rows, sources and destinations, or a pair a row.
pub(crate) fn from_edge_index(
    array: Array,
    weights: Option<Vec<f32>>,
    n_nodes: Option<usize>,
) -> Result<Csr, DatasetError> {
    let origin = array.origin().to_owned();
    let shape = array.expect_2d()?;
    let ids = array.into_ids()?;
    let (sources, destinations): (Vec<NodeId>, Vec<NodeId>) = match shape {
        (2, m) => (ids[..m].to_vec(), ids[m..].to_vec()),
        (_, 2) => ids.as_chunks::<2>().0.iter().map(|&[u, v]| (u, v)).unzip(),
        (rows, columns) => {
            let message = format!("edges of shape {rows} × {columns}; expected two rows, or two columns");
            return Err(DatasetError::invalid(message).at(&origin));
        }
    };
    let edges = Coo::from_edges(sources, destinations, weights, n_nodes);
    edges.and_then(|edges| edges.to_csr(Duplicates::Sum)).map_err(|e| DatasetError::from(e).at(&origin))
}

/// The split sets of masks or ids; none when there are neither.
fn read_splits(source: &mut dyn NamedArrays, n_nodes: usize) -> Result<Vec<Split>, DatasetError> {
    let train = read_part(source, &["train"], n_nodes)?;
    let val = read_part(source, &["val", "valid"], n_nodes)?;
    let test = read_part(source, &["test"], n_nodes)?;
    let (train, val, test) = match (train, val, test) {
        (Some(train), Some(val), Some(test)) => (train, val, test),
        (None, None, None) => return Ok(Vec::new()),
        (train, val, _) => {
            let missing = if train.is_none() {
                "train"
            } else if val.is_none() {
                "val"
            } else {
                "test"
            };
            return Err(DatasetError::invalid(format!(
                "no {missing}_mask or {missing}_idx beside those of other parts"
            )));
        }
    };
    let n_splits = train.len().max(val.len()).max(test.len());
    for (part, sets) in [("train", &train), ("val", &val), ("test", &test)] {
        if sets.len() != n_splits && sets.len() != 1 {
            let message = format!("{} sets of {part} nodes, but {n_splits} of another part", sets.len());
            return Err(DatasetError::invalid(message));
        }
    }
    // A part with one set, such as WikiCS's test nodes, belongs to every split.
    let set = |sets: &[Vec<NodeId>], i: usize| sets[i % sets.len()].clone();
    Ok((0..n_splits).map(|i| Split { train: set(&train, i), val: set(&val, i), test: set(&test, i) }).collect())
}

/// The nodes of a part, for each split set.
fn read_part(
    source: &mut dyn NamedArrays,
    names: &[&str],
    n_nodes: usize,
) -> Result<Option<Vec<Vec<NodeId>>>, DatasetError> {
    let masks: Vec<String> = names.iter().map(|name| format!("{name}_mask")).collect();
    let lists: Vec<String> = names.iter().map(|name| format!("{name}_idx")).collect();
    let known: Vec<&str> = masks.iter().chain(&lists).map(String::as_str).collect();
    let Some(name) = only_one(source, &known)? else { return Ok(None) };
    let array = required(source, name)?;
    if masks.iter().any(|mask| mask == name) {
        return nodes_of_masks(array, n_nodes).map(Some);
    }
    let mut ids = array.into_ids()?.into_vec();
    ids.sort_unstable();
    Ok(Some(vec![ids]))
}

/// The nodes of one mask, or of every column of several.
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
