//! The graph among named arrays, and its weights.

use girih_graph_format::file::Array;
use girih_graph_format::{Coo, Csr, Duplicates, NodeId, Notes};

use super::source::{Arrays, only_one};
use crate::edges::{directed_as, to_graph};
use crate::sparse::coo_from_arrays;
use crate::{DatasetError, LoadOptions};

/// Treatment of parallel edges in `PyG` and `DGL`: each of them sends a message.
const DUPLICATES: Duplicates = Duplicates::Keep;

/// Reads the graph, of `n_nodes` nodes if that number is known already.
pub(super) fn read(
    arrays: &mut Arrays<'_>,
    n_nodes: Option<usize>,
    options: &LoadOptions,
    notes: &mut Notes,
) -> Result<Csr, DatasetError> {
    let by = only_one(arrays, &["edge_index", "indptr"])?;
    let graph = if by == Some("edge_index") {
        let edge_index = arrays.required("edge_index")?;
        let weights = read_weights(arrays, &["edge_weight"], notes)?;
        from_edge_index(edge_index, weights, n_nodes, DUPLICATES, options, notes)?
    } else {
        let indptr = arrays.required("indptr")?.into_i64()?;
        let indices = arrays.required("indices")?;
        let origin = indices.origin().to_owned();
        let weights = read_weights(arrays, &["values", "data", "edge_weight"], notes)?;
        let n = indptr.len().saturating_sub(1);
        let edges = coo_from_arrays(n, n, &indptr, &indices.into_i64()?, weights);
        let graph = edges.and_then(|edges| Ok(to_graph(&edges, options, DUPLICATES, notes)?));
        let graph = graph.map_err(|e| e.at(&origin))?;
        // SciPy stores the values of every matrix, also where all are one.
        if arrays.has("data") { graph.without_unit_weights() } else { graph }
    };
    Ok(directed_as(graph, options, false, notes))
}

/// Weights of edges: the array of one of `names`, or else `edge_attr` if it has one value per edge.
fn read_weights(arrays: &mut Arrays<'_>, names: &[&str], notes: &mut Notes) -> Result<Option<Vec<f32>>, DatasetError> {
    if let Some(name) = only_one(arrays, names)? {
        if arrays.has("edge_attr") {
            arrays.leave("edge_attr", format!("edge features; {name} has the weights"));
        }
        return one_column(arrays.required(name)?).map(Some);
    }
    let Some(array) = arrays.look_at("edge_attr") else {
        // A damaged array is refused when it is read by name.
        return arrays.take("edge_attr")?.map(one_column).transpose();
    };
    match *array.shape() {
        [_] | [_, 1] => {
            notes.make_up("weights", "weights of edges are edge_attr, which has one column", &[]);
            arrays.mark_used("edge_attr");
            one_column(array).map(Some)
        }
        ref shape => {
            let n_columns: usize = shape.iter().skip(1).product();
            arrays.leave("edge_attr", format!("edge features ({n_columns} columns)"));
            Ok(None)
        }
    }
}

/// Weights from an array of one value per edge: `m`, or `m × 1`.
pub(super) fn one_column(array: Array) -> Result<Vec<f32>, DatasetError> {
    match *array.shape() {
        [_] | [_, 1] => Ok(array.into_f32()?.into_vec()),
        ref shape => {
            let message = format!("weights of shape {shape:?}; expected one an edge");
            Err(DatasetError::invalid(message).at(array.origin()))
        }
    }
}

/// Graph from pairs of ids: two rows, sources and destinations, or a pair per row.
pub(crate) fn from_edge_index(
    array: Array,
    weights: Option<Vec<f32>>,
    n_nodes: Option<usize>,
    default: Duplicates,
    options: &LoadOptions,
    notes: &mut Notes,
) -> Result<Csr, DatasetError> {
    let origin = array.origin().to_owned();
    let [sources, destinations] = pairs(array)?;
    let edges = Coo::from_edges(sources, destinations, weights, n_nodes);
    let graph = edges.and_then(|edges| to_graph(&edges, options, default, notes));
    graph.map_err(|e| DatasetError::from(e).at(&origin))
}

/// Sources and destinations as [`pairs`], of layouts that differ in having rows or pairs.
///
/// # Errors
/// As [`pairs`], and when two rows of two may be either.
pub(crate) fn unambiguous_pairs(array: Array) -> Result<[Vec<NodeId>; 2], DatasetError> {
    if array.shape() == [2, 2] {
        let what = "edges of shape 2 × 2 may be rows of sources and destinations, or pairs";
        let remedy = "save them among arrays with types, such as author__writes__paper.edge_index, which has rows";
        return Err(DatasetError::invalid(format!("{what}; {remedy}")).at(array.origin()));
    }
    pairs(array)
}

/// Sources and destinations from two rows of ids, or a pair per row.
pub(crate) fn pairs(array: Array) -> Result<[Vec<NodeId>; 2], DatasetError> {
    let origin = array.origin().to_owned();
    let shape = array.expect_2d()?;
    let ids = array.into_ids()?;
    match shape {
        (2, m) => Ok([ids[..m].to_vec(), ids[m..].to_vec()]),
        (_, 2) => {
            let (sources, destinations) = ids.as_chunks::<2>().0.iter().map(|&[u, v]| (u, v)).unzip();
            Ok([sources, destinations])
        }
        (rows, columns) => {
            let message = format!("edges of shape {rows} × {columns}; expected two rows, or two columns");
            Err(DatasetError::invalid(message).at(&origin))
        }
    }
}
