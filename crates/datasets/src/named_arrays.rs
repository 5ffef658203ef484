//! Data sets as named arrays, the way users of `PyG` and `DGL` save them: a folder of `.npy` files, one `.safetensors`
//! file, or one `.npz` archive.
//!
//! ```text
//! edge_index  edge_weight               2 × m (or m × 2): sources and destinations; m
//! indptr  indices  values | data        instead of edge_index: row v lists the in-neighbors of v
//! edge_attr                             m or m × 1: weights, where there are no others
//! num_nodes                             one integer; else features, labels or the largest id tell
//! x | features | feat                   n × width; or, sparse, features_indptr, _indices, _values and _shape
//! y | labels | label                    n classes, negative or NaN where unknown; or n × classes of 0 and 1
//! num_classes                           one integer; else the largest class tells
//! multi_label                           one integer: whether a row of y holds several labels
//! train_mask  val_mask  test_mask       n, or n × splits, true where a node takes part; or, instead,
//! train_idx  val_idx  test_idx          ids (also train_nid …, split0_train …)
//! ```
//! Every other array is named in the notes.

mod graph;
mod source;
mod splits;

use girih_graph_format::file::Array;
use girih_graph_format::{Matrix, NodeId, Notes};
use girih_machine::memory::Free;

pub(crate) use self::graph::{from_edge_index, pairs, unambiguous_pairs};
use self::source::only_one;
pub(crate) use self::source::{ArrayFolder, Arrays, NamedArrays};
pub(crate) use self::splits::{note_empty, read as read_splits};
use crate::sparse::csr_from_arrays;
use crate::splits::drawn_by;
use crate::{Dataset, DatasetError, Features, Labels, LoadOptions, Split, SplitRule, labels, memory};

/// Array whose presence indicates sparse features.
const SPARSE_FEATURES: &str = "features_indptr";
/// Names of arrays of features.
pub(crate) const FEATURES: [&str; 4] = ["x", "features", "feat", SPARSE_FEATURES];
/// Names of arrays of labels.
pub(crate) const LABELS: [&str; 3] = ["y", "labels", "label"];

/// Whether the arrays contain a graph.
pub(crate) fn holds_graph(source: &dyn NamedArrays) -> bool {
    source.has("edge_index") || (source.has("indptr") && source.has("indices"))
}

/// Whether the arrays contain a graph and an array that a bare graph does not have.
pub(crate) fn holds_data_set(source: &dyn NamedArrays) -> bool {
    source.has("edge_index") || holds_graph(source) && FEATURES.iter().chain(&LABELS).any(|name| source.has(name))
}

/// Loads a data set; edges stay as stored unless `options` say otherwise. Labels without a split get one by
/// [`SplitRule::UNSPLIT`], unless an unused array looks like a split.
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
    let mut notes = Notes::default();
    let mut arrays = Arrays::new(source);
    let features = read_features(&mut arrays)?;
    let labels = read_labels(&mut arrays, options, &mut notes)?;
    let n_nodes = match scalar(&mut arrays, "num_nodes")? {
        Some(n) => {
            let rows = (features.as_ref().map(Features::n_rows), labels.as_ref().map(Labels::n_nodes));
            let n_edges = ["edge_index", "indices"].into_iter().filter_map(|name| arrays.look_at(name)).map(|array| {
                let per_edge = if array.shape().len() == 2 { 2 } else { 1 };
                array.values().len() / per_edge
            });
            let n_edges = n_edges.max().unwrap_or(0);
            memory::check_declared_nodes(n, rows, n_edges, Free::now())?;
            Some(n)
        }
        None => features.as_ref().map(Features::n_rows).or(labels.as_ref().map(Labels::n_nodes)),
    };
    let graph = graph::read(&mut arrays, n_nodes, options, &mut notes)?;
    let mut splits = splits::read(&mut arrays, graph.n_rows(), &mut notes)?;
    arrays.note_rest(&mut notes);
    if let Some(labels) = labels.as_ref().filter(|_| splits.is_empty()) {
        splits = drawn_unless_there(&mut arrays, labels, options, &mut notes)?;
    }
    let norm = options.feature_norm.unwrap_or_default();
    let features = features.map(|features| norm.apply(features)).transpose()?;
    Ok(Dataset { notes, feature_norm: norm, ..Dataset::new(name, graph, features, labels, splits)? })
}

/// Number of new nodes, their features, the two ends of their edges, and the weights of these.
pub(crate) type NewArrays = (usize, Option<Matrix>, [Vec<NodeId>; 2], Option<Vec<f32>>);

/// Reads the arrays of new nodes. Others are refused: nothing is left unused without a word.
///
/// # Errors
/// When an array is missing, damaged or not known.
pub(crate) fn read_new_nodes(source: &mut dyn NamedArrays) -> Result<NewArrays, DatasetError> {
    let mut arrays = Arrays::new(source);
    let features = match only_one(&arrays, &["x", "features", "feat"])? {
        Some(name) => Some(arrays.required(name)?.into_matrix()?),
        None => None,
    };
    let n_nodes = match (scalar(&mut arrays, "num_nodes")?, &features) {
        (Some(n), _) => n,
        (None, Some(rows)) => rows.n_rows(),
        (None, None) => {
            return Err(DatasetError::invalid("no array x and no num_nodes; give the features of new nodes"));
        }
    };
    let edges = pairs(arrays.required("edge_index")?)?;
    memory::check_declared_nodes(n_nodes, (features.as_ref().map(Matrix::n_rows), None), edges[0].len(), Free::now())?;
    let weights = arrays.take("edge_weight")?.map(graph::one_column).transpose()?;
    if let Some(name) = arrays.unused().next() {
        return Err(DatasetError::invalid(format!(
            "array {name} is not known; new nodes have x (or num_nodes), edge_index and edge_weight"
        )));
    }
    Ok((n_nodes, features, edges, weights))
}

/// Draws splits for labels that come without any; draws none if an unknown array may be one.
pub(crate) fn drawn_unless_there(
    arrays: &mut Arrays<'_>,
    labels: &Labels,
    options: &LoadOptions,
    notes: &mut Notes,
) -> Result<Vec<Split>, DatasetError> {
    if options.random_split {
        return Ok(Vec::new());
    }
    match arrays.find_split(labels.n_nodes())? {
        None => Ok(drawn_by(SplitRule::UNSPLIT, labels, options, notes)),
        Some(name) => {
            notes.warn(format!(
                "no split is drawn: {name} looks like one, but not under a name that is read; name its parts \
                 train_mask, val_mask and test_mask, or train_idx, val_idx and test_idx, or give --split random"
            ));
            Ok(Vec::new())
        }
    }
}

/// Value of an array of one element.
pub(crate) fn scalar(arrays: &mut Arrays<'_>, name: &str) -> Result<Option<usize>, DatasetError> {
    let Some(array) = arrays.take(name)? else { return Ok(None) };
    let origin = array.origin().to_owned();
    match array.into_ids()?[..] {
        [value] => Ok(Some(value as usize)),
        ref values => Err(DatasetError::invalid(format!("{} values; expected one integer", values.len())).at(&origin)),
    }
}

/// Reads the features, dense or sparse.
pub(crate) fn read_features(arrays: &mut Arrays<'_>) -> Result<Option<Features>, DatasetError> {
    let Some(name) = only_one(arrays, &FEATURES)? else { return Ok(None) };
    if name == SPARSE_FEATURES {
        let shape = arrays.required("features_shape")?;
        let origin = shape.origin().to_owned();
        let [n_rows, n_cols] = shape.into_ids()?[..] else {
            return Err(DatasetError::invalid("expected two values: rows and columns").at(&origin));
        };
        let values = arrays.take("features_values")?.map(Array::into_f32).transpose()?;
        let csr = csr_from_arrays(
            n_rows as usize,
            n_cols as usize,
            &arrays.required(SPARSE_FEATURES)?.into_i64()?,
            &arrays.required("features_indices")?.into_i64()?,
            values.map(|values| values.into_vec()),
        );
        return Ok(Some(Features::Sparse(csr.map_err(|e| e.at(&origin))?)));
    }
    Ok(Some(Features::Dense(arrays.required(name)?.into_matrix()?)))
}

/// Reads the labels, as the options say.
pub(crate) fn read_labels(
    arrays: &mut Arrays<'_>,
    options: &LoadOptions,
    notes: &mut Notes,
) -> Result<Option<Labels>, DatasetError> {
    let Some(name) = only_one(arrays, &LABELS)? else { return Ok(None) };
    let array = arrays.required(name)?;
    let declared = scalar(arrays, "num_classes")?;
    let multi_label = options.multi_label.or(scalar(arrays, "multi_label")?.map(|several| several != 0));
    let options = &LoadOptions { multi_label, ..options.clone() };
    labels::of_declared(array, declared, options, notes).map(Some)
}
